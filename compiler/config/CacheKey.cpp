// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/CacheKey.h"

#include "runtime/artifact/Sha256.h"

#include <cstdlib>
#include <fstream>

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

std::optional<std::string> compileKey(const Config &config,
                                      const CompileInputs &inputs,
                                      std::string &error) {
  auto hashFile = [&](const std::string &path) {
    std::optional<std::string> hash = sha256OfFile(path);
    if (!hash)
      error = path + ": cannot be read";
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
  // same text. The config's text holds the number of threads.
  std::string parts = sha256(*compiler) + sha256(config.print()) +
                      sha256(*model) + sha256(hostProcessor()) +
                      (inputs.isReference ? "reference" : "optimised") +
                      (inputs.hasRedZones ? " with red zones" : "");
  return "kiln_" + sha256(parts);
}

} // namespace kiln
