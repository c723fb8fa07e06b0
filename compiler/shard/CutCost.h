// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Quantities that the partitioner weighs when it chooses the factor along which
// an op is cut, and how long it reuses a resharded value: all of them are here.
#ifndef KILN_COMPILER_SHARD_CUTCOST_H
#define KILN_COMPILER_SHARD_CUTCOST_H

#include <cstdint>
#include <string>
#include <tuple>

namespace kiln::shard {

/// The cost of a cut. Bytes that a device receives decide; preferences decide
/// between cuts that move as much. Fields are compared in the order in which
/// they are declared, and the cut with the least is taken; between equals the
/// first that was proposed.
struct CutCost {
  /// Of tensors without a batch: parameters and their gradients. First, because
  /// a parameter that is gathered takes the memory that cutting it was to save.
  int64_t weightBytes = 0;
  /// Of tensors with a batch, for one sample: operands that are gathered and
  /// results whose partial sums are due at once.
  int64_t sampleBytes = 0;
  /// Whether no parameter has the cut. Cuts of parameters are preferred: the
  /// gradient then has the same cut.
  bool ignoresParameters = false;
  /// Whether no result prefers the cut.
  bool ignoresPreferredResults = false;
  /// Whether results become partial sums, which are added later.
  bool leavesPartialSums = false;
  /// Operands that have the cut already; the more the better, since other ops
  /// that read them will be cut so as well.
  int agreeingOperands = 0;

  bool operator<(const CutCost &other) const { return key() < other.key(); }
  /// For remarks.
  std::string print() const;

private:
  std::tuple<int64_t, int64_t, bool, bool, bool, int> key() const {
    return {weightBytes,       sampleBytes,
            ignoresParameters, ignoresPreferredResults,
            leavesPartialSums, -agreeingOperands};
  }
};

/// A resharded value is reused while ops of the same layer are computed, in one
/// pass: kept longer, such as from the forward pass to the backward pass, it
/// would take the memory that sharding saves. Ops of different layers, and ops
/// of models without layers, reuse it if no more than this many ops lie between
/// them: about as many as read one weight in a layer's forward pass.
inline constexpr unsigned kReusedAcrossOps = 12;

} // namespace kiln::shard

#endif // KILN_COMPILER_SHARD_CUTCOST_H
