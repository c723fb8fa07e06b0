// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Times attention on two workers. Reads a line, runs a round and prints the
// best milliseconds, so that a script can alternate rounds with a competitor.
#include "AttentionKernel.h"
#include "test/compiler/backend/cpu/WorkerPair.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace kiln::cpu::test;

namespace {

float *makeBuffer(size_t elements) {
  auto *data = static_cast<float *>(
      std::aligned_alloc(64, (elements * 4 + 127) / 64 * 64));
  for (size_t index = 0; index < elements; ++index)
    data[index] = std::sin(0.37f * static_cast<float>(index % 10007));
  return data;
}

double milliseconds(WorkerPair &pair, const kiln::cpu::LoadedKernel &kernel,
                    std::vector<void *> buffers, int repeats) {
  auto start = std::chrono::steady_clock::now();
  for (int repeat = 0; repeat < repeats; ++repeat)
    pair.run(kernel.code().stages.size(), kernel, buffers.data());
  std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  return elapsed.count() / repeats;
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: %s batch sequence heads width causal\n",
                 argv[0]);
    return 1;
  }
  ShapeOptions shape = {std::atol(argv[1]),
                        std::atol(argv[2]),
                        std::atol(argv[3]),
                        std::atol(argv[4]),
                        std::atol(argv[5]) != 0,
                        1 / std::sqrt(std::atof(argv[4])),
                        false};
  kiln::cpu::LoadedKernel forward = loadAttention(shape, false),
                          backward = loadAttention(shape, true);
  std::printf("compile ms %.0f %.0f\n", 1e3 * forward.compileSeconds(),
              1e3 * backward.compileSeconds());
  std::fflush(stdout);
  size_t elements =
      shape.batch * shape.sequence * shape.heads * shape.headWidth;
  float *qkv = makeBuffer(3 * elements), *out = makeBuffer(elements);
  float *logSumExp = makeBuffer(shape.batch * shape.heads * shape.sequence);
  float *outGradient = makeBuffer(elements);
  float *gradient = makeBuffer(3 * elements);
  char line[16];
  while (std::fgets(line, sizeof(line), stdin)) {
    WorkerPair pair;
    double bestForward = 1e9, bestBackward = 1e9;
    for (int round = 0; round < 10; ++round) {
      bestForward = std::min(
          bestForward,
          milliseconds(
              pair, forward,
              {qkv, out, logSumExp, forward.scratch(WorkerPair::kWorkers)}, 5));
      bestBackward =
          std::min(bestBackward,
                   milliseconds(pair, backward,
                                {qkv, out, logSumExp, outGradient, gradient,
                                 backward.scratch(WorkerPair::kWorkers)},
                                5));
    }
    std::printf("%.4f %.4f\n", bestForward, bestBackward);
    std::fflush(stdout);
  }
}
