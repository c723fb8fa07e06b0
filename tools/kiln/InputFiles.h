// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TOOLS_KILN_INPUT_FILES_H
#define KILN_TOOLS_KILN_INPUT_FILES_H

#include "compiler/config/Config.h"
#include "runtime/data/Dataset.h"
#include "tools/kiln/Commands.h"

namespace kiln {

/// The files that a run of a config will read: data, data held out and initial
/// weights. They are opened before anything is compiled, so that their faults
/// do not cost the minutes that compiling takes.
class InputFiles {
public:
  static Expected<InputFiles> open(const Config &config, const RunOptions &run);

  /// Whether a model fits them, of which the index has variables, inputs and
  /// public names.
  Status checkModel(const artifact::Index &model) const;

private:
  InputFiles() = default;
  Status openData(const Config &config);

  std::unique_ptr<Dataset> data_, heldOut_; // Null if there are none.
  std::optional<Safetensors> weights_;
};

} // namespace kiln

#endif
