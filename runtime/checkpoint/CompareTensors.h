// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_CHECKPOINT_COMPARETENSORS_H
#define KILN_RUNTIME_CHECKPOINT_COMPARETENSORS_H

#include "runtime/checkpoint/Safetensors.h"

namespace kiln {

struct TensorDifference {
  bool isEqual = false;          // Bit for bit.
  std::string unlike;            // Type or shape, where they differ.
  std::optional<double> maximum; // Greatest absolute difference, of floats.

  std::string describe() const;
};

/// Compares two tensors in blocks.
Expected<TensorDifference> compareTensors(const Safetensors &firstFile,
                                          const Safetensors::Entry &first,
                                          const Safetensors &secondFile,
                                          const Safetensors::Entry &second);

} // namespace kiln

#endif // KILN_RUNTIME_CHECKPOINT_COMPARETENSORS_H
