// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Times the kernels of a residual network on two workers. Reads a line, runs a
// round over all shapes and prints the best milliseconds of forward and both
// gradients, one shape a line, so that a script can alternate rounds with a
// competitor. Arguments: batch, size of the first image, its channels, depth
// (18 or 50).
#include "compiler/backend/cpu/convolution/EmitConvolution.h"
#include "test/compiler/backend/cpu/KernelRunner.h"
#include "test/compiler/backend/cpu/WorkerPair.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace kiln;
using namespace kiln::cpu;
using kiln::cpu::test::WorkerPair;
using namespace mlir;

namespace {

struct Layer {
  int64_t size, inputs, outputs, window, stride, padding;
  bool isPool = false;

  Windows windows() const {
    WindowAxis axis = {size, (size + 2 * padding - window) / stride + 1, window,
                       stride, padding};
    return {axis, axis};
  }
};

std::vector<Layer> residualNetwork(int64_t size, int64_t channels, int depth) {
  std::vector<Layer> layers = {{size, channels, 64, 7, 2, 3}};
  size = layers.back().windows().rows.count;
  layers.push_back({size, 64, 64, 3, 2, 1, true});
  size = layers.back().windows().rows.count;
  int64_t from = 64;
  for (int64_t width : {64, 128, 256, 512}) {
    int64_t stride = width == 64 ? 1 : 2;
    int64_t to = depth == 18 ? width : 4 * width;
    int64_t small = (size - 1) / stride + 1;
    if (depth == 18) {
      layers.push_back({size, from, width, 3, stride, 1});
      if (stride != 1)
        layers.push_back({small, width, width, 3, 1, 1});
    } else {
      layers.push_back({size, from, width, 1, 1, 0});
      layers.push_back({size, width, width, 3, stride, 1});
      layers.push_back({small, width, to, 1, 1, 0});
      layers.push_back({small, to, width, 1, 1, 0});
    }
    if (from != to)
      layers.push_back({size, from, to, 1, stride, 0});
    from = to;
    size = small;
  }
  return layers;
}

float *makeBuffer(size_t count) {
  auto *data =
      static_cast<float *>(std::aligned_alloc(64, (count * 4 + 127) / 64 * 64));
  for (size_t index = 0; index < count; ++index)
    data[index] = float((index * 2654435761u) >> 8 & 0xffff) / 65536 - 0.5f;
  return data;
}

/// The kernels of a layer and its buffers.
struct Bench {
  Layer layer;
  std::vector<std::unique_ptr<LoadedKernel>> kernels;
  std::vector<std::vector<void *>> buffers;
};

Bench prepare(const Layer &layer, int64_t batch) {
  Bench bench{layer, {}, {}};
  Windows windows = layer.windows();
  int64_t image = batch * layer.size * layer.size * layer.inputs;
  int64_t result =
      batch * windows.rows.count * windows.columns.count * layer.outputs;
  int64_t filter = layer.outputs * layer.inputs * layer.window * layer.window;
  float *x = makeBuffer(image), *y = makeBuffer(result),
        *g = makeBuffer(result), *dx = makeBuffer(image),
        *w = makeBuffer(filter), *dw = makeBuffer(filter);
  auto add = [&](auto emitter, std::vector<void *> buffers) {
    bench.kernels.push_back(std::make_unique<LoadedKernel>(
        CpuTarget::host(), [&](ModuleOp module, const CpuTarget &target) {
          Type type = Builder(module.getContext()).getF32Type();
          return emitter(module, type, target);
        }));
    buffers.push_back(bench.kernels.back()->scratch(WorkerPair::kWorkers));
    bench.buffers.push_back(buffers);
  };
  if (layer.isPool) {
    auto shape = [&](Type type) -> PoolShape {
      return {batch, windows, layer.inputs, {type, type}};
    };
    add(
        [&](ModuleOp m, Type t, const CpuTarget &target) {
          return emitMaxPool(m, "kernel", shape(t), target);
        },
        {x, y});
    add(
        [&](ModuleOp m, Type t, const CpuTarget &target) {
          return emitMaxPoolGradient(m, "kernel", shape(t), target);
        },
        {x, y, g, dx});
    return bench;
  }
  auto shape = [&](Type type) -> ConvolutionShape {
    return {batch, windows, layer.inputs, layer.outputs, {type, type}};
  };
  add(
      [&](ModuleOp m, Type t, const CpuTarget &target) {
        return emitConvolution(m, "kernel", shape(t), target);
      },
      {x, w, y});
  add(
      [&](ModuleOp m, Type t, const CpuTarget &target) {
        return emitConvolutionGradInput(m, "kernel", shape(t), target);
      },
      {g, w, dx});
  add(
      [&](ModuleOp m, Type t, const CpuTarget &target) {
        return emitConvolutionGradWeight(m, "kernel", shape(t), target);
      },
      {x, g, dw});
  return bench;
}

double bestMilliseconds(WorkerPair &pair, const LoadedKernel &kernel,
                        void *const *buffers) {
  double best = 1e9;
  for (int round = 0; round < 7; ++round) {
    auto start = std::chrono::steady_clock::now();
    pair.run(kernel.code().stages.size(), kernel, buffers);
    std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  return best;
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s batch size channels depth\n", argv[0]);
    return 2;
  }
  int64_t batch = std::atol(argv[1]);
  std::vector<Bench> benches;
  double compile = 0;
  for (const Layer &layer : residualNetwork(
           std::atol(argv[2]), std::atol(argv[3]), std::atoi(argv[4]))) {
    benches.push_back(prepare(layer, batch));
    for (const auto &kernel : benches.back().kernels)
      compile += kernel->compileSeconds();
  }
  std::printf("compiled in %.2f s\n", compile);
  std::fflush(stdout);
  char line[16];
  while (std::fgets(line, sizeof(line), stdin)) {
    WorkerPair pair;
    for (const Bench &bench : benches) {
      const Layer &l = bench.layer;
      std::printf("%s %ld %ld %ld %ld %ld %ld", l.isPool ? "pool" : "conv",
                  l.size, l.inputs, l.outputs, l.window, l.stride, l.padding);
      for (size_t n = 0; n < bench.kernels.size(); ++n)
        std::printf(" %.3f", bestMilliseconds(pair, *bench.kernels[n],
                                              bench.buffers[n].data()));
      std::printf("\n");
    }
    std::printf("end\n");
    std::fflush(stdout);
  }
}
