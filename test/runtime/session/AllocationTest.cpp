// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Replaces malloc to prove that a step allocates nothing, in any
// thread.
#include "test/runtime/SampleArtifact.h"
#include "test/runtime/data/Datasets.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <dlfcn.h>
#include <new>
#include <string_view>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);
}

namespace {

std::atomic<bool> isCounting{false};
std::atomic<uint64_t> counted{0};
std::atomic<void *> firstCaller{nullptr};

void count(void *caller) {
  if (!isCounting.load(std::memory_order_relaxed))
    return;
  if (counted++ == 0)
    firstCaller = caller;
}

} // namespace

#define CALLER __builtin_return_address(0)

extern "C" {
void *malloc(size_t size) { return count(CALLER), __libc_malloc(size); }
void *calloc(size_t n, size_t size) {
  return count(CALLER), __libc_calloc(n, size);
}
void *realloc(void *old, size_t size) {
  return count(CALLER), __libc_realloc(old, size);
}
void *memalign(size_t alignment, size_t size) {
  return count(CALLER), __libc_memalign(alignment, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
  return count(CALLER), __libc_memalign(alignment, size);
}
int posix_memalign(void **result, size_t alignment, size_t size) {
  count(CALLER);
  *result = __libc_memalign(alignment, size);
  return *result ? 0 : ENOMEM;
}
void free(void *pointer) { __libc_free(pointer); }
}

void *operator new(size_t size) {
  count(CALLER);
  if (void *result = __libc_malloc(size))
    return result;
  throw std::bad_alloc();
}
void *operator new(size_t size, std::align_val_t alignment) {
  count(CALLER);
  if (void *result = __libc_memalign(static_cast<size_t>(alignment), size))
    return result;
  throw std::bad_alloc();
}
void operator delete(void *pointer) noexcept { __libc_free(pointer); }
void operator delete(void *pointer, size_t) noexcept { __libc_free(pointer); }
void operator delete(void *pointer, std::align_val_t) noexcept {
  __libc_free(pointer);
}
void operator delete(void *pointer, size_t, std::align_val_t) noexcept {
  __libc_free(pointer);
}

// Training writes the loss of each step before it begins the next, so this sees
// all of steps 3 to 10.
extern "C" ssize_t write(int file, const void *bytes, size_t size) {
  std::string_view text(static_cast<const char *>(bytes), size);
  if (text.starts_with("2 "))
    isCounting = true;
  if (text.starts_with("10 "))
    isCounting = false;
  return ::syscall(SYS_write, file, bytes, size);
}

using namespace kiln;
using namespace kiln::test;

static bool stepsAllocateNothing(uint32_t devices) {
  TemporaryFile text(std::string(2000, 'x')), losses;
  artifact::IndexT index = devices == 1 ? sampleTraining(text.path(), 8, 8)
                                        : shardedTraining(text.path(), devices);
  index.settings->checkpoint.reset();
  index.settings->training->log_every = 1;
  if (devices == 1)
    addEvaluation(index, text.path(), 4, 1);
  SessionOptions options;
  options.isProfiled = true;
  Session session =
      openSession(index, compileKernels(sampleKernels()), options);
  TrainOptions train;
  train.lossesPath = losses.path();
  TemporaryFolder run; // Metrics too are written in every step.
  train.runFolder = run / "run";
  train.steps = 12;
  counted = 0;
  if (!session.initialise(0).ok() || !session.train(train).ok())
    return false;
  std::printf("%lu allocations\n", counted.load());
  Dl_info info;
  if (counted != 0 && ::dladdr(firstCaller, &info))
    std::printf("the first from %s in %s\n",
                info.dli_sname ? info.dli_sname : "?", info.dli_fname);
  return counted == 0;
}

/// Opens data and reads every sample as every input.
static bool readingAllocatesNothing(const DataT &data,
                                    const std::vector<InputT> &natives) {
  auto dataset = test::open(data);
  if (!dataset.ok())
    return false;
  counted = 0;
  std::vector<std::byte> target(4096);
  for (const InputT &native : natives) {
    PackedInput input(native);
    if (!(*dataset)->checkInput(*input).ok())
      return false;
    isCounting = true;
    Status status;
    for (uint64_t i = 0; i < (*dataset)->samples() && status.ok(); ++i)
      status = (*dataset)->write(*input, {1, i}, target.data());
    isCounting = false;
    if (!status.ok())
      return false;
  }
  std::printf("%lu allocations reading %s\n", counted.load(),
              data.kind.c_str());
  return counted == 0;
}

static bool datasetsAllocateNothing() {
  auto integers = [](const char *name, std::vector<int64_t> shape) {
    return input(name, ElementType::i32, std::move(shape));
  };
  TemporaryFile sentences("1\tSome words, and more.\n0\tfew\n");
  TemporaryFile paragraphs("One two. Three four. Five.\n\nsix\nseven\n");
  DataT data;
  data.sequence = 16;
  data.vocabulary = 50;
  data.classes = 2;
  data.predictions = 3;
  data.kind = "tsv";
  data.path = sentences.path();
  bool isGood = readingAllocatesNothing(data, {integers("tokens", {16}),
                                               integers("length", {}),
                                               integers("label", {})});
  data.kind = "documents";
  data.path = paragraphs.path();
  return readingAllocatesNothing(
             data, {integers("tokens", {16}), integers("segments", {16}),
                    integers("length", {}), integers("positions", {3}),
                    integers("labels", {3}), integers("next", {})}) &&
         isGood;
}

int main() {
  // Guards against a hook that is never called.
  isCounting = true;
  ::operator delete(::operator new(4));
  isCounting = false;
  if (counted != 1)
    return 1;
  return stepsAllocateNothing(1) && stepsAllocateNothing(3) &&
                 datasetsAllocateNothing()
             ? 0
             : 1;
}
