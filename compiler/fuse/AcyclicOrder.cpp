// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The order is a list whose nodes have increasing labels, so that two groups
// can be compared and a group can be moved without touching the others. To
// merge two groups, the readers of the earlier one that stand before the later
// one move behind it (as in Pearce and Kelly, "A dynamic topological sort
// algorithm for directed acyclic graphs", with one search instead of two).
// Most merges that would close a cycle join a forward op to its backward pass,
// far away; a mask of ops on a longest path tells these without a search.
#include "compiler/fuse/AcyclicOrder.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kiln {

static constexpr uint64_t kGap = uint64_t(1) << 32; // Between new labels.

AcyclicOrder::AcyclicOrder(
    llvm::ArrayRef<llvm::SmallVector<unsigned, 4>> readersOfGroups)
    : nodes(readersOfGroups.size() + 1) {
  unsigned count = readersOfGroups.size();
  for (unsigned group = 0; group <= count; ++group) {
    nodes[group].mergedInto = group;
    nodes[group].next = group == count ? 0 : group + 1;
    nodes[group].last = group == 0 ? count : group - 1;
    if (group < count)
      nodes[group].readers = readersOfGroups[group];
  }
  relabel();
  choosePivots();
}

// Evenly spaced along a longest path; paths between distant ops mostly lead
// over one.
void AcyclicOrder::choosePivots() {
  unsigned count = nodes.size() - 1;
  std::vector<unsigned> height(count), successor(count, count);
  for (unsigned group = count; group-- > 0;)
    for (unsigned reader : nodes[group].readers)
      if (height[reader] + 1 > height[group]) {
        height[group] = height[reader] + 1;
        successor[group] = reader;
      }
  llvm::SmallVector<unsigned> path;
  if (count > 0)
    for (unsigned group =
             std::max_element(height.begin(), height.end()) - height.begin();
         group != count; group = successor[group])
      path.push_back(group);
  size_t chosen = std::min<size_t>(kPivots, path.size());
  for (size_t index = 0; index < chosen; ++index) {
    pivots.push_back(path[index * path.size() / chosen]);
    nodes[pivots.back()].reaches |= uint64_t(1) << index;
    nodes[pivots.back()].reachedFrom |= uint64_t(1) << index;
  }
  for (unsigned group = count; group-- > 0;)
    for (unsigned reader : nodes[group].readers)
      nodes[group].reaches |= nodes[reader].reaches;
  for (unsigned group = 0; group < count; ++group)
    for (unsigned reader : nodes[group].readers)
      nodes[reader].reachedFrom |= nodes[group].reachedFrom;
}

unsigned AcyclicOrder::resolve(unsigned group) {
  while (nodes[group].mergedInto != group)
    group = nodes[group].mergedInto = nodes[nodes[group].mergedInto].mergedInto;
  return group;
}

// Merging others only adds paths, so the masks of the program remain true.
bool AcyclicOrder::hasPathOverPivot(unsigned from, unsigned to) {
  uint64_t common = nodes[from].reaches & nodes[to].reachedFrom;
  for (; common; common &= common - 1) {
    unsigned pivot = resolve(pivots[llvm::countr_zero(common)]);
    if (pivot != from && pivot != to)
      return true;
  }
  return false;
}

// Finds the groups before `to` that need something of `from`. False if `to`
// needs one of them in turn.
bool AcyclicOrder::findReadersBefore(unsigned from, unsigned to) {
  ++searches;
  found.clear();
  uint64_t end = nodes[to].label;
  auto visit = [&](unsigned group) {
    for (unsigned &slot : nodes[group].readers) {
      unsigned reader = slot = resolve(slot);
      if (reader == to && group != from)
        return false;
      Node &node = nodes[reader];
      if (node.label < end && node.seenBy != searches && reader != from) {
        node.seenBy = searches;
        found.push_back(reader);
      }
    }
    return true;
  };
  if (!visit(from))
    return false;
  for (size_t index = 0; index < found.size(); ++index)
    if (!visit(found[index]))
      return false;
  return true;
}

void AcyclicOrder::unlink(unsigned group) {
  nodes[nodes[group].last].next = nodes[group].next;
  nodes[nodes[group].next].last = nodes[group].last;
}

void AcyclicOrder::relabel() {
  unsigned head = nodes.size() - 1;
  uint64_t label = 0;
  nodes[head].label = 0;
  for (unsigned group = nodes[head].next; group != head;
       group = nodes[group].next)
    nodes[group].label = label += kGap;
}

void AcyclicOrder::insertAfter(unsigned place,
                               llvm::ArrayRef<unsigned> groups) {
  unsigned head = nodes.size() - 1, last = place, next = nodes[place].next;
  for (unsigned group : groups) {
    nodes[group].last = last;
    nodes[last].next = group;
    last = group;
  }
  nodes[last].next = next;
  nodes[next].last = last;
  uint64_t begin = nodes[place].label,
           end = next == head ? begin + kGap * (groups.size() + 1)
                              : nodes[next].label,
           step = (end - begin) / (groups.size() + 1);
  if (step == 0)
    return relabel();
  for (unsigned group : groups)
    nodes[group].label = begin += step;
}

bool AcyclicOrder::merge(unsigned kept, unsigned taken) {
  bool isKeptFirst = nodes[kept].label < nodes[taken].label;
  unsigned from = isKeptFirst ? kept : taken, to = isKeptFirst ? taken : kept;
  if (hasPathOverPivot(from, to) || !findReadersBefore(from, to))
    return false;
  // The merged group stands where `to` stood, its readers behind it in the
  // order that they had.
  llvm::sort(found, [&](unsigned a, unsigned b) {
    return nodes[a].label < nodes[b].label;
  });
  for (unsigned group : found)
    unlink(group);
  unlink(from);
  if (kept == from) {
    insertAfter(nodes[to].last, kept);
    unlink(to);
  }
  insertAfter(kept, found);

  nodes[taken].mergedInto = kept;
  nodes[kept].reaches |= nodes[taken].reaches;
  nodes[kept].reachedFrom |= nodes[taken].reachedFrom;
  llvm::SmallVector<unsigned, 4> readers;
  ++searches;
  for (unsigned group : {kept, taken})
    for (unsigned slot : nodes[group].readers) {
      unsigned reader = resolve(slot);
      if (reader == kept || nodes[reader].seenBy == searches)
        continue;
      nodes[reader].seenBy = searches;
      readers.push_back(reader);
    }
  nodes[kept].readers = std::move(readers);
  nodes[taken].readers.clear();
  return true;
}

} // namespace kiln
