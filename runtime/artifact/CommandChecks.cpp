// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/artifact/IndexChecker.h"

#include <algorithm>
#include <tuple>

namespace kiln::artifact {

namespace {

/// The runtime keeps state for each.
constexpr uint32_t maximumTickets = uint32_t{1} << 16;

constexpr uint32_t maximumRounds = uint32_t{1} << 22;

constexpr uint64_t maximumItems = uint64_t{1} << 48;

/// The executor has a step for each stage and round of a launch.
constexpr uint64_t maximumSteps = uint64_t{1} << 22;

} // namespace

void IndexChecker::checkKernel(const Kernel &kernel) {
  if (kernel.stages()->size() == 0)
    fault("kernel '" + kernel.name()->str() + "' has no stages");
  if (kernel.target() >= index_.targets()->size())
    fault("kernel '" + kernel.name()->str() + "' is of target " +
          str(kernel.target()) + " of " + str(index_.targets()->size()));
  if (kernel.buffers() && kernel.buffers()->size() != 0 &&
      !isAligned(kernel.buffers()->Data()))
    return fault("kernel '" + kernel.name()->str() +
                 "' has no proper list of buffers");
  uint64_t bytes = checkBuffers(kernel);
  uint32_t rounds = 1;
  for (const KernelStage *stage : *kernel.stages()) {
    if (stage->rounds() == 0 || stage->rounds() > maximumRounds ||
        (rounds != 1 && stage->rounds() != 1 && stage->rounds() != rounds))
      fault("kernel '" + kernel.name()->str() + "' has " +
            str(stage->rounds()) + " rounds behind a stage of " + str(rounds));
    rounds = stage->rounds();
    // The executor multiplies items by rounds and the number of workers. An
    // item that touched no byte of its own would be work for nothing.
    if (stage->items() > std::min(maximumItems, bytes) / std::max(rounds, 1u))
      fault("kernel '" + kernel.name()->str() + "' has " + str(stage->items()) +
            " items in " + str(rounds) + " rounds, on buffers of " +
            str(bytes) + " bytes");
  }
}

uint64_t IndexChecker::checkBuffers(const Kernel &kernel) {
  std::string what = "kernel '" + kernel.name()->str() + "'";
  const auto *sizes = kernel.buffers();
  uint64_t count = sizes ? sizes->size() : 0, sum = 0;
  if (kernel.reads() > count)
    fault(what + " reads " + str(kernel.reads()) + " of its " + str(count) +
          " buffers");
  for (uint64_t i = 0; i < count; ++i)
    if (uint64_t bytes = sizes->Get(static_cast<uint32_t>(i));
        bytes > maximumArena || (sum += bytes) > maximumArena)
      return fault(what + " has buffers larger than an address space"), 0;
  return sizes ? sum : maximumItems;
}

void IndexChecker::checkProgram(const Program &program) {
  std::string prefix = "program '" + program.name()->str() + "': ";
  checkInputs(program, prefix);
  std::set<std::string> names;
  if (program.outputs())
    for (const Output *output : *program.outputs()) {
      checkName(names, output->name(), prefix + "output");
      std::string what = prefix + "output '" + output->name()->str() + "'";
      checkTensor(output->element_type(), 1, *output->shape(), output->bytes(),
                  what);
      checkAligned(output->offset(), output->element_type(), what);
      checkExtent(output->offset(), output->bytes(), what);
    }
  for (const Phase *phase : *program.phases()) {
    std::string where = prefix + "phase '" + phase->name()->str() + "'";
    uint64_t limit = limitRepetitions(program);
    if (phase->repeat() == 0 || phase->repeat() > limit) {
      fault(where + " repeats " + str(phase->repeat()) +
            " times, wanted 1 to " + str(limit));
      continue;
    }
    for (uint32_t i = 0; i < phase->commands()->size(); ++i)
      checkCommand(*phase->commands()->Get(i), phase->repeat(),
                   where + nameCommand(i, *phase->commands()->Get(i)));
  }
  checkTickets(program, prefix);
  checkSteps(program, prefix);
}

uint64_t IndexChecker::limitRepetitions(const Program &program) const {
  uint64_t samples = 0;
  for (const Image *image : *index_.images())
    for (const Program *other : *image->programs())
      if (other->inputs() && other->name()->str() == program.name()->str())
        for (const Input *input : *other->inputs())
          samples = std::max(samples, input->samples());
  return samples == 0 ? maximumBatch : std::min(samples, maximumBatch);
}

void IndexChecker::checkSteps(const Program &program,
                              const std::string &prefix) {
  if (!status_.ok())
    return;
  uint64_t steps = 0;
  for (const Phase *phase : *program.phases())
    for (const Command *command : *phase->commands())
      if (const Launch *launch = command->action_as_Launch())
        for (const KernelStage *stage :
             *index_.kernels()->Get(launch->kernel())->stages())
          steps += stage->rounds();
  if (steps > maximumSteps)
    fault(prefix + "launches " + str(steps) +
          " stages and rounds, wanted at most " + str(maximumSteps));
}

std::string IndexChecker::nameCommand(uint32_t number, const Command &command) {
  bool isLabelled = command.label() && command.label()->size() != 0;
  return " command " + str(number) +
         (isLabelled ? " (" + command.label()->str() + ")" : "");
}

void IndexChecker::checkTickets(const Program &program,
                                const std::string &prefix) {
  std::set<uint32_t> started;
  for (const Phase *phase : *program.phases())
    // A second walk shows tickets left open for the next repetition.
    for (uint32_t walk = 0; walk < std::min(phase->repeat(), 2u); ++walk)
      for (uint32_t i = 0; i < phase->commands()->size(); ++i) {
        const Command &command = *phase->commands()->Get(i);
        auto where = [&] {
          return prefix + "phase '" + phase->name()->str() + "'" +
                 nameCommand(i, command);
        };
        if (const Collective *collective = command.action_as_Collective()) {
          if (!started.insert(collective->ticket()).second)
            fault(where() + " starts ticket " + str(collective->ticket()) +
                  " again before it is waited for");
        } else if (const Wait *wait = command.action_as_Wait()) {
          if (started.erase(wait->ticket()) == 0)
            fault(where() + " waits for ticket " + str(wait->ticket()) +
                  ", which is not started");
        }
      }
  if (!started.empty())
    fault(prefix + "ticket " + str(*started.begin()) + " is never waited for");
}

void IndexChecker::checkCommand(const Command &command, uint64_t repeat,
                                const std::string &what) {
  if (command.live_bytes() > image_->live_bytes() ||
      command.live_host_bytes() > image_->host_bytes())
    fault(what + " has live bytes " + str(command.live_bytes()) + " and " +
          str(command.live_host_bytes()) + ", the greatest are " +
          str(image_->live_bytes()) + " and " + str(image_->host_bytes()));
  if (const Launch *launch = command.action_as_Launch())
    return checkLaunch(*launch, repeat, what);
  if (const Collective *collective = command.action_as_Collective())
    return checkCollective(*collective, command.bytes(), repeat, what);
  if (const Slice *slice = command.action_as_Slice())
    return checkSlice(*slice, repeat, what);
  if (command.action_as_Wait())
    return;
  if (const Copy *copy = command.action_as_Copy()) {
    checkPlace(copy->source(), copy->bytes(), repeat, what + " source");
    checkPlace(copy->target(), copy->bytes(), repeat, what + " target");
    return;
  }
  fault(what + " has an unknown action " +
        str(static_cast<uint8_t>(command.action_type())));
}

void IndexChecker::checkLaunch(const Launch &launch, uint64_t repeat,
                               const std::string &what) {
  if (launch.kernel() >= index_.kernels()->size())
    return fault(what + " launches kernel " + str(launch.kernel()) + " of " +
                 str(index_.kernels()->size()));
  const Kernel &kernel = *index_.kernels()->Get(launch.kernel());
  const auto *sizes = kernel.buffers();
  if (sizes && sizes->size() != launch.places()->size())
    return fault(what + " has " + str(launch.places()->size()) +
                 " buffers, its kernel wants " + str(sizes->size()));
  for (uint32_t i = 0; i < launch.places()->size(); ++i) {
    const Place *place = launch.places()->Get(i);
    std::string buffer = what + " buffer " + str(i);
    if (!isAligned(place))
      return fault(buffer + " has no proper place");
    checkPlace(place, sizes ? sizes->Get(i) : 0, repeat, buffer);
    bool isOnHost = place->offset() >= image_->arena_bytes();
    if (sizes && sizes->Get(i) != 0 && isOnHost != kernel.host())
      fault(buffer + " is in " + nameSpace(isOnHost) +
            " memory, its kernel works on " + nameSpace(kernel.host()) +
            " memory");
  }
}

std::string IndexChecker::nameSpace(bool isOnHost) {
  return isOnHost ? "host" : "device";
}

void IndexChecker::checkCollective(const Collective &collective, uint64_t bytes,
                                   uint64_t repeat, const std::string &what) {
  std::set<uint32_t> used;
  if (!checkAxes(collective.axes(), used, what))
    return;
  if (collective.kind() > CollectiveKind::MAX ||
      collective.combine() > Combine::MAX ||
      collective.element_type() > ElementType::MAX ||
      collective.element_type() == ElementType::i1)
    return fault(what + " is of an unknown kind");
  if (collective.ticket() >= maximumTickets)
    return fault(what + " has ticket " + str(collective.ticket()));
  uint64_t members = mesh_.count(collective.axes()), moved = 0;
  for (const Piece *piece : *collective.pieces())
    if (!checkPiece(piece, collective.element_type(), members,
                    collective.kind() != CollectiveKind::all_gather,
                    collective.kind() != CollectiveKind::reduce_scatter, repeat,
                    what))
      return;
    else
      moved += piece->outer() * piece->size() * piece->inner() *
               elementBytes(collective.element_type());
  moved *= members - 1;
  if (collective.kind() == CollectiveKind::all_reduce)
    moved *= 2;
  if (bytes != moved)
    fault(what + " is said to move " + str(bytes) + " bytes, it moves " +
          str(moved));
}

void IndexChecker::checkSlice(const Slice &slice, uint64_t repeat,
                              const std::string &what) {
  std::set<uint32_t> used;
  if (!checkAxes(slice.axes(), used, what))
    return;
  checkPiece(slice.piece(), slice.element_type(), mesh_.count(slice.axes()),
             /*isSourceWhole=*/true, /*isTargetWhole=*/false, repeat, what);
}

bool IndexChecker::checkPiece(const Piece *piece, ElementType type,
                              uint64_t members, bool isSourceWhole,
                              bool isTargetWhole, uint64_t repeat,
                              const std::string &what) {
  if (!piece || !isAligned(piece))
    return fault(what + " has no proper piece"), false;
  uint64_t wide = 0, whole = 0, part = 0, size = elementBytes(type);
  if (size == 0 || piece->size() > maximumSize ||
      __builtin_mul_overflow(piece->outer(), piece->inner(), &wide) ||
      __builtin_mul_overflow(wide, size, &wide) ||
      __builtin_mul_overflow(wide, piece->size(), &whole) ||
      __builtin_mul_overflow(wide, Cut{piece->size(), members}.part(), &part) ||
      whole > maximumArena)
    return fault(what + " has a piece larger than can be counted"), false;
  // Rows of nothing would be walked all the same.
  if (whole == 0)
    return fault(what + " has a piece without elements"), false;
  for (auto [place, isWhole, name] :
       {std::tuple(&piece->source(), isSourceWhole, " source"),
        std::tuple(&piece->target(), isTargetWhole, " target")}) {
    checkPlace(place, isWhole ? whole : part, repeat, what + name);
    checkAligned(place->offset() | place->stride(), type, what + name);
  }
  checkApart(*piece, isSourceWhole ? whole : part, isTargetWhole ? whole : part,
             isSourceWhole && isTargetWhole, repeat, what);
  return status_.ok();
}

void IndexChecker::checkApart(const Piece &piece, uint64_t sourceBytes,
                              uint64_t targetBytes, bool maybeSame,
                              uint64_t repeat, const std::string &what) {
  const Place &source = piece.source(), &target = piece.target();
  if (!status_.ok() || (maybeSame && source.offset() == target.offset() &&
                        (source.stride() == target.stride() || repeat == 1)))
    return;
  // Apart at both ends and on the same side, they do not meet in between.
  auto isBefore = [](uint64_t a, uint64_t bytes, uint64_t b) {
    return a + bytes <= b;
  };
  uint64_t sourceEnd = source.offset() + source.stride() * (repeat - 1),
           targetEnd = target.offset() + target.stride() * (repeat - 1);
  if ((isBefore(source.offset(), sourceBytes, target.offset()) &&
       isBefore(sourceEnd, sourceBytes, targetEnd)) ||
      (isBefore(target.offset(), targetBytes, source.offset()) &&
       isBefore(targetEnd, targetBytes, sourceEnd)))
    return;
  fault(what + " has a source at offset " + str(source.offset()) +
        " that overlaps its target at " + str(target.offset()));
}

} // namespace kiln::artifact
