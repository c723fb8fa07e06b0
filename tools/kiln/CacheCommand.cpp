// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Cache.h"

#include "compiler/config/Spelling.h"
#include "tools/kiln/Commands.h"

#include <cstdio>

namespace kiln {

int runCacheCommand(const std::string &action) {
  Cache cache(Cache::defaultFolder(), printWarning);
  if (action == "clear") {
    printf("%zu entries removed from %s\n", cache.clear(),
           cache.path().c_str());
    return 0;
  }
  if (action != "list" && action != "size") {
    printError("unknown action '" + action + "', wanted list, size or clear" +
               didYouMean(nearestWord(action, {"list", "size", "clear"})));
    return exitUsage;
  }
  uint64_t bytes = 0;
  std::vector<Cache::Entry> entries = cache.list();
  for (const Cache::Entry &entry : entries) {
    bytes += entry.bytes;
    if (action == "list")
      printf("%s  %s\n", entry.key.c_str(), printBytes(entry.bytes).c_str());
  }
  printf("%zu entries, %s in %s\n", entries.size(), printBytes(bytes).c_str(),
         cache.path().c_str());
  return 0;
}

} // namespace kiln
