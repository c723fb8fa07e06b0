// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DATA_DATASET_H
#define KILN_RUNTIME_DATA_DATASET_H

#include "runtime/Status.h"
#include "runtime/artifact/Artifact_generated.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace kiln {

/// Samples that can be read in any order, by any thread. Everything that can be
/// wrong with the files is found when they are opened.
class Dataset {
public:
  virtual ~Dataset() = default;

  /// Opens what the artifact names; null for the kind "none".
  static Expected<std::unique_ptr<Dataset>> open(const artifact::Data &data);

  virtual uint64_t samples() const = 0;

  /// Whether samples fit the input by name, shape and element type.
  virtual Status checkInput(const artifact::Input &input) const = 0;

  /// Writes one sample as the input wants it. Allocates nothing. The
  /// input must have passed `checkInput`.
  virtual void write(const artifact::Input &input, uint64_t sample,
                     std::byte *target) const = 0;
};

/// Elements of one sample of an input.
uint64_t sampleElements(const artifact::Input &input);

/// Tells that an input of this name cannot be fed; `known` lists those that
/// can.
Status rejectInput(const artifact::Input &input, const std::string &known);

/// Images (u8, scaled to [0, 1]) as "image" and classes as "label" from two IDX
/// files.
Expected<std::unique_ptr<Dataset>> openIdx(const artifact::Data &data);

/// "tokens" and "labels" (the same one further on) from a text, a byte being a
/// token, or from a flat file of token ids.
Expected<std::unique_ptr<Dataset>> openTokens(const artifact::Data &data);

} // namespace kiln

#endif // KILN_RUNTIME_DATA_DATASET_H
