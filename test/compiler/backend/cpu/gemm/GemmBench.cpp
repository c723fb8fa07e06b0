// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares generated products with dnnl_sgemm: interleaved, on the same team of
// threads, random data, medians. A register-only loop next to every round
// gives the peak, because the clock of a shared machine drifts.
#include "compiler/backend/cpu/EmitGemm.h"
#include "compiler/backend/cpu/EmitHead.h"
#include "test/compiler/backend/cpu/gemm/KernelRunner.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sys/mman.h>

using namespace kiln::cpu;
using namespace mlir;

// libgomp's own entry points: clang would link another runtime for a pragma.
extern "C" void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);
extern "C" int omp_get_thread_num();
extern "C" void omp_set_num_threads(int);

static int workers = 2;

static double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

template <typename Body> static void parallel(Body &&body) {
  GOMP_parallel(
      [](void *data) {
        (*static_cast<std::remove_reference_t<Body> *>(data))(
            omp_get_thread_num());
      },
      &body, workers, 0);
}

static float *allocate(size_t count, std::mt19937 &random) {
  size_t bytes = (count * 4 + (2 << 20) - 1) & ~size_t((2 << 20) - 1);
  auto *data = static_cast<float *>(aligned_alloc(2 << 20, bytes));
  madvise(data, bytes, MADV_HUGEPAGE);
  std::uniform_real_distribution<float> values(-1, 1);
  for (size_t i = 0; i < count; ++i)
    data[i] = values(random);
  return data;
}

typedef float Lane8 __attribute__((vector_size(32)));

// Twelve independent chains, as many as the register tile has.
__attribute__((target("avx2,fma"), noinline)) static float spin(int count) {
  Lane8 sum[12], x, y;
  for (int lane = 0; lane < 8; ++lane)
    x[lane] = 1.0f + lane * 1e-7f, y[lane] = 1e-7f;
  for (auto &s : sum)
    s = x;
  for (int i = 0; i < count; ++i) {
    for (auto &s : sum)
      asm volatile("vfmadd231ps %1, %2, %0" : "+x"(s) : "x"(x), "x"(y));
  }
  float total = 0;
  for (auto &s : sum)
    total += s[0];
  return total;
}

static double measurePeak() {
  constexpr int kCount = 100000;
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    double start = now();
    parallel([](int) {
      volatile float sink = spin(kCount);
      (void)sink;
    });
    best = std::min(best, now() - start);
  }
  return workers * kCount * 12 * 16.0 / best * 1e-9;
}

static double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Problem {
  const char *name;
  int64_t m, n, k;
  bool transposedLeft, transposedRight, accumulate;
};

static void measure(const Problem &p, std::mt19937 &random) {
  GemmShape shape{p.m, p.n, p.k, 1, 1, 1, 1, p.n, Type(), p.accumulate};
  (p.transposedLeft ? shape.aColumnStride : shape.aRowStride) =
      p.transposedLeft ? p.m : p.k;
  (p.transposedRight ? shape.bColumnStride : shape.bRowStride) =
      p.transposedRight ? p.k : p.n;
  LoadedKernel kernel(
      CpuTarget::host(), [&](ModuleOp module, const CpuTarget &cpu) {
        shape.elementType = Float32Type::get(module.getContext());
        return emitGemm(module, "gemm", shape, cpu);
      });
  float *a = allocate(p.m * p.k, random), *b = allocate(p.k * p.n, random);
  float *c = allocate(p.m * p.n, random), *d = allocate(p.m * p.n, random);
  std::memcpy(c, d, p.m * p.n * 4);
  void *buffers[] = {a, b, c, kernel.scratch(workers)};
  auto ours = [&] {
    parallel([&](int worker) { kernel.runShare(0, buffers, worker, workers); });
  };
  auto library = [&] {
    dnnl_sgemm(p.transposedLeft ? 'T' : 'N', p.transposedRight ? 'T' : 'N', p.m,
               p.n, p.k, 1.0f, a, p.transposedLeft ? p.m : p.k, b,
               p.transposedRight ? p.k : p.n, p.accumulate ? 1.0f : 0.0f, d,
               p.n);
  };
  ours();
  library();
  double worst = 0;
  for (int64_t i = 0; i < p.m * p.n; ++i)
    worst = std::max(worst, double(std::abs(c[i] - d[i])));
  double flops = 2.0 * p.m * p.n * p.k;
  int repeats = std::max<int>(1, int(2e8 / flops));
  std::vector<double> oursTimes, libraryTimes, ratios, peaks;
  for (int round = 0; round < (flops > 5e9 ? 7 : 15); ++round) {
    peaks.push_back(measurePeak());
    double times[2];
    for (int turn = 0; turn < 2; ++turn) {
      int which = (turn + round) % 2;
      double start = now();
      for (int i = 0; i < repeats; ++i)
        which ? library() : ours();
      times[which] = (now() - start) / repeats;
    }
    oursTimes.push_back(times[0]);
    libraryTimes.push_back(times[1]);
    ratios.push_back(times[1] / times[0]);
  }
  std::printf("%-22s %6ldx%5ldx%5ld ours %6.1f dnnl %6.1f peak %6.1f  "
              "ratio %.2f  items %ld  compile %.0f ms  difference %.1e\n",
              p.name, p.m, p.n, p.k, flops / median(oursTimes) * 1e-9,
              flops / median(libraryTimes) * 1e-9, median(peaks),
              median(ratios), kernel.code().stages[0].items,
              kernel.compileSeconds() * 1e3, worst);
  std::fflush(stdout);
  for (float *data : {a, b, c, d})
    free(data);
}

static constexpr int64_t kVocabulary = 50257;

template <typename Ours, typename Library>
static void reportHead(int64_t tokens, int64_t width,
                       const LoadedKernel &kernel, Ours &&ours,
                       Library &&library) {
  double flops = 6.0 * tokens * kVocabulary * width;
  std::vector<double> oursTimes, libraryTimes, ratios, peaks;
  for (int round = 0; round < 5; ++round) {
    peaks.push_back(measurePeak());
    double start = now();
    ours();
    oursTimes.push_back(now() - start);
    start = now();
    library();
    libraryTimes.push_back(now() - start);
    ratios.push_back(libraryTimes.back() / oursTimes.back());
  }
  std::printf("head %ld tokens, width %ld: ours %.0f ms (%.1f) dnnl products "
              "%.0f ms (%.1f) peak %.1f  ratio %.2f  compile %.0f ms\n",
              tokens, width, median(oursTimes) * 1e3,
              flops / median(oursTimes) * 1e-9, median(libraryTimes) * 1e3,
              flops / median(libraryTimes) * 1e-9, median(peaks),
              median(ratios), kernel.compileSeconds() * 1e3);
}

// The whole head against the products alone, done by the library in chunks:
// the library's softmax is not counted.
static void measureHead(int64_t tokens, int64_t width, std::mt19937 &random) {
  LoadedKernel kernel(
      CpuTarget::host(), [&](ModuleOp module, const CpuTarget &cpu) {
        Type type = Float32Type::get(module.getContext());
        return emitHead(module, "head",
                        {tokens, width, kVocabulary, type, true}, cpu);
      });
  int64_t chunk = std::min<int64_t>(tokens, 512);
  float *x = allocate(tokens * width, random);
  float *w = allocate(kVocabulary * width, random);
  float *dx = allocate(tokens * width, random);
  float *dw = allocate(kVocabulary * width, random);
  float *logits = allocate(chunk * kVocabulary, random);
  float loss;
  std::vector<int32_t> labels(tokens);
  for (int32_t &label : labels)
    label = random() % kVocabulary;
  for (int64_t i = 0; i < kVocabulary * width; ++i)
    w[i] *= 0.1f;
  const KernelCode &code = kernel.code();
  float *scratch = allocate(
      (code.sharedScratchBytes + code.scratchBytesPerWorker * workers) / 4,
      random);
  void *buffers[] = {x, w, labels.data(), &loss, dx, dw, scratch};
  std::vector<double> stageTimes(code.stages.size());
  auto ours = [&] {
    for (size_t stage = 0; stage < code.stages.size(); ++stage) {
      double start = now();
      parallel([&](int worker) {
        kernel.runShare(stage, buffers, worker, workers);
      });
      stageTimes[stage] = now() - start;
    }
  };
  auto library = [&] {
    for (int64_t t = 0; t < tokens; t += chunk) {
      dnnl_sgemm('N', 'T', chunk, kVocabulary, width, 1, x + t * width, width,
                 w, width, 0, logits, kVocabulary);
      dnnl_sgemm('N', 'N', chunk, width, kVocabulary, 1, logits, kVocabulary, w,
                 width, 0, dx + t * width, width);
      dnnl_sgemm('T', 'N', kVocabulary, width, chunk, 1, logits, kVocabulary,
                 x + t * width, width, t ? 1 : 0, dw, width);
    }
  };
  ours();
  library();
  reportHead(tokens, width, kernel, ours, library);
  for (size_t stage = 0; stage < code.stages.size(); ++stage)
    std::printf("  %s %.1f ms\n", code.stages[stage].symbol.c_str(),
                stageTimes[stage] * 1e3);
  for (float *data : {x, w, dx, dw, logits, scratch})
    free(data);
}

// Usage: gemm_bench [part of a name, or "" for all] [workers].
int main(int argc, char **argv) {
  if (argc > 2)
    workers = std::atoi(argv[2]);
  omp_set_num_threads(workers);
  std::mt19937 random(1);
  std::vector<Problem> problems;
  auto addLayer = [&](const char *name, int64_t t, int64_t in, int64_t out) {
    problems.push_back({name, t, out, in, false, false, false});
    problems.push_back({name, t, in, out, false, true, false});
    problems.push_back({name, in, out, t, true, false, true});
  };
  addLayer("2048 256>256", 2048, 256, 256);
  addLayer("2048 256>768", 2048, 256, 768);
  addLayer("256 768>768", 256, 768, 768);
  addLayer("256 768>2304", 256, 768, 2304);
  addLayer("256 768>3072", 256, 768, 3072);
  addLayer("256 3072>768", 256, 3072, 768);
  addLayer("256 64>64", 256, 64, 64);
  addLayer("256 64>256", 256, 64, 256);
  addLayer("256 64>192", 256, 64, 192);
  auto addHead = [&](const char *name, int64_t t, int64_t d) {
    problems.push_back({name, t, 50257, d, false, true, false});
    problems.push_back({name, t, d, 50257, false, false, false});
    problems.push_back({name, 50257, d, t, true, false, true});
  };
  addHead("head 512 256", 512, 256);
  addHead("head 256 768", 256, 768);
  for (const Problem &problem : problems)
    if (argc < 2 || std::strstr(problem.name, argv[1]))
      measure(problem, random);
  if (argc < 2 || std::strstr("fused", argv[1])) {
    measureHead(2048, 256, random);
    measureHead(256, 768, random);
  }
}
