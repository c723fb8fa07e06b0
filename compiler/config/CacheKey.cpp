// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/CacheKey.h"

#include "runtime/FileKind.h"
#include "runtime/artifact/Sha256.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/syscall.h>
#include <unistd.h>

namespace kiln {

bool wantsRedZones() { return std::getenv("KILN_RED_ZONES") != nullptr; }

std::string hostProcessor() {
  std::ifstream file("/proc/cpuinfo");
  std::string name, flags, line;
  while (std::getline(file, line)) {
    auto takes = [&](const char *field) { return line.starts_with(field); };
    if (name.empty() && (takes("model name") || takes("CPU part")))
      name = line.substr(line.find(':') + 1);
    if (flags.empty() && (takes("flags") || takes("Features")))
      flags = line.substr(line.find(':') + 1);
    if (!name.empty() && !flags.empty())
      break;
  }
  return name + "\n" + flags;
}

bool permitsTiles() {
  constexpr long requestPermission = 0x1023, tileData = 18;
  return ::syscall(SYS_arch_prctl, requestPermission, tileData) == 0;
}

// sysconf answers 0 or -1 on some virtual machines; the fallback is the
// smallest cache a current core has.
static int64_t cacheBytes(int name, int64_t fallback) {
  long bytes = sysconf(name);
  return bytes > 0 ? bytes : fallback;
}

HostCaches hostCaches() {
  return {cacheBytes(_SC_LEVEL1_DCACHE_SIZE, 32 << 10),
          cacheBytes(_SC_LEVEL2_CACHE_SIZE, 512 << 10)};
}

/// All that code of the CPU backend depends on. Backends for other processors
/// add their own targets.
static std::string describeTarget() {
  HostCaches caches = hostCaches();
  return hostProcessor() + "\n" + std::to_string(caches.l1Bytes) + " " +
         std::to_string(caches.l2Bytes) + (permitsTiles() ? " tiles" : "");
}

/// Why there are no bytes to hash.
static std::string describeUnreadable(const std::string &path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return ": no such file";
  std::string other = describeNonFile(path);
  return other.empty() ? ": cannot be read"
                       : ": is " + other + ", wanted a regular file";
}

std::optional<std::string> compileKey(const Config &config,
                                      const CompileInputs &inputs,
                                      std::string &error) {
  auto hashFile = [&](const std::string &path) {
    std::optional<std::string> hash = sha256OfFile(path);
    if (!hash)
      error = path + describeUnreadable(path);
    return hash;
  };
  std::optional<std::string> compiler = hashFile(inputs.compilerLibrary);
  if (!compiler)
    return std::nullopt;
  std::optional<std::string> model = "";
  if (config.model.kind == ModelKind::File)
    model = hashFile(config.model.path);
  if (!model)
    return std::nullopt;
  // Each part is hashed by itself, so that no two lists of parts join to the
  // same text. The program's keys hold the number of
  // threads.
  std::string parts = sha256(*compiler) + sha256(config.printProgram()) +
                      sha256(*model) + sha256(describeTarget()) +
                      (inputs.isReference ? "reference" : "optimised") +
                      (inputs.hasRedZones ? " with red zones" : "");
  return "kiln_" + sha256(parts);
}

} // namespace kiln
