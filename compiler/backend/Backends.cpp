// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/Backend.h"
#include "compiler/backend/cpu/CpuBackend.h"

namespace kiln {

/// The first also serves the host.
static constexpr BackendKind kinds[] = {
    {"cpu", cpu::createBackend},
};

llvm::ArrayRef<BackendKind> getBackendKinds() { return kinds; }

std::unique_ptr<Backends> Backends::create(llvm::ArrayRef<BackendKind> kinds,
                                           llvm::StringRef device,
                                           const BackendOptions &options) {
  auto backends = std::make_unique<Backends>();
  for (const BackendKind &kind : kinds)
    if (kind.name == device)
      backends->device = kind.create(options);
  if (!backends->device)
    return nullptr;
  if (device != kinds.front().name)
    backends->host = kinds.front().create(options);
  return backends;
}

const Backends &getDefaultBackends(bool isReference) {
  auto create = [](bool isReference) {
    return Backends::create(kinds, kinds[0].name, {/*workers=*/1, isReference});
  };
  static const std::unique_ptr<Backends> optimised = create(false),
                                         reference = create(true);
  return isReference ? *reference : *optimised;
}

llvm::SmallVector<const Backend *> Backends::getAll() const {
  llvm::SmallVector<const Backend *> all = {device.get()};
  if (host)
    all.push_back(host.get());
  return all;
}

} // namespace kiln
