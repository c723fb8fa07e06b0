// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_PLAN_SHARE_BATCH_H
#define KILN_COMPILER_PLAN_SHARE_BATCH_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kiln {

/// Samples of a batch for each replica, in proportion to their speeds (empty:
/// all alike). The shares are multiples of `group`, sum to the batch, and none
/// is empty. Leftover groups go to the greatest remainders, the first among
/// equals. Fails with a reason when there are too few groups or the batch is
/// not a multiple of a group.
std::optional<std::vector<int64_t>>
shareBatch(int64_t batch, int64_t replicas, const std::vector<double> &speeds,
           int64_t group, std::string &error);

/// Error for a batch that is not a multiple of a group, with the nearest
/// multiples up to a limit.
std::string describeBrokenGroups(int64_t batch, int64_t group, int64_t limit);

} // namespace kiln

#endif
