// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/ConvertElements.h"
#include "runtime/checkpoint/WeightVocabulary.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kiln {

namespace {

Status reject(const std::string &path, const std::string &found) {
  return Status(Code::inputRejected, path + ": " + found);
}

/// Calls `take` with blocks of a file. A link or a device is not followed: a
/// checkpoint must not lead out of its folder.
template <typename Take>
Status readPieces(const std::string &path, uint64_t limit, Take take) {
  int file =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0)
    return errno == ENOENT || errno == ENOTDIR ? reject(path, "is missing")
                                               : failIo(path, "read");
  std::vector<std::byte> buffer(1 << 20);
  Status status;
  uint64_t total = 0;
  struct stat info;
  if (::fstat(file, &info) != 0)
    status = failIo(path, "read");
  else if (!S_ISREG(info.st_mode))
    status = reject(path, "is not a regular file");
  while (status.ok()) {
    ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      status = failIo(path, "read");
    if (got <= 0)
      break;
    total += static_cast<uint64_t>(got);
    if (total > limit)
      status = reject(path, "has more than " + std::to_string(limit) +
                                " bytes (damaged)");
    take(std::span(buffer).first(static_cast<size_t>(got)));
  }
  ::close(file);
  return status;
}

Expected<Manifest> readManifest(const std::string &folder) {
  std::string path = folder + "/" + manifestName, text;
  constexpr uint64_t maximumBytes = uint64_t{1} << 26;
  Status status =
      readPieces(path, maximumBytes, [&](std::span<const std::byte> piece) {
        text.append(reinterpret_cast<const char *>(piece.data()), piece.size());
      });
  if (!status.ok())
    return status;
  return Manifest::parse(text, path);
}

/// `text` gets the contents, unless it is null.
Status verifyFile(const std::string &path, const Manifest::File &facts,
                  std::string *text = nullptr) {
  Sha256 hash;
  uint64_t bytes = 0;
  Status status =
      readPieces(path, facts.bytes, [&](std::span<const std::byte> piece) {
        hash.add(piece);
        bytes += piece.size();
        if (text)
          text->append(reinterpret_cast<const char *>(piece.data()),
                       piece.size());
      });
  if (!status.ok())
    return status;
  if (bytes != facts.bytes)
    return reject(path, "has " + std::to_string(bytes) +
                            " bytes, the manifest wants " +
                            std::to_string(facts.bytes) + " (truncated)");
  if (printDigest(hash.finish()) != facts.hash)
    return reject(path, "is damaged (SHA-256 does not match)");
  return Status();
}

Expected<Manifest::File> writeText(const std::string &path,
                                   const std::string &name,
                                   const std::string &text) {
  Expected<OutputFile> file = OutputFile::create(path, name);
  if (!file.ok())
    return file.status();
  Status status = file->write(std::as_bytes(std::span(text)));
  if (status.ok())
    status = file->finish();
  if (!status.ok())
    return status;
  return Manifest::File{file->bytes(), file->hash()};
}

} // namespace

Expected<Checkpoint> Checkpoint::open(const std::string &folder) {
  Expected<Manifest> manifest = readManifest(folder);
  if (!manifest.ok())
    return manifest.status();
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.manifest_ = std::move(*manifest);
  for (const auto &[name, facts] : checkpoint.manifest_.files) {
    std::string path = folder + "/" + name;
    bool isVocabulary = name == vocabularyFileName;
    if (Status status = verifyFile(
            path, facts, isVocabulary ? &checkpoint.vocabulary_ : nullptr);
        !status.ok())
      return status;
    if (isVocabulary)
      continue;
    Expected<Safetensors> file = Safetensors::open(path);
    if (!file.ok())
      return file.status();
    checkpoint.files_.push_back(
        std::make_unique<Safetensors>(std::move(*file)));
    for (const Safetensors::Entry &entry : checkpoint.files_.back()->entries())
      if (!checkpoint.tensors_
               .insert({entry.name, {checkpoint.files_.back().get(), &entry}})
               .second)
        return reject(path, "tensor '" + entry.name +
                                "' is in another file of the checkpoint too");
  }
  return checkpoint;
}

uint64_t Checkpoint::bytes() const {
  uint64_t bytes = 0;
  for (const auto &[name, file] : manifest_.files)
    bytes += file.bytes;
  return bytes;
}

Status
Checkpoint::exportWeights(const std::string &path,
                          std::optional<artifact::ElementType> type) const {
  std::vector<TensorSource> sources;
  for (const auto &[name, publicNames] : manifest_.publicNames) {
    auto found = tensors_.find(name);
    if (found == tensors_.end())
      return reject(folder_, "has no tensor '" + name + "' to export");
    Tensor tensor = found->second;
    std::string dtype = tensor.entry->dtype;
    if (type && isFloating(dtype))
      dtype = dtypeOf(*type);
    for (const std::string &publicName : publicNames)
      sources.push_back({{publicName, dtype, tensor.entry->shape},
                         [tensor, type](OutputFile &file) {
                           return copyTensor(*tensor.file, *tensor.entry, file,
                                             type);
                         }});
  }
  std::vector<FileContents> files;
  // The vocabulary first: weights that are there can be used.
  if (!vocabulary_.empty())
    files.push_back({vocabularyPathOf(path), [this](OutputFile &file) {
                       return file.write(std::as_bytes(std::span(vocabulary_)));
                     }});
  files.push_back({path,
                   [&](OutputFile &file) {
                     return writeSafetensors(file, std::move(sources),
                                             describeWeights(vocabulary_));
                   },
                   /*followsLinks=*/true});
  return replaceFiles(files);
}

Status writeCheckpoint(const std::string &folder, const std::string &name,
                       Manifest manifest, std::vector<TensorSource> weights,
                       std::vector<TensorSource> others,
                       const std::string &vocabulary) {
  auto in = [](const std::string &folder, const char *file) {
    return folder + "/" + file;
  };
  manifest.files.clear();
  for (auto [fileName, tensors] : {std::pair(modelFileName, &weights),
                                   std::pair(optimizerFileName, &others)}) {
    Expected<OutputFile> file =
        OutputFile::create(in(folder, fileName), in(name, fileName));
    if (!file.ok())
      return file.status();
    Status status = writeSafetensors(*file, std::move(*tensors),
                                     describeWeights(vocabulary));
    if (status.ok())
      status = file->finish();
    if (!status.ok())
      return status;
    manifest.files[fileName] = {file->bytes(), file->hash()};
  }
  if (!vocabulary.empty()) {
    Expected<Manifest::File> file =
        writeText(in(folder, vocabularyFileName), in(name, vocabularyFileName),
                  vocabulary);
    if (!file.ok())
      return file.status();
    manifest.files[vocabularyFileName] = *file;
  }
  Status status = writeText(in(folder, manifestName), in(name, manifestName),
                            manifest.print())
                      .status();
  return status.ok() ? syncFolder(folder) : status;
}

} // namespace kiln
