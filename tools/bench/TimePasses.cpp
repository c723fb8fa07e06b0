// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs every pass of a config except code generation, several times, and
// prints the fastest run as JSON: seconds and processor seconds of all passes
// with their verifiers, and seconds of each pass.
#include "compiler/Compile.h"
#include "compiler/frontend/ImportModel.h"
#include "compiler/pipeline/Pipeline.h"

#include "mlir/Pass/PassInstrumentation.h"
#include "llvm/ADT/MapVector.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>

using namespace mlir;

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Times {
  double seconds = 0, processorSeconds = 0;
  /// By flag of kiln-opt; a pass that runs twice has the sum.
  llvm::MapVector<llvm::StringRef, double> passes;
};

/// The pass that runs the passes of images has no flag: it is left out, so that
/// no pass is counted twice.
struct PassTimer : PassInstrumentation {
  explicit PassTimer(Times &times) : times(times) {}
  void runBeforePass(Pass *, Operation *) override {
    starts.push_back(Clock::now());
  }
  void runAfterPass(Pass *pass, Operation *) override {
    double seconds = secondsSince(starts.pop_back_val());
    if (!pass->getArgument().empty())
      times.passes[pass->getArgument()] += seconds;
  }

  Times &times;
  llvm::SmallVector<Clock::time_point> starts;
};

/// Nothing if a pass fails, which is then on stderr. On one thread: images
/// timed in parallel would disturb each other.
std::optional<Times> timePasses(const kiln::Config &config) {
  kiln::CompileContext context;
  context.mlir.disableMultithreading();
  OwningOpRef<ModuleOp> module = kiln::importModel(config, context.mlir);
  if (!module)
    return std::nullopt;
  Times times;
  PassManager manager(&context.mlir);
  manager.enableVerifier(false); // As in Compile.cpp.
  kiln::buildPlanPipeline(manager, config, kiln::resolvePlan(config),
                          kiln::getDefaultBackends());
  manager.addInstrumentation(std::make_unique<PassTimer>(times));
  std::clock_t processor = std::clock();
  auto start = Clock::now();
  if (failed(manager.run(*module)))
    return std::nullopt;
  times.seconds = secondsSince(start);
  times.processorSeconds = double(std::clock() - processor) / CLOCKS_PER_SEC;
  return times;
}

} // namespace

int main(int argc, char **argv) {
  int runs = argc > 2 ? std::atoi(argv[2]) : 0;
  if (runs < 1) {
    fputs("usage: kiln-time-passes CONFIG RUNS [KEY=VALUE...]\n", stderr);
    return 2;
  }
  kiln::Diagnostics diagnostics;
  std::vector<std::string> overrides(argv + 3, argv + argc);
  auto config = kiln::loadConfig(argv[1], overrides, diagnostics);
  if (!config) {
    fputs(diagnostics.text().c_str(), stderr);
    return 2;
  }
  std::optional<Times> best;
  for (int run = 0; run < runs; ++run) {
    std::optional<Times> times = timePasses(*config);
    if (!times)
      return 1;
    if (!best || times->seconds < best->seconds)
      best = times;
  }
  printf("{\"seconds\": %.6f, \"processor_seconds\": %.6f, \"passes\": {",
         best->seconds, best->processorSeconds);
  const char *separator = "";
  for (const auto &[name, seconds] : best->passes) {
    printf("%s\"%s\": %.6f", separator, name.str().c_str(), seconds);
    separator = ", ";
  }
  printf("}}\n");
}
