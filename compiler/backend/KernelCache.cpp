// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/KernelCache.h"
#include "runtime/artifact/Container.h"
#include "runtime/artifact/Sha256.h"

#include <cstdio>
#include <dlfcn.h>

namespace kiln {

static constexpr char sectionName[] = "code";

// Hash of the file that holds this code. Empty if it cannot be read; then
// nothing is cached.
static const std::string &hashOfCompiler() {
  static const std::string hash = [] {
    Dl_info info;
    if (!dladdr(reinterpret_cast<const void *>(&hashOfCompiler), &info))
      return std::string();
    return sha256OfFile(info.dli_fname).value_or("");
  }();
  return hash;
}

KernelCache::KernelCache(const std::string &folder)
    : cache(
          folder,
          [](const std::string &message) {
            std::fprintf(stderr, "kiln: warning: %s\n", message.c_str());
          },
          Cache::Kind::kernel) {}

std::string KernelCache::getEntry(const std::string &key) const {
  return "kiln_" + sha256(hashOfCompiler() + sha256(key));
}

std::optional<std::string> KernelCache::lookUp(const std::string &key) {
  if (hashOfCompiler().empty())
    return std::nullopt;
  std::optional<std::string> code;
  cache.lookUp(getEntry(key), [&](const std::string &path) {
    Expected<Container> container = Container::open(path);
    if (!container.ok())
      return container.status();
    std::span<const std::byte> bytes = container->find(sectionName);
    code.emplace(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    return Status();
  });
  return code;
}

void KernelCache::publish(const std::string &key, const std::string &code) {
  if (hashOfCompiler().empty())
    return;
  Section section{sectionName, std::as_bytes(std::span(code))};
  cache.publish(getEntry(key), packContainer({&section, 1}));
}

} // namespace kiln
