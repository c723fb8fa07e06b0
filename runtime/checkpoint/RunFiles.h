// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The files of a run in its folder, and how to tell a run from a folder of
// somebody else's: nothing else may be renamed, removed or overwritten.
#ifndef KILN_RUNTIME_CHECKPOINT_RUNFILES_H
#define KILN_RUNTIME_CHECKPOINT_RUNFILES_H

#include "runtime/Status.h"

#include <string>
#include <string_view>

namespace kiln {

inline constexpr const char *metricsName = "metrics.jsonl";
inline constexpr const char *configName = "config.yaml";
inline constexpr const char *checkpointsName = "checkpoints";

/// Ends the names of what a run has left behind by going on from an older
/// checkpoint: ".old" the first time, then ".old.2", ...
std::string setAsideMark(unsigned time);

/// Whether a name ends with such a mark.
bool isSetAside(std::string_view name);

/// Whether a run writes a file or folder of this name into its folder, at its
/// start or later.
bool isRunFileName(std::string_view name);

/// Whether a name is that of a temporary file beside one of them.
bool isRunRemnant(std::string_view name);

/// Whether a folder is that of a run. Its files have ordinary names, so one of
/// them must be as Kiln writes it; or there is nothing else, if the run was
/// killed when it began.
bool isRun(const std::string &folder);

/// Whether a path is that of a folder, or lies inside it, by any spelling.
bool isInside(const std::string &path, const std::string &folder);

/// `usage` if a file at `path`, which may not exist, would belong to a run or a
/// checkpoint. `ownFolder` is that of the command's run, which may not have
/// begun; empty for none.
Status checkBelongsToNoRun(const std::string &path,
                           const std::string &ownFolder);

} // namespace kiln

#endif // KILN_RUNTIME_CHECKPOINT_RUNFILES_H
