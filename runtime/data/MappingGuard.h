// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DATA_MAPPINGGUARD_H
#define KILN_RUNTIME_DATA_MAPPINGGUARD_H

#include <cstddef>
#include <span>

namespace kiln {

/// Guards a mapping of a file against the loss of its bytes. To read past the
/// end of a file that was truncated, or from a disk that fails, would end the
/// process by SIGBUS; under a guard the rest of the mapping reads as zeros, and
/// the reader asks afterwards. The mapping must outlive the guard.
class MappingGuard {
public:
  explicit MappingGuard(std::span<const std::byte> mapping);
  MappingGuard(MappingGuard &&other) noexcept;
  MappingGuard &operator=(MappingGuard &&) = delete;
  ~MappingGuard();

  /// False if there are too many guards at once; the mapping is not guarded.
  bool isActive() const { return region_; }

  /// Whether zeros were read in place of bytes.
  bool hasLostBytes() const;

  struct Region;

private:
  Region *region_ = nullptr;
};

} // namespace kiln

#endif // KILN_RUNTIME_DATA_MAPPINGGUARD_H
