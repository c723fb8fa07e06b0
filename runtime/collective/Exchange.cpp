// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/collective/Exchange.h"
#include "runtime/artifact/Artifact.h"

#include <tuple>

namespace kiln {

Exchange::Exchange(const artifact::Collective &collective, std::byte *arena,
                   uint32_t members, std::string name)
    : kind(collective.kind()), combine(collective.combine()),
      type(collective.element_type()),
      elementBytes(kiln::elementBytes(collective.element_type())),
      members(members), ticket(collective.ticket()), name(std::move(name)) {
  for (const artifact::Piece *piece : *collective.pieces()) {
    Piece made{arena + piece->source().offset(),
               arena + piece->target().offset(),
               piece->source().stride(),
               piece->target().stride(),
               piece->outer(),
               piece->size(),
               piece->inner()};
    // All elements are alike to an all_reduce.
    if (kind == artifact::CollectiveKind::all_reduce) {
      made.size *= made.outer * made.inner;
      made.outer = made.inner = 1;
    }
    pieces.push_back(made);
  }
}

bool Exchange::isLike(const Exchange &other) const {
  bool isLike =
      std::tie(kind, combine, type, members) ==
          std::tie(other.kind, other.combine, other.type, other.members) &&
      pieces.size() == other.pieces.size();
  for (size_t i = 0; isLike && i < pieces.size(); ++i)
    isLike = std::tie(pieces[i].outer, pieces[i].size, pieces[i].inner) ==
             std::tie(other.pieces[i].outer, other.pieces[i].size,
                      other.pieces[i].inner);
  return isLike;
}

template <typename Element>
static void combineAs(artifact::Combine combine, std::byte *target,
                      const std::byte *source, uint64_t count) {
  auto *result = reinterpret_cast<Element *>(target);
  const auto *other = reinterpret_cast<const Element *>(source);
  if (combine == artifact::Combine::sum)
    for (uint64_t i = 0; i < count; ++i)
      result[i] += other[i];
  else // A NaN on either side stays a NaN.
    for (uint64_t i = 0; i < count; ++i)
      result[i] =
          result[i] < other[i] || other[i] != other[i] ? other[i] : result[i];
}

void combineElements(artifact::Combine combine, artifact::ElementType type,
                     std::byte *target, const std::byte *source,
                     uint64_t count) {
  switch (type) {
  case artifact::ElementType::f32:
    return combineAs<float>(combine, target, source, count);
  case artifact::ElementType::f64:
    return combineAs<double>(combine, target, source, count);
  case artifact::ElementType::i32:
    return combineAs<int32_t>(combine, target, source, count);
  case artifact::ElementType::i64:
    return combineAs<int64_t>(combine, target, source, count);
  case artifact::ElementType::i1:
    return; // No collective has it: the artifact was checked.
  }
}

} // namespace kiln
