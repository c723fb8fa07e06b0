// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_CPU_CPUTARGET_H
#define KILN_COMPILER_BACKEND_CPU_CPUTARGET_H

#include <cstdint>
#include <string>

namespace kiln::cpu {

/// Instructions that multiply pairs of bf16 and add the products in f32, where
/// they are faster than widening.
enum class DotUnit {
  none,
  pairs, ///< vdpbf16ps, which takes a register of pairs.
  tiles, ///< AMX.
};

/// The processor that kernels are generated for. Recorded in the artifact and
/// compared at load: code for AVX-512 does not start on a machine without it.
struct CpuTarget {
  std::string name;     ///< LLVM's name of the core, such as `znver3`.
  std::string features; ///< LLVM's feature string, sorted: `+avx2,+fma,...`.
  int64_t vectorBytes;  ///< Width of a vector register that arithmetic uses.
  int64_t vectorRegisters;
  int64_t l1Bytes;
  int64_t l2Bytes;
  DotUnit dots = DotUnit::none;
  /// Dot products are written in f32 arithmetic, so that tests run the code of
  /// processors that have them on any other.
  bool expandsDots = false;

  /// How many elements of `elementBytes` one register holds.
  int64_t lanes(int64_t elementBytes) const {
    return vectorBytes / elementBytes;
  }

  /// Whether it has a feature by LLVM's name, such as `f16c`.
  bool hasFeature(const std::string &feature) const;

  /// All that code depends on, for the keys of caches.
  std::string describe() const;

  /// The processor this process runs on.
  static CpuTarget host();
};

} // namespace kiln::cpu

#endif // KILN_COMPILER_BACKEND_CPU_CPUTARGET_H
