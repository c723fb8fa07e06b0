// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/lower/LaunchOrigin.h"
#include "dialects/kiln/Origin.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace kiln {

static StringRef getText(Location loc, StringRef key) {
  auto text = dyn_cast_or_null<StringAttr>(getOrigin(loc, key));
  return text ? text.getValue() : StringRef();
}

// An update is named by the parameter that it assigns.
static std::string findUpdated(KernelOp kernel, SymbolTable &symbols) {
  for (Operation *user : kernel->getUsers())
    if (auto assign = dyn_cast<AssignOp>(user)) {
      auto variable = symbols.lookup<VariableOp>(assign.getVariable());
      if (variable && variable.getRole() == Role::parameter)
        return assign.getVariable().str();
    }
  return "";
}

static std::string findReadParameter(KernelOp kernel, SymbolTable &symbols) {
  for (Value operand : kernel.getOperands())
    if (auto read = operand.getDefiningOp<ReadOp>()) {
      auto variable = symbols.lookup<VariableOp>(read.getVariable());
      if (variable && variable.getCopyOf())
        return variable.getCopyOf()->str();
      if (variable && variable.getRole() == Role::parameter)
        return read.getVariable().str();
    }
  return "";
}

// `weight` of the part `h.3.attn.c_attn`, else the full name.
static StringRef stripPart(StringRef parameter, StringRef part) {
  StringRef rest = parameter;
  return rest.consume_front(part) && rest.consume_front(".") ? rest : parameter;
}

std::string describeOrigin(KernelOp kernel, SymbolTable &symbols) {
  if (std::string updated = findUpdated(kernel, symbols); !updated.empty())
    return updated + ", update";
  llvm::SetVector<StringRef> gradients, passes;
  SmallVector<std::string> parts;
  for (Operation &op : kernel.getBody().front().without_terminator()) {
    std::string part = getModelName(op.getLoc());
    if (!part.empty() && !llvm::is_contained(parts, part))
      parts.push_back(part);
    if (StringRef name = getText(op.getLoc(), kGradientOfAttribute);
        !name.empty())
      gradients.insert(name);
    passes.insert(getText(op.getLoc(), kPassAttribute));
  }
  if (parts.empty())
    return findReadParameter(kernel, symbols);
  std::string text = parts.front();
  if (parts.size() > 1)
    text += " to " + parts.back();
  if (gradients.size() == 1)
    text += ", gradient of " + stripPart(gradients[0], parts.front()).str();
  else if (passes.size() == 1 && !passes[0].empty())
    text += ", " + passes[0].str();
  else if (passes.contains(kBackwardPass))
    text += ", " + kBackwardPass.str();
  return text;
}

} // namespace kiln
