// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/Safetensors.h"
#include "runtime/checkpoint/ConvertElements.h"
#include "runtime/checkpoint/SafetensorsHeader.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

namespace kiln {

namespace {

Status reject(const std::string &path, const std::string &found) {
  return Status(Code::inputRejected, path + ": " + found);
}

/// Reads exactly the target's size at an offset.
Status readAt(const std::string &path, int file, uint64_t offset,
              std::span<std::byte> target) {
  while (!target.empty()) {
    ssize_t got =
        ::pread(file, target.data(), target.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return failIo(path, "read");
    if (got == 0)
      return reject(path, "ends before byte " +
                              std::to_string(offset + target.size()) +
                              " (truncated)");
    target = target.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return Status();
}

constexpr std::pair<std::string_view, uint64_t> dtypes[] = {
    {"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
    {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
    {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

/// An open file descriptor that its last owner closes.
std::shared_ptr<const int> own(int file) {
  return {new int(file), [](const int *owned) {
            ::close(*owned);
            delete owned;
          }};
}

} // namespace

uint64_t dtypeBytes(std::string_view dtype) {
  for (const auto &[name, bytes] : dtypes)
    if (name == dtype)
      return bytes;
  return 0;
}

std::string_view dtypeOf(artifact::ElementType type) {
  switch (type) {
  case artifact::ElementType::f32:
    return "F32";
  case artifact::ElementType::f64:
    return "F64";
  case artifact::ElementType::i32:
    return "I32";
  case artifact::ElementType::i64:
    return "I64";
  case artifact::ElementType::i1:
    return "BOOL";
  case artifact::ElementType::bf16:
    return "BF16";
  case artifact::ElementType::f16:
    return "F16";
  }
  return "";
}

std::string TensorFacts::describe() const {
  std::string text = dtype + " [";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Expected<Safetensors> Safetensors::open(const std::string &path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return errno == ENOENT ? reject(path, "no such file")
                           : failIo(path, "open");
  Safetensors file;
  file.path_ = path;
  file.file_ = own(descriptor);
  struct stat info;
  if (::fstat(descriptor, &info) != 0)
    return failIo(path, "open");
  if (!S_ISREG(info.st_mode))
    return reject(path, "is not a regular file");
  auto size = static_cast<uint64_t>(info.st_size);
  uint64_t length = 0;
  if (size < sizeof(length))
    return reject(path, "has " + std::to_string(size) +
                            " bytes, a safetensors file has at least 8");
  if (Status status = readAt(path, descriptor, 0,
                             std::as_writable_bytes(std::span(&length, 1)));
      !status.ok())
    return status;
  constexpr uint64_t maximumHeader = 100'000'000;
  if (length > std::min(maximumHeader, size - sizeof(length)))
    return reject(path, "header of " + std::to_string(length) +
                            " bytes does not fit in a file of " +
                            std::to_string(size) +
                            " (not safetensors, or truncated)");
  std::string text(length, '\0');
  if (Status status = readAt(path, descriptor, sizeof(length),
                             std::as_writable_bytes(std::span(text)));
      !status.ok())
    return status;
  file.dataOffset_ = sizeof(length) + length;
  Expected<SafetensorsHeader> header =
      parseSafetensorsHeader(text, size - file.dataOffset_);
  if (!header.ok())
    return reject(path, header.status().message());
  file.entries_ = std::move(header->entries);
  file.metadata_ = std::move(header->metadata);
  return file;
}

const Safetensors::Entry *Safetensors::find(std::string_view name) const {
  auto found = std::lower_bound(entries_.begin(), entries_.end(), name,
                                [](const Entry &entry, std::string_view name) {
                                  return entry.name < name;
                                });
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

Status Safetensors::read(const Entry &entry, uint64_t offset,
                         std::span<std::byte> target) const {
  if (offset > entry.bytes() || target.size() > entry.bytes() - offset)
    return Status(Code::usage, path_ + ": '" + entry.name + "' has " +
                                   std::to_string(entry.bytes()) +
                                   " bytes, asked for more");
  return readAt(path_, *file_, dataOffset_ + entry.begin + offset, target);
}

Status writeSafetensors(OutputFile &file, std::vector<TensorSource> tensors,
                        const std::map<std::string, std::string> &metadata) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorSource &a, const TensorSource &b) {
              return std::make_pair(dtypeBytes(b.dtype), std::cref(a.name)) <
                     std::make_pair(dtypeBytes(a.dtype), std::cref(b.name));
            });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty())
    header["__metadata__"] = metadata;
  uint64_t end = 0;
  std::vector<uint64_t> sizes;
  for (const TensorSource &tensor : tensors) {
    sizes.push_back(dtypeBytes(tensor.dtype));
    for (int64_t size : tensor.shape)
      sizes.back() *= static_cast<uint64_t>(size);
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {end, end + sizes.back()}}};
    end += sizes.back();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception &) {
    return Status(Code::inputRejected,
                  file.name() + ": a tensor's name is not UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  uint64_t length = text.size();
  Status status = file.write(std::as_bytes(std::span(&length, 1)));
  if (status.ok())
    status = file.write(std::as_bytes(std::span(text)));
  for (size_t i = 0; i < tensors.size() && status.ok(); ++i) {
    uint64_t before = file.bytes();
    status = tensors[i].write(file);
    if (status.ok() && file.bytes() - before != sizes[i])
      status = Status(Code::internal, file.name() + ": '" + tensors[i].name +
                                          "' was written with a wrong size");
  }
  return status;
}

namespace {

/// Whether rounding made an infinity of a number.
bool isOverflow(std::string_view from, std::span<const std::byte> source,
                std::string_view to, std::span<const std::byte> rounded) {
  auto widen = [](std::string_view dtype, std::span<const std::byte> elements) {
    std::vector<double> wide(elements.size() / dtypeBytes(dtype));
    convertElements(dtype, elements, artifact::ElementType::f64,
                    std::as_writable_bytes(std::span(wide)));
    return wide;
  };
  std::vector<double> before = widen(from, source), after = widen(to, rounded);
  for (size_t i = 0; i < after.size(); ++i)
    if (std::isinf(after[i]) && !std::isinf(before[i]))
      return true;
  return false;
}

} // namespace

Status copyTensor(const Safetensors &source, const Safetensors::Entry &entry,
                  OutputFile &target,
                  std::optional<artifact::ElementType> type) {
  bool isConverted =
      type && isFloating(entry.dtype) && dtypeOf(*type) != entry.dtype;
  std::vector<std::byte> buffer(
      std::min<uint64_t>(entry.bytes(), uint64_t{1} << 22)),
      converted;
  for (uint64_t offset = 0; offset < entry.bytes();) {
    std::span<std::byte> piece(
        buffer.data(),
        std::min<uint64_t>(buffer.size(), entry.bytes() - offset));
    if (Status status = source.read(entry, offset, piece); !status.ok())
      return status;
    std::span<const std::byte> written = piece;
    if (isConverted) {
      converted.resize(piece.size() / dtypeBytes(entry.dtype) *
                       dtypeBytes(dtypeOf(*type)));
      convertElements(entry.dtype, piece, *type, converted);
      if (isOverflow(entry.dtype, piece, dtypeOf(*type), converted))
        return reject(source.path(),
                      "tensor '" + entry.name +
                          "' has a value that is too large for " +
                          std::string(dtypeOf(*type)));
      written = converted;
    }
    if (Status status = target.write(written); !status.ok())
      return status;
    offset += piece.size();
  }
  return Status();
}

} // namespace kiln
