// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TOOLS_KILN_CHECK_INPUT_FILES_H
#define KILN_TOOLS_KILN_CHECK_INPUT_FILES_H

#include "compiler/config/Config.h"
#include "tools/kiln/Commands.h"

namespace kiln {

/// Opens the files that a run of the config will read, so that their faults are
/// found before minutes are spent on compiling: data, data held out and initial
/// weights.
Status checkInputFiles(const Config &config, const RunOptions &run);

} // namespace kiln

#endif
