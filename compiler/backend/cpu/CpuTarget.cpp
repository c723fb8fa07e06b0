// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/CpuTarget.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"

#include <map>
#include <unistd.h>

namespace kiln::cpu {

// sysconf answers 0 or -1 on some virtual machines; the fallback is the
// smallest cache a current core has.
static int64_t cacheBytes(int name, int64_t fallback) {
  long bytes = sysconf(name);
  return bytes > 0 ? bytes : fallback;
}

CpuTarget CpuTarget::host() {
  CpuTarget target;
  target.name = llvm::sys::getHostCPUName().str();
  llvm::StringMap<bool> found = llvm::sys::getHostCPUFeatures();
  std::map<std::string, bool> sorted; // StringMap order is not stable.
  for (const auto &feature : found)
    sorted[feature.first().str()] = feature.second;
  for (const auto &[feature, isPresent] : sorted) {
    if (!target.features.empty())
      target.features += ',';
    target.features += (isPresent ? "+" : "-") + feature;
  }
  bool hasAvx512 = found.lookup("avx512f") && found.lookup("avx512vl");
  target.vectorBytes = hasAvx512 ? 64 : found.lookup("avx2") ? 32 : 16;
  target.vectorRegisters = hasAvx512 ? 32 : 16;
  target.l1Bytes = cacheBytes(_SC_LEVEL1_DCACHE_SIZE, 32 << 10);
  target.l2Bytes = cacheBytes(_SC_LEVEL2_CACHE_SIZE, 512 << 10);
  return target;
}

} // namespace kiln::cpu
