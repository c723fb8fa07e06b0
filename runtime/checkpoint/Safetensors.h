// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Files of named tensors, in the format of the public `safetensors` package:
// the length of the header (u64, little-endian), the header in JSON, then the
// tensors' bytes one after another.
#ifndef KILN_RUNTIME_CHECKPOINT_SAFETENSORS_H
#define KILN_RUNTIME_CHECKPOINT_SAFETENSORS_H

#include "runtime/artifact/Artifact_generated.h"
#include "runtime/checkpoint/OutputFile.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace kiln {

/// Bytes of one element of a type by its name in the format, such as "BF16"; 0
/// for an unknown type.
uint64_t dtypeBytes(std::string_view dtype);

/// The format's name for an element type of the artifact.
std::string_view dtypeOf(artifact::ElementType type);

struct TensorFacts {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;

  /// "F32 [2, 3]", as messages have it.
  std::string describe() const;
};

/// A file open for reading. The header is untrusted and checked: sizes, names,
/// types, and that the tensors tile the rest of the file.
class Safetensors {
public:
  struct Entry : TensorFacts {
    uint64_t begin, end; // In the bytes after the header.
    uint64_t bytes() const { return end - begin; }
  };

  static Expected<Safetensors> open(const std::string &path);

  /// By name.
  const std::vector<Entry> &entries() const { return entries_; }
  /// Null if there is none.
  const Entry *find(std::string_view name) const;
  const std::map<std::string, std::string> &metadata() const {
    return metadata_;
  }
  const std::string &path() const { return path_; }

  /// Reads part of a tensor, from `offset` bytes after its begin.
  Status read(const Entry &entry, uint64_t offset,
              std::span<std::byte> target) const;

private:
  Safetensors() = default;

  std::string path_;
  std::shared_ptr<const int> file_;
  uint64_t dataOffset_ = 0;
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to be written. `write` is called once and writes exactly the bytes
/// of its type and shape.
struct TensorSource : TensorFacts {
  std::function<Status(OutputFile &)> write;
};

/// Writes header and tensors, those with large elements first, so that every
/// tensor is aligned. The file is left to be finished by the caller.
Status writeSafetensors(OutputFile &file, std::vector<TensorSource> tensors,
                        const std::map<std::string, std::string> &metadata);

/// Copies a tensor from one file to another in blocks, its elements as they are
/// or rounded to f32, bf16 or f16. A number that is too large for that type is
/// rejected.
Status copyTensor(const Safetensors &source, const Safetensors::Entry &entry,
                  OutputFile &target,
                  std::optional<artifact::ElementType> type = std::nullopt);

} // namespace kiln

#endif // KILN_RUNTIME_CHECKPOINT_SAFETENSORS_H
