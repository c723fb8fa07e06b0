// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The outer format of a .kiln file: a header, a table of sections, then the raw
// sections at multiples of 4096 bytes.
//
//   header (64 bytes)  magic[8], version u32, sections u32, file bytes u64,
//   zero u64,
//                      SHA-256 of header (this field zero) and table
//   table (80 each)    name[32] padded with zeros, offset u64, bytes u64,
//   SHA-256
//
// All numbers are little-endian. The layout is canonical: sections lie in table
// order, each at the first aligned offset after the one before, gaps are zero
// and the file ends with the last section. So equal sections give equal bytes,
// and every bit of the file is covered by a check.
#ifndef KILN_RUNTIME_ARTIFACT_CONTAINER_H
#define KILN_RUNTIME_ARTIFACT_CONTAINER_H

#include "runtime/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// The version of container and schema that this build reads and writes. Raise
/// it when either changes incompatibly.
inline constexpr uint32_t containerVersion = 5;

inline constexpr std::string_view indexSectionName = "index"; // flatbuffer

/// A named run of bytes; the name has 1 to 31 bytes. Does not own the bytes.
struct Section {
  std::string name;
  std::span<const std::byte> bytes;
};

/// The bytes of a container. Equal sections give equal bytes.
std::vector<std::byte> packContainer(std::span<const Section> sections);

/// Writes a container in place; messages call the file `name`.
Status writeContainer(const std::string &path,
                      std::span<const Section> sections,
                      const std::string &name);

/// A container whose every byte has been verified. The bytes are private to the
/// process: changing the file afterwards has no effect.
class Container {
public:
  /// Reads and verifies a file, which messages call `name`; `inputRejected` if
  /// it is not an intact container of this version.
  static Expected<Container> open(const std::string &path,
                                  const std::string &name);
  static Expected<Container> open(const std::string &path) {
    return open(path, path);
  }

  /// Verifies bytes in memory; `origin` names them in messages.
  static Expected<Container> parse(std::vector<std::byte> bytes,
                                   const std::string &origin);

  /// The bytes of a section, aligned to 16 bytes at least; null data if there
  /// is none.
  std::span<const std::byte> find(std::string_view name) const;

  const std::vector<Section> &sections() const { return sections_; }
  const std::string &origin() const { return origin_; }
  uint64_t fileBytes() const { return bytes_->size(); }

private:
  Container() = default;

  std::string origin_;
  std::shared_ptr<const std::vector<std::byte>> bytes_;
  std::vector<Section> sections_;
};

} // namespace kiln

#endif // KILN_RUNTIME_ARTIFACT_CONTAINER_H
