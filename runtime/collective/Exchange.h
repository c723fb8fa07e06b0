// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_COLLECTIVE_EXCHANGE_H
#define KILN_RUNTIME_COLLECTIVE_EXCHANGE_H

#include "runtime/Mesh.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace kiln {

/// A device's side of a collective, with all places resolved to addresses.
struct Exchange {
  /// A full tensor of [outer, size, inner] elements, sharded along `size`.
  struct Piece {
    std::byte *source, *target;
    uint64_t sourceStride, targetStride; // From one repetition to the next.
    uint64_t outer, size, inner;

    std::byte *sourceAt(uint64_t repetition) const {
      return source + repetition * sourceStride;
    }
    std::byte *targetAt(uint64_t repetition) const {
      return target + repetition * targetStride;
    }
  };

  /// Elements contiguous both in the full tensor and in one shard.
  struct Run {
    const Piece *piece;
    uint64_t number;        // Index of the piece.
    uint64_t whole, local;  // Offsets in the full tensor and in the shard.
    uint64_t stream, count; // Offset in the shards of all pieces, concatenated.
  };

  Exchange(const artifact::Collective &collective, std::byte *arena,
           uint32_t members, std::string name);

  bool reduces() const { return kind != artifact::CollectiveKind::all_gather; }
  bool gathers() const {
    return kind != artifact::CollectiveKind::reduce_scatter;
  }
  /// Whether two members can take part in the same collective.
  bool isLike(const Exchange &other) const;

  /// Elements of shard `part` over all pieces, without padding.
  uint64_t countPart(uint64_t part) const {
    uint64_t count = 0;
    for (const Piece &piece : pieces)
      count += piece.outer * Cut{piece.size, members}.valid(part) * piece.inner;
    return count;
  }

  /// Calls function(run) for elements [begin, end) of a shard, in order.
  template <typename Function>
  void forEachRun(uint64_t part, uint64_t begin, uint64_t end,
                  Function function) const {
    uint64_t first = 0; // Stream offset of the piece.
    for (uint64_t number = 0; number < pieces.size(); ++number) {
      const Piece &piece = pieces[number];
      Cut cut{piece.size, members};
      uint64_t row = cut.valid(part) * piece.inner, total = row * piece.outer;
      uint64_t from = std::max(begin, first), to = std::min(end, first + total);
      while (from < to) {
        uint64_t outer = (from - first) / row, at = (from - first) % row;
        uint64_t count = std::min(row - at, to - from);
        function(Run{&piece, number,
                     (outer * piece.size + cut.begin(part)) * piece.inner + at,
                     outer * cut.part() * piece.inner + at, from, count});
        from += count;
      }
      first += total;
    }
  }

  artifact::CollectiveKind kind;
  artifact::Combine combine;
  artifact::ElementType type;
  uint64_t elementBytes;
  uint32_t members;
  uint32_t ticket;
  std::vector<Piece> pieces;
  std::string name; // For messages and traces.
};

/// Combines elements in the order in which they are given, those of 16 bits in
/// f32. The only arithmetic of the runtime.
class Combiner {
public:
  /// Elements that fit are those of a block.
  Combiner(artifact::Combine combine, artifact::ElementType type,
           std::span<std::byte> block)
      : combine_(combine), type_(type), block_(block) {}

  uint64_t blockElements() const;
  void start(const std::byte *source, uint64_t count);
  void add(const std::byte *source, uint64_t count);
  void finish(std::byte *target, uint64_t count) const;

private:
  artifact::Combine combine_;
  artifact::ElementType type_;
  std::span<std::byte> block_;
};

} // namespace kiln

#endif // KILN_RUNTIME_COLLECTIVE_EXCHANGE_H
