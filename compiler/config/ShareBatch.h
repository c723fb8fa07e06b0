// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_CONFIG_SHARE_BATCH_H
#define KILN_COMPILER_CONFIG_SHARE_BATCH_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kiln {

/// Samples of a batch for each replica, in proportion to their speeds (empty:
/// all alike). The shares are multiples of `group`, sum to the batch, and none
/// is empty; what proportion leaves over goes to the greatest remainders, the
/// first of equals. Fails with a reason when there are too few groups or the
/// batch is not whole groups.
std::optional<std::vector<int64_t>>
shareBatch(int64_t batch, int64_t replicas, const std::vector<double> &speeds,
           int64_t group, std::string &error);

/// Why a batch is not whole groups, with the nearest that are, up to a limit.
std::string describeBrokenGroups(int64_t batch, int64_t group, int64_t limit);

} // namespace kiln

#endif
