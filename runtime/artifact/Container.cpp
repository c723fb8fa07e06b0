// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/artifact/Container.h"
#include "runtime/artifact/Sha256.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>

namespace kiln {

static_assert(std::endian::native == std::endian::little,
              "the container is read and written without swapping bytes");

namespace {

// A byte above 127, a carriage return and a line feed make transfers that
// mangle binary files visible at once.
constexpr std::array<char, 8> magic = {'\x89', 'K',  'I',  'L',
                                       'N',    '\r', '\n', '\x1a'};
constexpr uint64_t sectionAlignment = 4096;
constexpr uint32_t maximumSections = 64;

struct Header {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t sections;
  uint64_t fileBytes;
  uint64_t zero;
  Digest digest;
};
static_assert(sizeof(Header) == 64);

struct Entry {
  std::array<char, 32> name;
  uint64_t offset;
  uint64_t bytes;
  Digest digest;
};
static_assert(sizeof(Entry) == 80);

constexpr const char *remedy = "; compile again with this kiln";

uint64_t alignUp(uint64_t offset) {
  return (offset + sectionAlignment - 1) & ~(sectionAlignment - 1);
}

/// The digest that the header must carry: over itself and the table.
Digest hashDirectory(Header header, std::span<const std::byte> table) {
  header.digest = {};
  std::vector<std::byte> bytes(sizeof(Header) + table.size());
  std::memcpy(bytes.data(), &header, sizeof(Header));
  if (!table.empty())
    std::memcpy(bytes.data() + sizeof(Header), table.data(), table.size());
  return sha256Digest(bytes);
}

Status reject(const std::string &origin, const std::string &found) {
  return Status(Code::inputRejected, origin + ": " + found + remedy);
}

Status failIo(const std::string &path, const char *action) {
  return Status(Code::io,
                path + ": cannot " + action + ": " + std::strerror(errno));
}

bool isZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

Status checkHeader(const Header &header, uint64_t size,
                   const std::string &origin) {
  if (header.magic != magic)
    return reject(origin, "is not a kiln artifact (wrong magic)");
  if (header.version != containerVersion)
    return reject(origin, "format version is " +
                              std::to_string(header.version) +
                              ", this kiln reads version " +
                              std::to_string(containerVersion));
  if (header.fileBytes != size)
    return reject(origin, "has " + std::to_string(size) +
                              " bytes, its header wants " +
                              std::to_string(header.fileBytes) +
                              " (truncated or damaged)");
  if (header.sections > maximumSections ||
      sizeof(Header) + header.sections * sizeof(Entry) > size)
    return reject(origin, "section table of " +
                              std::to_string(header.sections) +
                              " entries does not fit in " +
                              std::to_string(size) + " bytes");
  return Status();
}

/// Checks the section against the canonical layout and its hash. `end` is where
/// the bytes checked so far end.
Status checkSection(const Entry &entry, std::span<const std::byte> file,
                    uint64_t &end, const std::string &origin) {
  if (entry.name.back() != 0 || entry.name.front() == 0)
    return reject(origin, "a section has no proper name");
  std::string name = entry.name.data();
  uint64_t offset =
      alignUp(end); // No overflow: end is at most the file's size.
  if (entry.offset != offset || offset > file.size() ||
      entry.bytes > file.size() - offset)
    return reject(origin,
                  "section '" + name + "' of " + std::to_string(entry.bytes) +
                      " bytes at offset " + std::to_string(entry.offset) +
                      " is misplaced in a file of " +
                      std::to_string(file.size()) + " bytes");
  if (!isZero(file.subspan(end, offset - end)))
    return reject(origin,
                  "bytes before section '" + name + "' are damaged (not zero)");
  if (sha256Digest(file.subspan(offset, entry.bytes)) != entry.digest)
    return reject(origin,
                  "section '" + name + "' is damaged (SHA-256 does not match)");
  end = offset + entry.bytes;
  return Status();
}

Status writeAll(int file, std::span<const std::byte> bytes,
                const std::string &path) {
  while (!bytes.empty()) {
    ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return failIo(path, "write");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return Status();
}

Expected<std::vector<std::byte>> readFile(const std::string &path,
                                          const std::string &name) {
  // A FIFO would block until somebody writes to it.
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    return errno == ENOENT
               ? Status(Code::inputRejected, name + ": no such file")
               : failIo(name, "open");
  struct stat info;
  bool isRegular = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  std::vector<std::byte> bytes(isRegular ? info.st_size : 0);
  size_t filled = 0;
  ssize_t got = 0;
  while (filled < bytes.size()) {
    got = ::read(file, bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      break;
    filled += static_cast<size_t>(got);
  }
  Status failure = got < 0 ? failIo(name, "read") : Status();
  ::close(file);
  if (!failure.ok())
    return failure;
  if (!isRegular)
    return Status(Code::inputRejected, name + ": is not a regular file");
  bytes.resize(filled);
  return bytes;
}

} // namespace

std::vector<std::byte> packContainer(std::span<const Section> sections) {
  assert(sections.size() <= maximumSections);
  std::vector<Entry> table(sections.size());
  uint64_t end = sizeof(Header) + table.size() * sizeof(Entry);
  for (size_t i = 0; i < sections.size(); ++i) {
    const Section &section = sections[i];
    assert(!section.name.empty() && section.name.size() < 32);
    Entry &entry = table[i] = Entry{};
    std::copy(section.name.begin(), section.name.end(), entry.name.begin());
    entry.offset = alignUp(end);
    entry.bytes = section.bytes.size();
    entry.digest = sha256Digest(section.bytes);
    end = entry.offset + entry.bytes;
  }
  Header header{
      magic, containerVersion, static_cast<uint32_t>(table.size()), end, 0, {}};
  header.digest = hashDirectory(header, std::as_bytes(std::span(table)));

  std::vector<std::byte> bytes(end);
  std::memcpy(bytes.data(), &header, sizeof(Header));
  if (!table.empty())
    std::memcpy(bytes.data() + sizeof(Header), table.data(),
                table.size() * sizeof(Entry));
  for (size_t i = 0; i < sections.size(); ++i)
    std::copy(sections[i].bytes.begin(), sections[i].bytes.end(),
              bytes.begin() + static_cast<ptrdiff_t>(table[i].offset));
  return bytes;
}

Status writeContainer(const std::string &path,
                      std::span<const Section> sections,
                      const std::string &name) {
  std::vector<std::byte> bytes = packContainer(sections);
  int file =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0)
    return failIo(name, "create");
  Status status = writeAll(file, bytes, name);
  if (::close(file) != 0 && status.ok())
    status = failIo(name, "close");
  return status;
}

Expected<Container> Container::open(const std::string &path,
                                    const std::string &name) {
  Expected<std::vector<std::byte>> bytes = readFile(path, name);
  if (!bytes.ok())
    return bytes.status();
  return parse(std::move(*bytes), name);
}

Expected<Container> Container::parse(std::vector<std::byte> bytes,
                                     const std::string &origin) {
  Container container;
  container.origin_ = origin;
  container.bytes_ =
      std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  std::span<const std::byte> file = *container.bytes_;
  if (file.size() < sizeof(Header))
    return reject(origin, "has " + std::to_string(file.size()) +
                              " bytes, a kiln artifact has at least " +
                              std::to_string(sizeof(Header)) + " (truncated)");
  Header header;
  std::memcpy(&header, file.data(), sizeof(Header));
  if (Status status = checkHeader(header, file.size(), origin); !status.ok())
    return status;
  std::span<const std::byte> tableBytes =
      file.subspan(sizeof(Header), header.sections * sizeof(Entry));
  if (hashDirectory(header, tableBytes) != header.digest)
    return reject(origin, "section table is damaged (SHA-256 does not match)");

  uint64_t end = sizeof(Header) + tableBytes.size();
  for (uint32_t i = 0; i < header.sections; ++i) {
    Entry entry;
    std::memcpy(&entry, tableBytes.data() + i * sizeof(Entry), sizeof(Entry));
    if (Status status = checkSection(entry, file, end, origin); !status.ok())
      return status;
    std::string name = entry.name.data();
    if (container.find(name).data())
      return reject(origin, "section '" + name + "' occurs twice");
    container.sections_.push_back(
        {std::move(name), file.subspan(entry.offset, entry.bytes)});
  }
  if (end != file.size())
    return reject(origin, std::to_string(file.size() - end) +
                              " bytes follow the last section");
  return container;
}

std::span<const std::byte> Container::find(std::string_view name) const {
  for (const Section &section : sections_)
    if (section.name == name)
      return section.bytes;
  return {};
}

} // namespace kiln
