// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_KERNELCACHE_H
#define KILN_COMPILER_BACKEND_KERNELCACHE_H

#include "compiler/backend/Backend.h"
#include "compiler/config/Cache.h"

namespace kiln {

/// Compiled kernels in the folder of the artifact cache. The key is the hash of
/// all that they depend on: the backend's key and this compiler's own code.
class KernelCache : public CodeStore {
public:
  explicit KernelCache(const std::string &folder);

  std::optional<std::string> lookUp(const std::string &key) override;
  void publish(const std::string &key, const std::string &code) override;

private:
  std::string getEntry(const std::string &key) const;

  Cache cache;
};

} // namespace kiln

#endif // KILN_COMPILER_BACKEND_KERNELCACHE_H
