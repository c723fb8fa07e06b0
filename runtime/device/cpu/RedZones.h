// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_CPU_REDZONES_H
#define KILN_RUNTIME_DEVICE_CPU_REDZONES_H

#include "runtime/artifact/Artifact.h"

#include <string>
#include <vector>

namespace kiln::cpu {

/// Bytes between buffers that no command may write; only plans of tests have
/// them.
class RedZones {
public:
  /// Fills the zones of the image. The arena must outlive it.
  RedZones(const artifact::Image &image, std::byte *arena);

  /// "bytes 0 to 3 behind the buffer that ends at ..." if a zone has changed;
  /// otherwise empty.
  std::string findChange() const;

private:
  const flatbuffers::Vector<const artifact::RedZone *> &zones_;
  std::byte *arena_;
};

} // namespace kiln::cpu

#endif // KILN_RUNTIME_DEVICE_CPU_REDZONES_H
