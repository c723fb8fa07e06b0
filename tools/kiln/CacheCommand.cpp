// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Cache.h"

#include "compiler/config/Spelling.h"
#include "tools/kiln/Commands.h"

#include <cstdio>
#include <filesystem>

namespace kiln {

namespace {

/// Cache entries of one kind.
struct Contents {
  Contents(const char *name, Cache::Kind kind)
      : name(name), cache(Cache::defaultFolder(), printWarning, kind) {}

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const Cache::Entry &entry : cache.list())
      sum += entry.bytes;
    return sum;
  }

  const char *name;
  Cache cache;
};

} // namespace

int runCacheCommand(const std::string &action) {
  if (action != "list" && action != "size" && action != "clear") {
    printError("unknown action '" + action + "', wanted list, size or clear" +
               didYouMean(nearestWord(action, {"list", "size", "clear"})));
    return exitUsage;
  }
  Contents kinds[] = {{"artifacts", Cache::Kind::artifact},
                      {"kernels", Cache::Kind::kernel}};
  const char *folder = kinds[0].cache.path().c_str();
  std::error_code error;
  if (std::filesystem::exists(folder, error) &&
      !std::filesystem::is_directory(folder, error)) {
    printError(std::string(folder) +
               ": is a file, wanted the folder of the cache; KILN_CACHE_DIR "
               "names another");
    return static_cast<int>(Code::io);
  }
  // A folder that is not there yet is an empty cache.
  std::filesystem::directory_iterator entries(folder, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    printError(std::string(folder) + ": cannot be read: " + error.message() +
               "; KILN_CACHE_DIR names another");
    return static_cast<int>(Code::io);
  }
  if (action == "clear") {
    size_t artifacts = kinds[0].cache.clear(), kernels = kinds[1].cache.clear();
    printf("%zu artifacts and %zu kernels removed from %s\n", artifacts,
           kernels, folder);
    return 0;
  }
  if (action == "list")
    for (const Cache::Entry &entry : kinds[0].cache.list())
      printf("%s  %s\n", entry.key.c_str(), printBytes(entry.bytes).c_str());
  for (const Contents &kind : kinds)
    printf("%zu %s, %s in %s\n", kind.cache.list().size(), kind.name,
           printBytes(kind.bytes()).c_str(), folder);
  return 0;
}

} // namespace kiln
