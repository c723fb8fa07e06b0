// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/artifact/MemoryKinds.h"
#include "dialects/exec/Exec.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace kiln {

namespace {

/// Names always-live buffers.
class Names {
public:
  explicit Names(ModuleOp image) : symbols(image) {
    for (auto variable : image.getOps<VariableOp>())
      if (variable.getCopyOf())
        masters.insert(*variable.getCopyOf());
  }

  StringRef name(exec::BufferOp buffer);

  SymbolTable symbols;

private:
  llvm::StringSet<> masters; // Names of parameters with working copies.
};

} // namespace

StringRef Names::name(exec::BufferOp buffer) {
  StringRef name = buffer.getSymName().split('.').second;
  switch (buffer.getKind()) {
  case exec::BufferKind::input:
    return "inputs";
  case exec::BufferKind::staging:
    return "staged inputs";
  case exec::BufferKind::gradient:
    return "gradient sums";
  case exec::BufferKind::output:
    return "outputs";
  case exec::BufferKind::variable:
    switch (symbols.lookup<VariableOp>(name).getRole()) {
    case Role::parameter:
      return masters.contains(name) ? "masters" : "parameters";
    case Role::working:
      return "parameters";
    case Role::moment:
      return "moments";
    default:
      return "statistics and counts";
    }
  default:
    return "step scalars";
  }
}

SmallVector<MemoryKind> listMemory(ModuleOp image, const Backends &backends,
                                   bool isHost) {
  int64_t alignment =
      backends.get(isHost ? exec::MemorySpace::host : exec::MemorySpace::device)
          .getBufferAlignment();
  auto total = image->getAttrOfType<IntegerAttr>(isHost ? "exec.host_bytes"
                                                        : "exec.arena_bytes");
  uint64_t shared = total ? total.getInt() : 0;
  if (shared == 0)
    return {};
  Names names(image);
  llvm::MapVector<StringRef, uint64_t> kinds;
  auto add = [&](StringRef name, exec::BufferOp buffer) {
    uint64_t bytes = llvm::alignTo(buffer.getBytes(), alignment);
    kinds[name] += bytes;
    shared -= bytes;
  };
  for (auto buffer : image.getOps<exec::BufferOp>())
    if (buffer.getAlwaysLive() && buffer.getHost() == isHost)
      add(names.name(buffer), buffer);
  if (!isHost)
    for (auto [kind, name] :
         {std::pair(exec::BufferKind::gathered, "gathered parameters"),
          std::pair(exec::BufferKind::gradient, "weight gradients")})
      for (auto live : image->getAttrOfType<ArrayAttr>("exec.peak")
                           .getAsRange<FlatSymbolRefAttr>())
        if (auto buffer = names.symbols.lookup<exec::BufferOp>(live.getValue());
            buffer.getKind() == kind)
          add(name, buffer);
  SmallVector<MemoryKind> listed;
  for (auto [name, bytes] : kinds)
    listed.push_back({name, bytes});
  listed.push_back({isHost ? "transfers" : "activations and scratch", shared});
  return listed;
}

} // namespace kiln
