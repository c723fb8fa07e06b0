// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives with their inputs and expected results.
#ifndef KILN_TEST_RUNTIME_COLLECTIVE_SAMPLECOLLECTIVE_H
#define KILN_TEST_RUNTIME_COLLECTIVE_SAMPLECOLLECTIVE_H

#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>

namespace kiln::test {

/// One collective on a mesh.
struct Subject {
  std::vector<std::pair<std::string, uint32_t>> mesh;
  std::vector<uint32_t> axes;
  artifact::CollectiveKind kind;
  std::vector<std::array<uint64_t, 3>> pieces; // outer, size, inner
  bool isInPlace = false;                      // all_reduce

  bool isSourcePart() const {
    return kind == artifact::CollectiveKind::all_gather;
  }
  bool isTargetPart() const {
    return kind == artifact::CollectiveKind::reduce_scatter;
  }
  /// For each device the members of its group.
  std::vector<std::vector<uint32_t>> groups() const;
};

/// Every kind on several meshes and axes, with pieces of which some have
/// padding.
std::vector<Subject> allSubjects();

/// Value of a piece's element on a device.
using Values =
    std::function<double(uint32_t device, size_t piece, uint64_t element)>;

/// An integer for each device, piece and element. Sums are exact, but depend on
/// which members take part.
double wholeNumber(uint32_t device, size_t piece, uint64_t element);

/// The inputs of all devices of a subject and its results, by a plain loop over
/// the members.
template <typename Element> class CollectiveSample {
public:
  CollectiveSample(const Subject &subject, artifact::Combine combine,
                   const Values &values)
      : subject_(subject), groups_(subject.groups()), combine_(combine),
        sources_(groups_.size()), wholes_(groups_.size()) {
    for (uint32_t device = 0; device < groups_.size(); ++device)
      for (size_t piece = 0; piece < subject_.pieces.size(); ++piece)
        sources_[device].push_back(makeSource(device, piece, values));
    for (uint32_t device = 0; device < groups_.size(); ++device)
      for (size_t piece = 0; piece < subject_.pieces.size(); ++piece)
        if (memberOf(device) == 0)
          wholes_[device].push_back(makeWhole(groups_[device], piece));
  }

  const Subject &subject() const { return subject_; }
  artifact::Combine combine() const { return combine_; }
  uint32_t devices() const { return static_cast<uint32_t>(groups_.size()); }
  const std::vector<uint32_t> &group(uint32_t device) const {
    return groups_[device];
  }
  uint32_t members() const { return static_cast<uint32_t>(groups_[0].size()); }
  uint32_t memberOf(uint32_t device) const {
    const std::vector<uint32_t> &group = groups_[device];
    return static_cast<uint32_t>(std::ranges::find(group, device) -
                                 group.begin());
  }

  uint64_t sourceElements(size_t piece) const {
    return elements(piece, subject_.isSourcePart());
  }
  uint64_t targetElements(size_t piece) const {
    return elements(piece, subject_.isTargetPart());
  }

  /// Bytes that the members of a group receive from each other.
  uint64_t movedBytes() const {
    uint64_t moved = 0;
    for (auto [outer, size, inner] : subject_.pieces)
      moved += outer * size * inner * sizeof(Element) * (members() - 1);
    return subject_.isSourcePart() || subject_.isTargetPart() ? moved
                                                              : 2 * moved;
  }

  const std::vector<Element> &source(uint32_t device, size_t piece) const {
    return sources_[device][piece];
  }

  std::vector<Element> wanted(uint32_t device, size_t piece) const {
    const std::vector<Element> &whole = wholes_[groups_[device][0]][piece];
    std::vector<Element> values(targetElements(piece)); // Padding is zero.
    forEachElement(
        device, piece, subject_.isTargetPart(),
        [&](uint64_t i, uint64_t element) { values[i] = whole[element]; });
    return values;
  }

private:
  uint64_t partRows(size_t piece) const {
    return (subject_.pieces[piece][1] + members() - 1) / members();
  }

  uint64_t elements(size_t piece, bool isPart) const {
    auto [outer, size, inner] = subject_.pieces[piece];
    return outer * (isPart ? partRows(piece) : size) * inner;
  }

  /// Calls function(i, element) with the local index `i` of an element, in the
  /// device's shard or the full tensor, and its global index. Skips padding.
  template <typename Function>
  void forEachElement(uint32_t device, size_t piece, bool isPart,
                      Function function) const {
    auto [outer, size, inner] = subject_.pieces[piece];
    uint64_t rows = isPart ? partRows(piece) : size,
             first = isPart ? memberOf(device) * rows : 0;
    for (uint64_t o = 0; o < outer; ++o)
      for (uint64_t row = 0; row < rows && first + row < size; ++row)
        for (uint64_t i = 0; i < inner; ++i)
          function((o * rows + row) * inner + i,
                   (o * size + first + row) * inner + i);
  }

  std::vector<Element> makeSource(uint32_t device, size_t piece,
                                  const Values &values) const {
    // Padding is never moved.
    std::vector<Element> source(sourceElements(piece), Element(-77));
    forEachElement(device, piece, subject_.isSourcePart(),
                   [&](uint64_t i, uint64_t element) {
                     source[i] =
                         static_cast<Element>(values(device, piece, element));
                   });
    return source;
  }

  /// The combined full tensor: in the order of the members, and in the
  /// arithmetic of the elements.
  std::vector<Element> makeWhole(const std::vector<uint32_t> &group,
                                 size_t piece) const {
    std::vector<Element> whole(elements(piece, /*isPart=*/false));
    for (uint32_t device : group)
      forEachElement(device, piece, subject_.isSourcePart(),
                     [&](uint64_t i, uint64_t element) {
                       Element &result = whole[element],
                               other = source(device, piece)[i];
                       if (subject_.isSourcePart() || device == group[0])
                         result = other;
                       else if (combine_ == artifact::Combine::sum)
                         result += other;
                       else
                         result = std::max(result, other);
                     });
    return whole;
  }

  Subject subject_;
  std::vector<std::vector<uint32_t>> groups_; // By device.
  artifact::Combine combine_;
  std::vector<std::vector<std::vector<Element>>> sources_; // By device, piece.
  std::vector<std::vector<std::vector<Element>>> wholes_;  // Of first members.
};

/// Fails unless all bits are the same.
template <typename Element>
void expectSame(std::span<const Element> found, std::span<const Element> wanted,
                uint32_t device, size_t piece) {
  ASSERT_EQ(found.size(), wanted.size());
  if (std::memcmp(found.data(), wanted.data(), found.size_bytes()) == 0)
    return;
  for (uint64_t i = 0; i < found.size(); ++i)
    if (std::memcmp(&found[i], &wanted[i], sizeof(Element)) != 0)
      FAIL() << "device " << device << " piece " << piece << " element " << i
             << " is " << found[i] << ", wanted " << wanted[i];
}

} // namespace kiln::test

#endif // KILN_TEST_RUNTIME_COLLECTIVE_SAMPLECOLLECTIVE_H
