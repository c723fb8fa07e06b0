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
         std::to_string(l1Bytes) + " and " + std::to_string(l2Bytes) + " bytes";
}

bool CpuTarget::hasFeature(const std::string &feature) const {
  return ("," + features + ",").find(",+" + feature + ",") != std::string::npos;
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
  HostCaches caches = hostCaches();
  target.l1Bytes = caches.l1Bytes;
  target.l2Bytes = caches.l2Bytes;
  return target;
}

} // namespace kiln::cpu
