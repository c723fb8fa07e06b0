// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_FUSE_ACYCLICORDER_H
#define KILN_COMPILER_FUSE_ACYCLICORDER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <vector>

namespace kiln {

/// A topological order of groups of ops, kept while groups are merged: every
/// group comes before its readers, and a merge that would close a cycle is
/// refused. A merge moves only the groups that must move, so fusing a deep
/// model takes time in proportion to its depth.
class AcyclicOrder {
public:
  /// Groups are numbered in program order; each reader comes later.
  explicit AcyclicOrder(
      llvm::ArrayRef<llvm::SmallVector<unsigned, 4>> readersOfGroups);

  /// Makes one group of two; it has the number `kept`. False, and nothing has
  /// changed, if one of them needs a result of the other through a third.
  bool merge(unsigned kept, unsigned taken);

private:
  // Ops on a longest path of the program, as bits of a mask.
  static constexpr unsigned kPivots = 64;

  struct Node {
    uint64_t label = 0;          // Increases along the order.
    unsigned next = 0, last = 0; // Neighbours in the order.
    unsigned mergedInto = 0;     // Itself, or the group that has taken it.
    unsigned seenBy = 0;         // The last search that has come here.
    uint64_t reaches = 0;        // Pivots that need it.
    uint64_t reachedFrom = 0;    // Pivots that it needs.
    llvm::SmallVector<unsigned, 4> readers; // Perhaps merged since.
  };

  void choosePivots();
  unsigned resolve(unsigned group);
  bool hasPathOverPivot(unsigned from, unsigned to);
  bool findReadersBefore(unsigned from, unsigned to);
  void unlink(unsigned group);
  void insertAfter(unsigned place, llvm::ArrayRef<unsigned> groups);
  void relabel();

  std::vector<Node> nodes; // The last one is the head of the list.
  llvm::SmallVector<unsigned, kPivots> pivots;
  llvm::SmallVector<unsigned> found; // By the last search.
  unsigned searches = 0;
};

} // namespace kiln

#endif // KILN_COMPILER_FUSE_ACYCLICORDER_H
