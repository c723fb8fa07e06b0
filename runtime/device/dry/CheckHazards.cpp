// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/dry/CheckHazards.h"
#include "runtime/Mesh.h"
#include "runtime/device/dry/CommandPlace.h"

#include <algorithm>
#include <map>
#include <vector>

namespace kiln::dry {

namespace {

struct Range {
  uint64_t begin, end;
  bool isWritten;

  bool overlaps(const Range &other) const {
    return std::max(begin, other.begin) < std::min(end, other.end);
  }
};

std::string print(const Range &range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) +
         ")";
}

class Checker {
public:
  Checker(const Artifact &artifact, const artifact::Program &program,
          uint32_t device)
      : index_(artifact.index()), program_(program), device_(device) {}

  Status run() {
    for (const artifact::Phase *phase : *program_.phases()) {
      // Every ticket is waited for in the repetition that started it, and
      // places move by equal strides: the first and the last repetition
      // suffice.
      for (uint64_t repetition : {uint64_t{0}, uint64_t{phase->repeat()} - 1}) {
        for (uint32_t i = 0; i < phase->commands()->size(); ++i)
          if (Status status = check({&index_, &program_, phase, i}, repetition);
              !status.ok())
            return status;
        if (phase->repeat() == 1)
          break;
      }
    }
    return Status();
  }

private:
  struct Flight {
    CommandPlace start;
    std::vector<Range> ranges;
  };

  static Range rangeOf(const artifact::Place &place, uint64_t bytes,
                       uint64_t repetition, bool isWritten) {
    uint64_t begin = place.offset() + repetition * place.stride();
    return {begin, begin + bytes, isWritten};
  }

  /// Source and target of a piece, of which one or both are full tensors.
  void addPiece(const artifact::Piece &piece, artifact::ElementType type,
                const Axes &axes, bool isSourceFull, bool isTargetFull,
                uint64_t repetition, std::vector<Range> &ranges) const {
    uint64_t rest = piece.outer() * piece.inner() * elementBytes(type);
    uint64_t full = rest * piece.size(),
             shard = rest * Cut{piece.size(), mesh_.count(&axes)}.part();
    ranges.push_back(rangeOf(piece.source(), isSourceFull ? full : shard,
                             repetition, /*isWritten=*/false));
    ranges.push_back(rangeOf(piece.target(), isTargetFull ? full : shard,
                             repetition, /*isWritten=*/true));
  }

  Status check(const CommandPlace &place, uint64_t repetition) {
    const artifact::Command &command = place.command();
    if (const artifact::Wait *wait = command.action_as_Wait()) {
      flights_.erase(wait->ticket());
      return Status();
    }
    if (const artifact::Collective *collective =
            command.action_as_Collective()) {
      start(place, *collective, repetition);
      return Status();
    }
    touched_.clear();
    if (const artifact::Launch *launch = command.action_as_Launch()) {
      addBuffers(*launch, repetition);
    } else if (const artifact::Copy *copy = command.action_as_Copy()) {
      touched_.push_back(rangeOf(*copy->source(), copy->bytes(), repetition,
                                 /*isWritten=*/false));
      touched_.push_back(rangeOf(*copy->target(), copy->bytes(), repetition,
                                 /*isWritten=*/true));
    } else if (const artifact::Slice *slice = command.action_as_Slice()) {
      addPiece(*slice->piece(), slice->element_type(), *slice->axes(),
               /*isSourceFull=*/true, /*isTargetFull=*/false, repetition,
               touched_);
    }
    return compare(place);
  }

  /// A buffer of unknown size counts as one byte, read.
  void addBuffers(const artifact::Launch &launch, uint64_t repetition) {
    const artifact::Kernel &kernel = *index_.kernels()->Get(launch.kernel());
    for (uint32_t i = 0; i < launch.places()->size(); ++i)
      touched_.push_back(
          rangeOf(*launch.places()->Get(i),
                  kernel.buffers() ? kernel.buffers()->Get(i) : 1, repetition,
                  /*isWritten=*/kernel.buffers() && i >= kernel.reads()));
  }

  void start(const CommandPlace &place, const artifact::Collective &collective,
             uint64_t repetition) {
    Flight flight{place, {}};
    for (const artifact::Piece *piece : *collective.pieces())
      addPiece(*piece, collective.element_type(), *collective.axes(),
               collective.kind() != artifact::CollectiveKind::all_gather,
               collective.kind() != artifact::CollectiveKind::reduce_scatter,
               repetition, flight.ranges);
    flights_.insert_or_assign(collective.ticket(), std::move(flight));
  }

  Status compare(const CommandPlace &place) const {
    for (const auto &[ticket, flight] : flights_)
      for (const Range &busy : flight.ranges)
        for (const Range &range : touched_)
          if (range.overlaps(busy) && (range.isWritten || busy.isWritten))
            return place.violation(
                device_, "touches " + print(range) + " while " + print(busy) +
                             " is a " + (busy.isWritten ? "target" : "source") +
                             " of a collective in flight (ticket " +
                             std::to_string(ticket) + ", command " +
                             std::to_string(flight.start.number) + " of '" +
                             flight.start.phase->name()->str() +
                             "'), wanted a wait before");
    return Status();
  }

  const artifact::Index &index_;
  const Mesh mesh_{index_};
  const artifact::Program &program_;
  uint32_t device_;
  std::map<uint32_t, Flight> flights_; // By ticket.
  std::vector<Range> touched_;         // By the current command.
};

} // namespace

Status checkHazards(const Artifact &artifact, const artifact::Program &program,
                    uint32_t device) {
  return Checker(artifact, program, device).run();
}

} // namespace kiln::dry
