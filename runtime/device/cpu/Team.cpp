// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/Team.h"

#include <cstdlib>
#include <immintrin.h>
#include <unistd.h>

// Declared here and not by omp.h, which clang has only for its own runtime.
extern "C" {
void GOMP_parallel(void (*function)(void *), void *data, unsigned workers,
                   unsigned flags);
void GOMP_barrier(void);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
void omp_set_num_threads(int);
}

namespace kiln::cpu {

static constexpr unsigned flushToZero = 0x8000;
static constexpr unsigned denormalsAreZero = 0x0040;

static void flushDenormalsHere() {
  _mm_setcsr(_mm_getcsr() | flushToZero | denormalsAreZero);
}

void Team::adopt() const {
  omp_set_num_threads(static_cast<int>(workers_));
  // Workers that libgomp starts later inherit the caller's setting.
  GOMP_parallel([](void *) { flushDenormalsHere(); }, nullptr, workers_, 0);
}

void Team::enter(void (*function)(void *), void *data) const {
  GOMP_parallel(function, data, workers_, 0);
}

// libgomp may give fewer workers than asked for (OMP_THREAD_LIMIT), so shares
// go by the number it gave.
Worker Team::currentWorker() {
  return {omp_get_thread_num(), omp_get_num_threads()};
}

void Team::meet() { GOMP_barrier(); }

FlushDenormals::FlushDenormals() : saved_(_mm_getcsr()) {
  flushDenormalsHere();
}

FlushDenormals::~FlushDenormals() { _mm_setcsr(saved_); }

void restartWithBriefSpinning(char **argv) {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY"))
    return;
  // About twice what waking a sleeping worker takes.
  if (::setenv("GOMP_SPINCOUNT", "2000", 1) == 0)
    ::execv("/proc/self/exe", argv);
}

} // namespace kiln::cpu
