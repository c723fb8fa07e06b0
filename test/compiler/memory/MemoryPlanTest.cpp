// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Computes the live buffers again, at every command of the schedule as the
// runtime runs it, and checks the memory plan. The arena is at most 1.05 times
// the greatest sum of their bytes, no two of them overlap, and the runtime
// reserves exactly what was predicted.
#include "compiler/frontend/ImportModel.h"
#include "dialects/exec/Exec.h"
#include "dialects/kiln/Kiln.h"
#include "test/compiler/CompiledModule.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

using namespace mlir;

namespace kiln::test {
namespace {

/// A command of a program with its phases unrolled.
struct Access {
  std::vector<unsigned> reads, writes; // Indices of buffers.
};

/// Commands from `first`, which fills the buffer, to `last`, which reads it.
struct Span {
  unsigned buffer;
  size_t first, last;

  bool meets(const Span &other) const {
    return first <= other.last && other.first <= last;
  }
};

class PlannedMemory {
public:
  explicit PlannedMemory(ModuleOp module, int64_t rounding)
      : module(module), rounding(rounding) {
    for (auto buffer : module.getOps<exec::BufferOp>()) {
      numbers[buffer.getSymName()] = buffers.size();
      buffers.push_back(buffer);
    }
  }

  void check();
  int64_t getGreatest() const { return greatest; }

private:
  void checkProgram(exec::ProgramOp program);
  std::vector<Access> unroll(exec::ProgramOp program);
  Access describe(Operation *command);
  std::vector<Span> findSpans(const std::vector<Access> &schedule);
  void checkOverlaps(const std::vector<Span> &spans);
  void addUp(const std::vector<Span> &spans, size_t commands);
  void checkPlaces(exec::LaunchOp launch, int64_t repeat);

  int64_t bytesOf(unsigned buffer) {
    return llvm::alignTo(buffers[buffer].getBytes(), rounding);
  }
  /// Whether it keeps its value from step to step, or belongs to the caller.
  bool outlivesStep(unsigned buffer) {
    switch (buffers[buffer].getKind()) {
    case exec::BufferKind::variable:
    case exec::BufferKind::input:
    case exec::BufferKind::staging:
    case exec::BufferKind::output:
      return true;
    default:
      return false;
    }
  }

  ModuleOp module;
  int64_t rounding;
  std::vector<exec::BufferOp> buffers;
  llvm::StringMap<unsigned> numbers;
  int64_t greatest = 0;
};

Access PlannedMemory::describe(Operation *command) {
  Access access;
  auto names = command->getAttrOfType<ArrayAttr>("buffers");
  // Of a launch the first buffers are read, the rest written; a copy has its
  // source first; a clear has only a target.
  size_t reads = isa<exec::CopyOp>(command) ? 1 : 0;
  if (auto launch = dyn_cast<exec::LaunchOp>(command))
    reads = launch.getReads();
  for (auto [index, name] : llvm::enumerate(names)) {
    unsigned buffer = numbers.lookup(cast<FlatSymbolRefAttr>(name).getValue());
    (index < reads ? access.reads : access.writes).push_back(buffer);
  }
  return access;
}

// A phase that repeats is the same every time, so two rounds show all that one
// can leave to the next.
std::vector<Access> PlannedMemory::unroll(exec::ProgramOp program) {
  std::vector<Access> schedule;
  for (auto phase : program.getBody().front().getOps<exec::PhaseOp>())
    for (unsigned round = 0; round < std::min<uint64_t>(phase.getRepeat(), 2);
         ++round)
      for (Operation &command : phase.getBody().front()) {
        schedule.push_back(describe(&command));
        if (auto launch = dyn_cast<exec::LaunchOp>(command))
          checkPlaces(launch, phase.getRepeat());
      }
  return schedule;
}

// A span ends with the last read before the buffer is filled again. A command
// that reads and writes a buffer goes on with it.
std::vector<Span>
PlannedMemory::findSpans(const std::vector<Access> &schedule) {
  std::vector<Span> spans;
  std::vector<std::optional<size_t>> open(buffers.size());
  for (unsigned buffer = 0; buffer < buffers.size(); ++buffer)
    if (outlivesStep(buffer))
      spans.push_back({buffer, 0, schedule.size()});
  for (size_t time = 0; time < schedule.size(); ++time) {
    const Access &access = schedule[time];
    for (unsigned buffer : access.reads) {
      if (outlivesStep(buffer))
        continue;
      EXPECT_TRUE(open[buffer].has_value())
          << buffers[buffer].getSymName().str() << " is read by command "
          << time << " before it is written";
      if (open[buffer])
        spans[*open[buffer]].last = time;
    }
    for (unsigned buffer : access.writes) {
      if (outlivesStep(buffer) || llvm::is_contained(access.reads, buffer))
        continue;
      open[buffer] = spans.size();
      spans.push_back({buffer, time, time});
    }
  }
  return spans;
}

void PlannedMemory::addUp(const std::vector<Span> &spans, size_t commands) {
  std::vector<int64_t> live(commands + 1);
  for (const Span &span : spans)
    for (size_t time = span.first; time <= span.last; ++time)
      live[time] += bytesOf(span.buffer);
  greatest = std::max(greatest, *llvm::max_element(live));
}

void PlannedMemory::checkOverlaps(const std::vector<Span> &spans) {
  for (size_t i = 0; i < spans.size(); ++i)
    for (size_t j = i + 1; j < spans.size(); ++j) {
      exec::BufferOp a = buffers[spans[i].buffer], b = buffers[spans[j].buffer];
      if (a == b || !spans[i].meets(spans[j]))
        continue;
      int64_t aBegin = *a.getOffset(), bBegin = *b.getOffset();
      int64_t aEnd = aBegin + a.getBytes(), bEnd = bBegin + b.getBytes();
      EXPECT_TRUE(aEnd <= bBegin || bEnd <= aBegin)
          << a.getSymName().str() << " and " << b.getSymName().str()
          << " are live at once and overlap";
    }
}

// Accesses of a kernel are inside its buffers in every repetition.
void PlannedMemory::checkPlaces(exec::LaunchOp launch, int64_t repeat) {
  auto kernel = SymbolTable::lookupNearestSymbolFrom<exec::KernelOp>(
      launch, launch.getKernelAttr());
  ASSERT_TRUE(kernel);
  Block &body = kernel.getBody().front();
  SmallVector<Type> types(body.getArgumentTypes());
  llvm::append_range(types, body.getTerminator()->getOperandTypes());
  ASSERT_LE(types.size(), launch.getBuffers().size());
  for (auto [index, type] : llvm::enumerate(types)) {
    auto name = cast<FlatSymbolRefAttr>(launch.getBuffers()[index]);
    exec::BufferOp buffer = buffers[numbers.lookup(name.getValue())];
    int64_t end = launch.getOffsets()[index] +
                  launch.getStrides()[index] * (repeat - 1) + getByteSize(type);
    EXPECT_LE(end, int64_t(buffer.getBytes())) << name.getValue().str();
  }
}

void PlannedMemory::checkProgram(exec::ProgramOp program) {
  std::vector<Access> schedule = unroll(program);
  std::vector<Span> spans = findSpans(schedule);
  addUp(spans, schedule.size());
  checkOverlaps(spans);
}

void PlannedMemory::check() {
  int64_t arena =
      module->getAttrOfType<IntegerAttr>("exec.arena_bytes").getInt();
  for (exec::BufferOp buffer : buffers) {
    ASSERT_TRUE(buffer.getOffset().has_value()) << buffer.getSymName().str();
    EXPECT_EQ(*buffer.getOffset() % 64, 0u);
    EXPECT_LE(int64_t(*buffer.getOffset() + buffer.getBytes()), arena);
  }
  for (auto program : module.getOps<exec::ProgramOp>())
    checkProgram(program);
  EXPECT_GE(arena, greatest);
  EXPECT_LE(double(arena), 1.05 * double(greatest));
  std::printf("arena %lld bytes, live %lld: %.4f\n", (long long)arena,
              (long long)greatest, double(arena) / double(greatest));
}

/// Compiles the config's model, checks the plan and, unless it is large, that
/// the runtime reserves what was predicted.
void checkConfig(const Config &config, int64_t rounding) {
  CompileContext context;
  OwningOpRef<ModuleOp> module = importModel(config, context.mlir);
  ASSERT_TRUE(module);
  TemporaryFolder folder;
  std::string file = folder.file("model.kiln");
  Status status = compileModule(*module, config, {}, file);
  ASSERT_TRUE(status.ok()) << status.message();
  ModuleOp image = getImages(*module).front();
  PlannedMemory(image, rounding).check();
  Expected<Session> session = Session::load(file);
  ASSERT_TRUE(session.ok()) << session.status().message();
  uint64_t predicted = session->artifact().image().arena_bytes();
  EXPECT_EQ(int64_t(predicted),
            image->getAttrOfType<IntegerAttr>("exec.arena_bytes").getInt());
  constexpr uint64_t kLarge = uint64_t(1) << 30;
  if (predicted > kLarge)
    return;
  ASSERT_TRUE(session->reserve().ok());
  EXPECT_EQ(session->reservedBytes(), predicted);
}

/// All configs; the short run leaves out those that differ from another only in
/// size.
std::vector<std::string> configNames() {
  constexpr StringRef kAlike[] = {"bert-large", "gpt-345m", "gpt-2.5b",
                                  "gpt-5.8b",   "resnet50", "resnet101"};
  std::vector<std::string> names;
  for (auto &entry : std::filesystem::directory_iterator(
           std::string(KILN_SOURCE_FOLDER) + "/models/configs"))
    if (std::string name = entry.path().stem();
        std::getenv("KILN_ALL_CONFIGS") || !llvm::is_contained(kAlike, name))
      names.push_back(name);
  llvm::sort(names);
  return names;
}

class MemoryPlan : public testing::TestWithParam<std::string> {};

TEST_P(MemoryPlan, IsTightAndWithoutOverlap) {
  Diagnostics diagnostics;
  auto config = loadConfig(std::string(KILN_SOURCE_FOLDER) +
                               "/models/configs/" + GetParam() + ".yaml",
                           {}, diagnostics);
  ASSERT_TRUE(config) << diagnostics.text();
  checkConfig(*config, /*rounding=*/1);
}

INSTANTIATE_TEST_SUITE_P(Configs, MemoryPlan, testing::ValuesIn(configNames()),
                         [](const testing::TestParamInfo<std::string> &info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return !llvm::isAlnum(c); }, '_');
                           return name;
                         });

// Small shapes with accumulation. Here buffers of a few bytes count as the 64
// that alignment gives them: rounding is not what is tested.
class SmallMemoryPlan : public testing::TestWithParam<int> {};

TEST_P(SmallMemoryPlan, IsTightAndWithoutOverlap) {
  std::string micro = "training.micro_batch=" + std::to_string(GetParam());
  checkConfig(configFromText(R"(
model: {kind: gpt, layers: 3, hidden: 24, heads: 3, sequence: 10, vocabulary: 50}
training: {global_batch: 8, steps: 1, clip_norm: 1}
data: {kind: none}
)",
                             {micro}),
              64);
  checkConfig(configFromText(R"(
model: {kind: mlp, inputs: 30, hidden: [20, 10], classes: 5}
training: {global_batch: 8, steps: 1}
data: {kind: none}
)",
                             {micro}),
              64);
}

INSTANTIATE_TEST_SUITE_P(MicroBatches, SmallMemoryPlan,
                         testing::Values(1, 3, 4, 8));

} // namespace
} // namespace kiln::test
