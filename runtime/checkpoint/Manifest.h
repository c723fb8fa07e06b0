// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_CHECKPOINT_MANIFEST_H
#define KILN_RUNTIME_CHECKPOINT_MANIFEST_H

#include "runtime/Status.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kiln {

inline constexpr const char *manifestName = "kiln.json";
inline constexpr const char *modelFileName = "model.safetensors";
inline constexpr const char *optimizerFileName = "optim.safetensors";

/// Contents of a checkpoint's kiln.json: its position in the run, and the size
/// and hash of every file beside it.
struct Manifest {
  struct File {
    uint64_t bytes = 0;
    std::string hash;
    bool operator==(const File &) const = default;
  };

  std::string writtenBy;
  std::string model;
  std::string config; // Canonical text, with every default filled in.
  uint64_t step = 0;  // Steps done.
  // Batches run on over the end of an epoch, so these fields determine the
  // position in the data: sample j of the next step is a pure function of them.
  uint64_t seed = 0;
  uint64_t globalBatch = 0;
  uint64_t samples = 0; // Of one epoch; 0 without data.
  bool isShuffled = false;
  /// Fingerprints of the data files, by the key that names each.
  std::map<std::string, std::string> contents;
  std::map<std::string, File> files;
  /// The names that each weight has in public checkpoints.
  std::map<std::string, std::vector<std::string>> publicNames;

  bool operator==(const Manifest &) const = default;

  /// The text of the file. It is canonical and ends with its own hash, so that
  /// every bit of it is covered by a check.
  std::string print() const;
  /// `origin` names the text in messages. Only text that `print` writes is
  /// accepted.
  static Expected<Manifest> parse(const std::string &text,
                                  const std::string &origin);
};

} // namespace kiln

#endif // KILN_RUNTIME_CHECKPOINT_MANIFEST_H
