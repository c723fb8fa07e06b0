// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels are compiled, loaded and compared with the definitions of convolution
// and pooling, in double precision. The gradient cases, which run both, show
// that the definitions in kiln ops agree.
#include "compiler/backend/cpu/convolution/EmitConvolution.h"
#include "test/compiler/backend/cpu/KernelRunner.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <random>

using namespace mlir;

namespace kiln::cpu {
namespace {

using Values = std::vector<double>;

struct Case {
  int64_t batch;
  int64_t height, width, inputs, outputs;
  int64_t windowHeight, windowWidth;
  int64_t strideHeight, strideWidth;
  int64_t paddingHeight, paddingWidth;
  bool isDouble = false;

  Windows windows() const {
    auto axis = [](int64_t size, int64_t window, int64_t stride,
                   int64_t padding) {
      return WindowAxis{size, (size + 2 * padding - window) / stride + 1,
                        window, stride, padding};
    };
    return {axis(height, windowHeight, strideHeight, paddingHeight),
            axis(width, windowWidth, strideWidth, paddingWidth)};
  }
  int64_t images() const { return batch * height * width * inputs; }
  int64_t places() const {
    return batch * windows().rows.count * windows().columns.count;
  }
  int64_t results() const { return places() * outputs; }
  int64_t weights() const {
    return outputs * inputs * windowHeight * windowWidth;
  }
};

std::ostream &operator<<(std::ostream &out, const Case &c) {
  return out << "[" << c.batch << ", " << c.height << ", " << c.width << ", "
             << c.inputs << "] to " << c.outputs << " by " << c.windowHeight
             << "x" << c.windowWidth << " stride " << c.strideHeight << "x"
             << c.strideWidth << " padding " << c.paddingHeight << "x"
             << c.paddingWidth << (c.isDouble ? " f64" : " f32");
}

/// Calls `body` with the places of window, tap and seen pixel: places of the
/// result, of the filter's window, and of the image.
void forTaps(const Case &c,
             const std::function<void(int64_t, int64_t, int64_t)> &body) {
  Windows w = c.windows();
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t y = 0; y < w.rows.count; ++y)
      for (int64_t x = 0; x < w.columns.count; ++x)
        for (int64_t p = 0; p < c.windowHeight; ++p)
          for (int64_t q = 0; q < c.windowWidth; ++q) {
            int64_t row = y * c.strideHeight + p - c.paddingHeight;
            int64_t column = x * c.strideWidth + q - c.paddingWidth;
            if (row < 0 || row >= c.height || column < 0 || column >= c.width)
              continue;
            body((b * w.rows.count + y) * w.columns.count + x,
                 p * c.windowWidth + q,
                 (b * c.height + row) * c.width + column);
          }
}

struct Convolved {
  Values result, dimage, dfilter;
};

Convolved convolve(const Case &c, const Values &image, const Values &filter,
                   const Values &grad) {
  Convolved r{Values(c.results()), Values(c.images()), Values(c.weights())};
  int64_t taps = c.windowHeight * c.windowWidth;
  forTaps(c, [&](int64_t place, int64_t tap, int64_t pixel) {
    for (int64_t o = 0; o < c.outputs; ++o)
      for (int64_t i = 0; i < c.inputs; ++i) {
        double x = image[pixel * c.inputs + i];
        double g = grad[place * c.outputs + o];
        int64_t weight = (o * c.inputs + i) * taps + tap;
        r.result[place * c.outputs + o] += x * filter[weight];
        r.dimage[pixel * c.inputs + i] += g * filter[weight];
        r.dfilter[weight] += g * x;
      }
  });
  return r;
}

struct Pooled {
  Values result, dimage;
};

Pooled pool(const Case &c, const Values &image, const Values &grad) {
  Pooled r{Values(c.places() * c.inputs, -INFINITY), Values(c.images())};
  std::vector<int64_t> taken(r.result.size());
  forTaps(c, [&](int64_t place, int64_t, int64_t pixel) {
    for (int64_t i = 0; i < c.inputs; ++i)
      if (image[pixel * c.inputs + i] > r.result[place * c.inputs + i]) {
        r.result[place * c.inputs + i] = image[pixel * c.inputs + i];
        taken[place * c.inputs + i] = pixel;
      }
  });
  for (size_t n = 0; n < taken.size(); ++n)
    r.dimage[taken[n] * c.inputs + n % c.inputs] += grad[n];
  return r;
}

/// Numbers with few bits, so that equal ones occur, as after a ReLU.
Values makeValues(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  Values values(count);
  for (double &value : values)
    value = double(int(generator() % 65) - 32) / 32;
  return values;
}

template <typename T> class Buffer {
public:
  explicit Buffer(size_t count) : buffer(count * sizeof(T)), count(count) {
    std::memset(buffer.data(), 0xff, count * sizeof(T));
  }
  explicit Buffer(const Values &values) : Buffer(values.size()) {
    std::copy(values.begin(), values.end(), data());
  }
  T *data() { return static_cast<T *>(buffer.data()); }
  Values values() { return Values(data(), data() + count); }

private:
  GuardedBuffer buffer;
  size_t count;
};

void expectNear(const Values &found, const Values &wanted, double tolerance,
                const char *what) {
  ASSERT_EQ(found.size(), wanted.size());
  double scale = 1;
  for (double value : wanted)
    scale = std::max(scale, std::abs(value));
  for (size_t n = 0; n < found.size(); ++n)
    if (!(std::abs(found[n] - wanted[n]) <= tolerance * scale)) {
      ADD_FAILURE() << what << "[" << n << "] is " << found[n] << ", wanted "
                    << wanted[n];
      return;
    }
}

/// Runs a kernel on 1, 2 and 3 workers; all must give the same bits.
template <typename T>
Values run(const LoadedKernel::Emit &emit, const CpuTarget &target,
           std::vector<void *> inputs, size_t size) {
  LoadedKernel kernel(target, emit);
  Values first;
  for (int64_t workers : {1, 2, 3}) {
    Buffer<T> result(size);
    std::vector<void *> buffers = inputs;
    buffers.push_back(result.data());
    kernel.run(buffers, workers);
    if (workers == 1)
      first = result.values();
    else
      EXPECT_EQ(std::memcmp(first.data(), result.values().data(),
                            size * sizeof(double)),
                0)
          << workers << " workers";
  }
  return first;
}

ElementTypes elementTypes(ModuleOp module, bool isDouble) {
  Builder builder(module.getContext());
  Type element =
      isDouble ? Type(builder.getF64Type()) : Type(builder.getF32Type());
  return {element, element};
}

template <typename T>
void checkConvolution(const Case &c, const CpuTarget &target) {
  Values image = makeValues(c.images(), 1), filter = makeValues(c.weights(), 2),
         grad = makeValues(c.results(), 3);
  Convolved wanted = convolve(c, image, filter, grad);
  Buffer<T> images(image), filters(filter), grads(grad);
  auto emit = [&](auto emitter) {
    return [&c, emitter](ModuleOp module, const CpuTarget &machine) {
      return emitter(module, "kernel",
                     {c.batch, c.windows(), c.inputs, c.outputs,
                      elementTypes(module, c.isDouble)},
                     machine, /*tuning=*/{});
    };
  };
  double tolerance = c.isDouble ? 1e-13 : 1e-5;
  expectNear(run<T>(emit(emitConvolution), target,
                    {images.data(), filters.data()}, c.results()),
             wanted.result, tolerance, "result");
  expectNear(run<T>(emit(emitConvolutionGradInput), target,
                    {grads.data(), filters.data()}, c.images()),
             wanted.dimage, tolerance, "gradient of the image");
  expectNear(run<T>(emit(emitConvolutionGradWeight), target,
                    {images.data(), grads.data()}, c.weights()),
             wanted.dfilter, tolerance, "gradient of the filter");
}

template <typename T> void checkPool(const Case &c, const CpuTarget &target) {
  size_t results = c.places() * c.inputs;
  Values image = makeValues(c.images(), 1), grad = makeValues(results, 3);
  Pooled wanted = pool(c, image, grad);
  Buffer<T> images(image), maxima(wanted.result), grads(grad);
  auto shape = [&](ModuleOp module) -> PoolShape {
    return {c.batch, c.windows(), c.inputs, elementTypes(module, c.isDouble)};
  };
  auto forward = [&](ModuleOp module, const CpuTarget &machine) {
    return emitMaxPool(module, "kernel", shape(module), machine);
  };
  auto backward = [&](ModuleOp module, const CpuTarget &machine) {
    return emitMaxPoolGradient(module, "kernel", shape(module), machine);
  };
  expectNear(run<T>(forward, target, {images.data()}, results), wanted.result,
             0, "result");
  expectNear(run<T>(backward, target,
                    {images.data(), maxima.data(), grads.data()}, c.images()),
             wanted.dimage, 1e-6, "gradient of the image");
}

void check(const Case &c, const CpuTarget &target, bool isPool) {
  std::ostringstream name;
  name << c;
  SCOPED_TRACE((isPool ? "pool " : "convolution ") + name.str());
  if (isPool)
    c.isDouble ? checkPool<double>(c, target) : checkPool<float>(c, target);
  else
    c.isDouble ? checkConvolution<double>(c, target)
               : checkConvolution<float>(c, target);
}

/// A random shape whose work is small enough for the plain loops.
Case drawCase(std::mt19937 &random, bool isPool) {
  auto draw = [&](int64_t low, int64_t high) {
    return low + int64_t(random() % uint64_t(high - low + 1));
  };
  auto pick = [&](std::initializer_list<int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  for (;;) {
    Case c;
    c.batch = draw(1, 9);
    c.height = draw(1, 11);
    c.width = draw(1, 11);
    c.inputs = pick({1, 2, 3, 5, 8, 11, 16, 24, 37, 64});
    c.outputs = pick({1, 3, 6, 8, 13, 16, 19, 40, 64});
    c.windowHeight = pick({1, 2, 3, 3, 5, 7});
    c.windowWidth = pick({1, 2, 3, 3, 5, 7});
    c.strideHeight = draw(1, 3);
    c.strideWidth = draw(1, 3);
    c.paddingHeight = draw(0, c.windowHeight / 2 + !isPool);
    c.paddingWidth = draw(0, c.windowWidth / 2 + !isPool);
    c.isDouble = draw(0, 2) == 0;
    bool hasRoom = c.height + 2 * c.paddingHeight >= c.windowHeight &&
                   c.width + 2 * c.paddingWidth >= c.windowWidth;
    if (isPool)
      c.paddingHeight = std::min(c.paddingHeight, c.windowHeight / 2),
      c.paddingWidth = std::min(c.paddingWidth, c.windowWidth / 2);
    if (hasRoom && c.places() * c.weights() < 8000000)
      return c;
  }
}

TEST(Convolution, OfRandomShapes) {
  std::mt19937 random(7);
  for (int number = 0; number < 40; ++number)
    check(drawCase(random, false), CpuTarget::host(), false);
}

TEST(Pool, OfRandomShapes) {
  std::mt19937 random(8);
  for (int number = 0; number < 20; ++number)
    check(drawCase(random, true), CpuTarget::host(), true);
}

// Shapes of residual networks, with fewer channels.
TEST(Convolution, OfResidualNetworks) {
  for (const Case &c : {Case{9, 28, 28, 1, 16, 7, 7, 2, 2, 3, 3},
                        Case{2, 23, 17, 3, 24, 7, 7, 2, 2, 3, 3},
                        Case{13, 7, 7, 24, 24, 3, 3, 1, 1, 1, 1},
                        Case{13, 7, 7, 24, 40, 3, 3, 2, 2, 1, 1},
                        Case{13, 7, 7, 24, 40, 1, 1, 2, 2, 0, 0},
                        Case{13, 4, 4, 24, 24, 3, 3, 1, 1, 1, 1},
                        Case{13, 2, 2, 40, 48, 3, 3, 1, 1, 1, 1},
                        Case{13, 2, 2, 40, 48, 3, 3, 2, 2, 1, 1},
                        Case{13, 1, 1, 72, 80, 3, 3, 1, 1, 1, 1},
                        Case{1, 31, 37, 8, 8, 3, 3, 1, 1, 1, 1},
                        Case{3, 5, 6, 40, 17, 1, 1, 1, 1, 0, 0}})
    check(c, CpuTarget::host(), false);
}

// Channels that fill more than one block of depth, and a sum that is cut into
// groups of outputs and inputs.
TEST(Convolution, OfManyChannels) {
  check({2, 3, 3, 700, 9, 3, 3, 1, 1, 1, 1}, CpuTarget::host(), false);
  check({3, 2, 2, 330, 12, 3, 3, 1, 1, 1, 1}, CpuTarget::host(), false);
  check({2, 2, 2, 400, 170, 2, 2, 1, 1, 1, 1}, CpuTarget::host(), false);
  check({4, 2, 2, 256, 512, 3, 3, 2, 2, 1, 1, true}, CpuTarget::host(), false);
  check({4, 2, 2, 256, 512, 1, 1, 2, 2, 0, 0, true}, CpuTarget::host(), false);
}

// A window that sees nothing has sum 0, and so has the gradient of its taps.
TEST(Convolution, WithWindowsInThePadding) {
  check({2, 1, 1, 3, 4, 2, 2, 5, 5, 2, 2}, CpuTarget::host(), false);
  check({2, 3, 1, 9, 8, 3, 2, 2, 4, 4, 3}, CpuTarget::host(), false);
}

// Other registers than this machine's: code for AVX-512 and for SSE computes
// the same, as LLVM splits or joins its vectors.
TEST(Convolution, OfOtherRegisters) {
  for (auto [bytes, registers] : {std::pair(64, 32), std::pair(16, 16)}) {
    CpuTarget target = CpuTarget::host();
    target.vectorBytes = bytes;
    target.vectorRegisters = registers;
    check({5, 6, 5, 21, 70, 3, 3, 2, 2, 1, 1}, target, false);
    check({5, 9, 9, 3, 13, 7, 7, 2, 2, 3, 3, true}, target, false);
    check({3, 7, 6, 37, 0, 3, 3, 2, 2, 1, 1}, target, true);
  }
}

} // namespace
} // namespace kiln::cpu
