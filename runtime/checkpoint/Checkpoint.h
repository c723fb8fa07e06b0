// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A checkpoint is a folder:
//
//   step-000120/kiln.json          step, position in the data, files and hashes
//               model.safetensors  weights
//               optim.safetensors  all other variables: moments, step count
//               vocabulary.txt     words in the order of ids, if data has words
//
// It is written under another name and renamed once all its bytes are on the
// disk: a folder with this name is complete, or was damaged later, which the
// hashes show.
#ifndef KILN_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define KILN_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "runtime/checkpoint/Manifest.h"
#include "runtime/checkpoint/Safetensors.h"

namespace kiln {

/// A checkpoint whose every byte has been verified.
class Checkpoint {
public:
  /// A tensor and the file that it is in.
  struct Tensor {
    const Safetensors *file;
    const Safetensors::Entry *entry;
  };

  /// `inputRejected` with the damaged or missing file, `io` with one that
  /// cannot be read.
  static Expected<Checkpoint> open(const std::string &folder);

  const std::string &folder() const { return folder_; }
  const Manifest &manifest() const { return manifest_; }
  uint64_t bytes() const;
  /// By name.
  const std::map<std::string, Tensor> &tensors() const { return tensors_; }

  /// Text of the vocabulary's file; empty if there is none.
  const std::string &vocabulary() const { return vocabulary_; }

  /// Writes the weights under their public names into a file, and the
  /// vocabulary beside it. Floats keep their type unless one is asked for. Both
  /// files stay as they are if one cannot be written.
  Status
  exportWeights(const std::string &path,
                std::optional<artifact::ElementType> type = std::nullopt) const;

private:
  Checkpoint() = default;

  std::string folder_;
  Manifest manifest_;
  std::string vocabulary_;
  std::vector<std::unique_ptr<Safetensors>> files_;
  std::map<std::string, Tensor> tensors_;
};

/// Writes the tensors of a checkpoint, the vocabulary, unless it is empty, and
/// `manifest`, whose `files` it fills in, into an existing empty folder, and
/// waits until all is on the disk. Messages call the folder `name`.
Status writeCheckpoint(const std::string &folder, const std::string &name,
                       Manifest manifest, std::vector<TensorSource> weights,
                       std::vector<TensorSource> others,
                       const std::string &vocabulary = "");

} // namespace kiln

#endif // KILN_RUNTIME_CHECKPOINT_CHECKPOINT_H
