// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TOOLS_KILN_RANKS_H
#define KILN_TOOLS_KILN_RANKS_H

#include "tools/kiln/Commands.h"

namespace kiln {

/// Runs an artifact in several processes on this machine: starts mpirun, which
/// starts `kiln run` in each, and looks after it. A signal stops all after the
/// step; a process that is lost ends all. Returns the exit code.
int runRanks(const std::string &artifact, const RunOptions &options);

/// Whether Open MPI can write its session, without which it fails in words of
/// its own: `io` with the folder's name.
Status checkSessionFolder();

} // namespace kiln

#endif // KILN_TOOLS_KILN_RANKS_H
