// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/cpu/CpuTarget.h"
#include "compiler/config/CacheKey.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"

#include <map>

namespace kiln::cpu {

std::string CpuTarget::describe() const {
  return name + "\n" + features + "\nvectors of " +
         std::to_string(vectorBytes) + " bytes in " +
         std::to_string(vectorRegisters) + " registers, caches of " +
         std::to_string(l1Bytes) + " and " + std::to_string(l2Bytes) +
         " bytes, dot products " + std::to_string(int(dots)) +
         (expandsDots ? " expanded" : "");
}

bool CpuTarget::hasFeature(const std::string &feature) const {
  return ("," + features + ",").find(",+" + feature + ",") != std::string::npos;
}

// Intel's processors since Sapphire Rapids, which have instructions for f16 as
// well, take twice as long for vdpbf16ps as for the multiplications of f32 that
// it replaces.
static DotUnit findDots(const CpuTarget &target) {
  if (target.hasFeature("amx-bf16") && target.hasFeature("amx-tile"))
    return DotUnit::tiles;
  bool isFast =
      target.hasFeature("avx512bf16") && !target.hasFeature("avx512fp16");
  return isFast ? DotUnit::pairs : DotUnit::none;
}

CpuTarget CpuTarget::host() {
  CpuTarget target;
  target.name = llvm::sys::getHostCPUName().str();
  llvm::StringMap<bool> found = llvm::sys::getHostCPUFeatures();
  std::map<std::string, bool> sorted; // StringMap order is not stable.
  bool hasTiles = permitsTiles();
  for (const auto &feature : found)
    sorted[feature.first().str()] =
        feature.second && (hasTiles || !feature.first().starts_with("amx-"));
  for (const auto &[feature, isPresent] : sorted) {
    if (!target.features.empty())
      target.features += ',';
    target.features += (isPresent ? "+" : "-") + feature;
  }
  bool hasAvx512 = found.lookup("avx512f") && found.lookup("avx512vl");
  target.vectorBytes = hasAvx512 ? 64 : found.lookup("avx2") ? 32 : 16;
  target.vectorRegisters = hasAvx512 ? 32 : 16;
  target.dots = findDots(target);
  HostCaches caches = hostCaches();
  target.l1Bytes = caches.l1Bytes;
  target.l2Bytes = caches.l2Bytes;
  return target;
}

} // namespace kiln::cpu
