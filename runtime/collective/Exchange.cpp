// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/collective/Exchange.h"
#include "runtime/NarrowFloats.h"
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

namespace {

/// An element type as it is stored, and as it is combined.
template <typename StoredElement, typename SumElement = StoredElement>
struct Kind {
  using Stored = StoredElement;
  using Sum = SumElement;
};

} // namespace

template <typename Body>
static auto forKind(artifact::ElementType type, Body body) {
  switch (type) {
  case artifact::ElementType::f64:
    return body(Kind<double>());
  case artifact::ElementType::i32:
    return body(Kind<int32_t>());
  case artifact::ElementType::i64:
    return body(Kind<int64_t>());
  case artifact::ElementType::bf16:
    return body(Kind<Bfloat16, float>());
  case artifact::ElementType::f16:
    return body(Kind<Half, float>());
  case artifact::ElementType::f32:
  case artifact::ElementType::i1: // No collective has it: that was checked.
    break;
  }
  return body(Kind<float>());
}

uint64_t Combiner::blockElements() const {
  return forKind(type_, [&](auto kind) {
    return block_.size() / sizeof(typename decltype(kind)::Sum);
  });
}

void Combiner::start(const std::byte *source, uint64_t count) {
  forKind(type_, [&](auto kind) {
    using Sum = decltype(kind)::Sum;
    auto *sums = reinterpret_cast<Sum *>(block_.data());
    const auto *elements =
        reinterpret_cast<const decltype(kind)::Stored *>(source);
    for (uint64_t i = 0; i < count; ++i)
      sums[i] = static_cast<Sum>(elements[i]);
  });
}

void Combiner::add(const std::byte *source, uint64_t count) {
  forKind(type_, [&](auto kind) {
    using Sum = decltype(kind)::Sum;
    auto *sums = reinterpret_cast<Sum *>(block_.data());
    const auto *elements =
        reinterpret_cast<const decltype(kind)::Stored *>(source);
    if (combine_ == artifact::Combine::sum)
      for (uint64_t i = 0; i < count; ++i)
        sums[i] += static_cast<Sum>(elements[i]);
    else // A NaN on either side stays a NaN.
      for (uint64_t i = 0; i < count; ++i) {
        auto element = static_cast<Sum>(elements[i]);
        sums[i] = sums[i] < element || element != element ? element : sums[i];
      }
  });
}

void Combiner::finish(std::byte *target, uint64_t count) const {
  forKind(type_, [&](auto kind) {
    using Stored = decltype(kind)::Stored;
    const auto *sums =
        reinterpret_cast<const decltype(kind)::Sum *>(block_.data());
    auto *elements = reinterpret_cast<Stored *>(target);
    for (uint64_t i = 0; i < count; ++i)
      elements[i] = static_cast<Stored>(sums[i]);
  });
}

} // namespace kiln
