// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/dry/CheckCollectives.h"
#include "runtime/Mesh.h"
#include "runtime/device/dry/CommandPlace.h"

#include <map>
#include <unordered_map>

namespace kiln::dry {

using artifact::CollectiveKind;

namespace {

/// Sizes as members compare them: to an all_reduce all elements are alike.
std::vector<uint64_t> sizesOf(const artifact::Collective &collective) {
  std::vector<uint64_t> sizes;
  for (const artifact::Piece *piece : *collective.pieces())
    if (collective.kind() == CollectiveKind::all_reduce)
      sizes.push_back(piece->outer() * piece->size() * piece->inner());
    else
      for (uint64_t size : {piece->outer(), piece->size(), piece->inner()})
        sizes.push_back(size);
  return sizes;
}

std::string describe(const artifact::Collective &collective,
                     const artifact::Index &index) {
  std::string text =
      std::string(artifact::EnumNameCollectiveKind(collective.kind())) + " (" +
      artifact::EnumNameCombine(collective.combine()) + ") of " +
      artifact::EnumNameElementType(collective.element_type()) + " over";
  for (uint32_t axis : *collective.axes())
    text += " " + index.mesh()->Get(axis)->name()->str();
  text += " with sizes";
  for (uint64_t size : sizesOf(collective))
    text += " " + std::to_string(size);
  return text;
}

bool isLike(const artifact::Collective &a, const artifact::Collective &b) {
  return a.kind() == b.kind() && a.combine() == b.combine() &&
         a.element_type() == b.element_type() &&
         std::equal(a.axes()->begin(), a.axes()->end(), b.axes()->begin(),
                    b.axes()->end()) &&
         sizesOf(a) == sizesOf(b);
}

/// A collective in the program of an image.
struct Start {
  CommandPlace place;
  const artifact::Collective *collective;
  uint32_t axes; // Equal for equal sets of axes.
};

struct PhaseStarts {
  uint32_t repeat;
  std::vector<Start> starts;
};

/// The next collective of a device.
struct Cursor {
  size_t phase = 0, start = 0;
  uint32_t repetition = 0;
};

class Simulation {
public:
  Simulation(const Artifact &artifact, uint32_t program) : artifact_(artifact) {
    for (const artifact::Image *image : *artifact.index().images())
      images_.push_back(collect(*image->programs()->Get(program)));
    limitRepetitions();
    for (uint32_t device = 0; device < mesh_.devices(); ++device)
      settle(device);
  }

  Status run() {
    std::vector<uint32_t> ready;
    for (uint32_t device = mesh_.devices(); device-- > 0;)
      ready.push_back(device);
    while (!ready.empty()) {
      uint32_t device = ready.back();
      ready.pop_back();
      const Start *start = next(device);
      if (!start)
        continue;
      Meeting &meeting = meetings_[keyOf(device, *start)];
      if (meeting.arrived == 0)
        meeting.first = device;
      else if (Status status = compare(device, meeting.first); !status.ok())
        return status;
      const Axes *axes = start->collective->axes();
      if (++meeting.arrived != mesh_.count(axes))
        continue;
      meeting.arrived = 0;
      for (uint32_t member : mesh_.members(device, axes)) {
        advance(member);
        ready.push_back(member);
      }
    }
    return findBlocked();
  }

private:
  /// The members of a group that have reached its next collective.
  struct Meeting {
    uint32_t arrived = 0, first = 0;
  };

  std::vector<PhaseStarts> collect(const artifact::Program &program) {
    std::vector<PhaseStarts> phases;
    for (const artifact::Phase *phase : *program.phases()) {
      phases.push_back({phase->repeat(), {}});
      for (uint32_t i = 0; i < phase->commands()->size(); ++i)
        if (const auto *collective =
                phase->commands()->Get(i)->action_as_Collective()) {
          std::vector<uint32_t> axes(collective->axes()->begin(),
                                     collective->axes()->end());
          std::sort(axes.begin(), axes.end());
          auto number = static_cast<uint32_t>(
              axes_.try_emplace(axes, axes_.size()).first->second);
          phases.back().starts.push_back(
              {{&artifact_.index(), &program, phase, i}, collective, number});
        }
    }
    return phases;
  }

  /// If all images have the same repeat counts, two repetitions suffice: the
  /// second shows the state left by the first, and later ones equal it.
  void limitRepetitions() {
    for (size_t phase = 0; phase < images_[0].size(); ++phase)
      for (const std::vector<PhaseStarts> &image : images_)
        if (image.size() != images_[0].size() ||
            image[phase].repeat != images_[0][phase].repeat)
          return;
    for (std::vector<PhaseStarts> &image : images_)
      for (PhaseStarts &phase : image)
        phase.repeat = std::min(phase.repeat, 2u);
  }

  const std::vector<PhaseStarts> &phasesOf(uint32_t device) const {
    return images_[artifact_.index().devices()->Get(device)->image()];
  }

  /// Null at the program's end.
  const Start *next(uint32_t device) const {
    const Cursor &cursor = cursors_[device];
    const std::vector<PhaseStarts> &phases = phasesOf(device);
    return cursor.phase == phases.size()
               ? nullptr
               : &phases[cursor.phase].starts[cursor.start];
  }

  void advance(uint32_t device) {
    ++cursors_[device].start;
    settle(device);
  }

  /// Moves a cursor at the end of a phase to the next collective.
  void settle(uint32_t device) {
    Cursor &cursor = cursors_[device];
    const std::vector<PhaseStarts> &phases = phasesOf(device);
    while (cursor.phase < phases.size() &&
           cursor.start == phases[cursor.phase].starts.size()) {
      bool isOver = cursor.start == 0 ||
                    ++cursor.repetition == phases[cursor.phase].repeat;
      cursor = {cursor.phase + isOver, 0, isOver ? 0 : cursor.repetition};
    }
  }

  /// Key of the group in which a device runs a collective.
  uint64_t keyOf(uint32_t device, const Start &start) const {
    const Axes *axes = start.collective->axes();
    uint32_t first = device - mesh_.firstDevice(mesh_.part(device, axes), axes);
    return uint64_t{start.axes} * mesh_.devices() + first;
  }

  Status compare(uint32_t device, uint32_t other) const {
    const Start &mine = *next(device), &theirs = *next(other);
    if (&mine == &theirs || isLike(*mine.collective, *theirs.collective))
      return Status();
    return mine.place.violation(
        device, "found " + describe(*mine.collective, artifact_.index()) +
                    ", wanted " +
                    describe(*theirs.collective, artifact_.index()) +
                    " as in " + theirs.place.describe(other));
  }

  Status findBlocked() const {
    for (uint32_t device = 0; device < mesh_.devices(); ++device) {
      const Start *start = next(device);
      if (!start)
        continue;
      for (uint32_t member : mesh_.members(device, start->collective->axes())) {
        const Start *other = next(member);
        if (other && keyOf(member, *other) == keyOf(device, *start))
          continue;
        return start->place.violation(
            device,
            "found " + describe(*start->collective, artifact_.index()) +
                ", which waits for ever for device " + std::to_string(member) +
                ": wanted the same there, found " +
                (other ? describe(*other->collective, artifact_.index()) +
                             " in " + other->place.describe(member)
                       : "the program's end"));
      }
    }
    return Status();
  }

  const Artifact &artifact_;
  const Mesh mesh_{artifact_.index()};
  std::map<std::vector<uint32_t>, size_t> axes_;
  std::vector<std::vector<PhaseStarts>> images_;
  std::vector<Cursor> cursors_ = std::vector<Cursor>(mesh_.devices());
  std::unordered_map<uint64_t, Meeting> meetings_; // By group.
};

} // namespace

Status checkCollectives(const Artifact &artifact, uint32_t program) {
  if (artifact.index().images()->size() == 1)
    return Status(); // All devices run the same list.
  return Simulation(artifact, program).run();
}

std::vector<uint64_t> countReceived(const artifact::Collective &collective,
                                    uint32_t members) {
  std::vector<uint64_t> received(members);
  uint64_t size = elementBytes(collective.element_type());
  for (const artifact::Piece *piece : *collective.pieces()) {
    uint64_t length = piece->size(), rest = piece->outer() * piece->inner();
    if (collective.kind() == CollectiveKind::all_reduce) {
      length *= rest;
      rest = 1;
    }
    for (uint32_t member = 0; member < members; ++member) {
      uint64_t own = Cut{length, members}.valid(member) * rest,
               all = length * rest;
      if (collective.kind() != CollectiveKind::all_gather)
        received[member] += (members - 1) * own * size;
      if (collective.kind() != CollectiveKind::reduce_scatter)
        received[member] += (all - own) * size;
    }
  }
  return received;
}

} // namespace kiln::dry
