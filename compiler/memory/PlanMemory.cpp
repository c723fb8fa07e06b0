// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gives every buffer its place in the arena. Buffers that are always live lie
// first, one after the other. The others live from the first to the last
// command that names them; those of one program share the space behind, such
// that no two that live at the same time overlap. Several orders of placing are
// tried and the smallest arena is kept; ties go to the first, so that the plan
// is always the same. The host's memory is planned likewise, behind the
// device's. For tests, buffers can lie apart with red zones between them.
#include "compiler/pipeline/Passes.h"

#include <numeric>

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_PLANMEMORY
#include "compiler/pipeline/Passes.h.inc"

namespace {

struct Lifetime {
  exec::BufferOp buffer;
  int64_t bytes = 0; // Aligned.
  int64_t first = -1, last = -1;
  int64_t offset = -1;
};

struct PlanMemoryPass : impl::PlanMemoryBase<PlanMemoryPass> {
  PlanMemoryPass(const Backends *backends, bool hasRedZones)
      : backends(backends) {
    redZones = hasRedZones;
  }

  void runOnOperation() override;

  const Backends *backends;
};

} // namespace

// In order of first use, so that the result does not depend on names.
static SmallVector<Lifetime> findLifetimes(exec::ProgramOp program,
                                           SymbolTable &symbols, bool isHost,
                                           int64_t alignment,
                                           int64_t &commands) {
  llvm::MapVector<Operation *, Lifetime> lifetimes;
  commands = 0;
  program.walk<WalkOrder::PreOrder>([&](Operation *command) {
    auto names = command->getAttrOfType<ArrayAttr>("buffers");
    if (!names)
      return;
    for (Attribute name : names) {
      auto buffer = symbols.lookup<exec::BufferOp>(
          cast<FlatSymbolRefAttr>(name).getValue());
      if (buffer.getAlwaysLive() || buffer.getHost() != isHost)
        continue;
      Lifetime &lifetime = lifetimes[buffer];
      if (!lifetime.buffer)
        lifetime = {buffer,
                    int64_t(llvm::alignTo(buffer.getBytes(), alignment)),
                    commands, commands, -1};
      lifetime.last = commands;
    }
    ++commands;
  });
  SmallVector<Lifetime> result;
  for (auto &entry : lifetimes)
    result.push_back(entry.second);
  return result;
}

// Puts each buffer, in the given order, into the tightest gap between those
// that live at the same time.
static int64_t place(SmallVector<Lifetime> &lifetimes,
                     ArrayRef<unsigned> order) {
  struct Range {
    int64_t begin, end, first, last;
  };
  int64_t peak = 0;
  std::vector<Range> placed; // By offset.
  placed.reserve(order.size());
  for (unsigned index : order) {
    Lifetime &lifetime = lifetimes[index];
    int64_t best = -1, bestGap = std::numeric_limits<int64_t>::max(), end = 0;
    for (const Range &other : placed) {
      if (other.first > lifetime.last || lifetime.first > other.last)
        continue;
      int64_t gap = other.begin - end;
      if (gap >= lifetime.bytes && gap < bestGap) {
        best = end;
        bestGap = gap;
      }
      end = std::max(end, other.end);
    }
    lifetime.offset = best >= 0 ? best : end;
    Range range{lifetime.offset, lifetime.offset + lifetime.bytes,
                lifetime.first, lifetime.last};
    peak = std::max(peak, range.end);
    placed.insert(llvm::upper_bound(placed, range.begin,
                                    [](int64_t begin, const Range &other) {
                                      return begin < other.begin;
                                    }),
                  range);
  }
  return peak;
}

namespace {
/// The command at which most bytes are live.
struct Peak {
  int64_t bytes = 0;
  SmallVector<exec::BufferOp> live; // Of those that are not always live.
};
} // namespace

// By command: the sum of the buffers that are live while it runs.
static SmallVector<int64_t> sumLiveBytes(ArrayRef<Lifetime> lifetimes,
                                         int64_t commands) {
  SmallVector<int64_t> sums(commands + 1);
  for (const Lifetime &lifetime : lifetimes) {
    sums[lifetime.first] += lifetime.bytes;
    sums[lifetime.last + 1] -= lifetime.bytes;
  }
  std::partial_sum(sums.begin(), sums.end(), sums.begin());
  sums.pop_back();
  return sums;
}

static Peak findPeak(ArrayRef<Lifetime> lifetimes,
                     ArrayRef<int64_t> liveBytes) {
  Peak peak;
  int64_t at = 0;
  for (auto [command, bytes] : llvm::enumerate(liveBytes))
    if (bytes > peak.bytes) {
      peak.bytes = bytes;
      at = command;
    }
  for (const Lifetime &lifetime : lifetimes)
    if (lifetime.first <= at && at <= lifetime.last)
      peak.live.push_back(lifetime.buffer);
  return peak;
}

// `bound` is the greatest sum of live bytes: no plan needs less.
static int64_t placeBest(SmallVector<Lifetime> &lifetimes, int64_t bound) {
  using Key = std::function<double(const Lifetime &)>;
  auto length = [](const Lifetime &l) { return double(l.last - l.first + 1); };
  const Key keys[] = {
      [](const Lifetime &l) { return double(l.bytes); },
      [&](const Lifetime &l) { return double(l.bytes) * length(l); },
      [&](const Lifetime &l) { return length(l); },
      [](const Lifetime &l) { return -double(l.first); },
      [](const Lifetime &l) { return double(l.last); },
  };
  SmallVector<Lifetime> best;
  int64_t bestPeak = std::numeric_limits<int64_t>::max();
  for (const Key &key : keys) {
    SmallVector<unsigned> order =
        llvm::to_vector(llvm::seq<unsigned>(0, lifetimes.size()));
    llvm::sort(order, [&](unsigned a, unsigned b) {
      double left = key(lifetimes[a]), right = key(lifetimes[b]);
      return left != right ? left > right : a < b;
    });
    SmallVector<Lifetime> attempt = lifetimes;
    int64_t peak = place(attempt, order);
    if (peak < bestPeak) {
      bestPeak = peak;
      best = attempt;
    }
    if (bestPeak == bound)
      break;
  }
  lifetimes = best;
  return lifetimes.empty() ? 0 : bestPeak;
}

namespace {
/// The plan of one memory space.
struct MemoryPlan {
  int64_t bytes = 0;
  Peak peak; // Of all programs, with buffers that are always live.
};
} // namespace

// One number for each command of the program. None if there is no such memory.
static void setLiveBytes(exec::ProgramOp program, bool isHost,
                         ArrayRef<int64_t> bytes) {
  if (llvm::any_of(bytes, [](int64_t live) { return live != 0; }))
    program->setAttr(isHost ? "exec.live_host_bytes" : "exec.live_bytes",
                     Builder(program).getDenseI64ArrayAttr(bytes));
}

// Offsets from `begin` on, at multiples of `alignment`.
static MemoryPlan planMemory(ModuleOp module, bool isHost, int64_t alignment,
                             int64_t begin) {
  SymbolTable symbols(module);
  int64_t base = begin;
  for (auto buffer : module.getOps<exec::BufferOp>())
    if (buffer.getAlwaysLive() && buffer.getHost() == isHost) {
      buffer.setOffset(base);
      base += llvm::alignTo(buffer.getBytes(), alignment);
    }
  MemoryPlan plan{base - begin, {base - begin, {}}};
  for (auto program : module.getOps<exec::ProgramOp>()) {
    int64_t commands = 0;
    SmallVector<Lifetime> lifetimes =
        findLifetimes(program, symbols, isHost, alignment, commands);
    SmallVector<int64_t> liveBytes = sumLiveBytes(lifetimes, commands);
    Peak peak = findPeak(lifetimes, liveBytes);
    plan.bytes =
        std::max(plan.bytes, base - begin + placeBest(lifetimes, peak.bytes));
    peak.bytes += base - begin;
    for (int64_t &bytes : liveBytes)
      bytes += base - begin;
    setLiveBytes(program, isHost, liveBytes);
    if (peak.bytes > plan.peak.bytes)
      plan.peak = peak;
    for (Lifetime &lifetime : lifetimes)
      lifetime.buffer.setOffset(base + lifetime.offset);
  }
  return plan;
}

// Every buffer for itself, with a red zone before and behind it, which begins
// at its last byte: padding belongs to nobody.
static MemoryPlan planRedZones(ModuleOp module, bool isHost, int64_t alignment,
                               int64_t begin, SmallVectorImpl<int64_t> &zones) {
  constexpr int64_t kZone = 1024;
  int64_t end = begin, next = begin;
  auto addZone = [&] {
    next = llvm::alignTo(end, alignment) + kZone;
    zones.append({end, next - end});
  };
  for (auto buffer : module.getOps<exec::BufferOp>()) {
    if (buffer.getHost() != isHost)
      continue;
    if (end == begin)
      addZone();
    buffer.setOffset(next);
    end = next + buffer.getBytes();
    addZone();
  }
  return {next - begin, {next - begin, {}}};
}

void PlanMemoryPass::runOnOperation() {
  ModuleOp module = getOperation();
  const Backends &asked = backends ? *backends : getDefaultBackends();
  auto getAlignment = [&](exec::MemorySpace space) {
    return asked.get(space).getBufferAlignment();
  };
  SmallVector<int64_t> zones;
  auto plan = [&](exec::MemorySpace space, int64_t begin) {
    bool isHost = space == exec::MemorySpace::host;
    return redZones
               ? planRedZones(module, isHost, getAlignment(space), begin, zones)
               : planMemory(module, isHost, getAlignment(space), begin);
  };
  auto set = [&](StringRef name, int64_t bytes) {
    module->setAttr(name, Builder(module).getI64IntegerAttr(bytes));
  };
  MemoryPlan device = plan(exec::MemorySpace::device, 0);
  // The host's buffers lie behind the device's.
  device.bytes =
      llvm::alignTo(device.bytes, getAlignment(exec::MemorySpace::host));
  set("exec.arena_bytes", device.bytes);
  set("exec.live_bytes", device.peak.bytes);
  SmallVector<Attribute> peak;
  for (exec::BufferOp buffer : device.peak.live)
    peak.push_back(FlatSymbolRefAttr::get(buffer));
  module->setAttr("exec.peak", ArrayAttr::get(&getContext(), peak));
  MemoryPlan host = plan(exec::MemorySpace::host, device.bytes);
  if (host.bytes)
    set("exec.host_bytes", host.bytes);
  if (!zones.empty())
    module->setAttr("exec.red_zones",
                    Builder(module).getDenseI64ArrayAttr(zones));
}

std::unique_ptr<Pass> createPlanMemory(const Backends *backends,
                                       bool hasRedZones) {
  return std::make_unique<PlanMemoryPass>(backends, hasRedZones);
}

} // namespace kiln
