// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Turns programs on tensors into commands on buffers. Variables and inputs have
// buffers of their own; every other value gets one, unless it can lie over an
// operand that dies, or in the variable that it is assigned to. Kernels that
// are alike become one.
#include "compiler/lower/PhaseLowering.h"
#include "compiler/pipeline/Passes.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace kiln {

#define GEN_PASS_DEF_LOWERTOEXEC
#include "compiler/pipeline/Passes.h.inc"

namespace {

struct LowerToExecPass : impl::LowerToExecBase<LowerToExecPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    KernelTable kernels(module);
    SmallVector<ProgramOp> programs(module.getOps<ProgramOp>());
    declareVariables(module, symbols);
    for (ProgramOp program : programs)
      if (failed(lower(program, symbols, kernels)))
        return signalPassFailure();
  }

  void declareVariables(ModuleOp module, SymbolTable &symbols);
  LogicalResult lower(ProgramOp program, SymbolTable &symbols,
                      KernelTable &kernels);
  ArrayAttr declareInputs(ProgramOp program, SymbolTable &symbols);
};

} // namespace

void LowerToExecPass::declareVariables(ModuleOp module, SymbolTable &symbols) {
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  for (auto variable : llvm::to_vector(module.getOps<VariableOp>())) {
    auto kind = exec::BufferKind::variable;
    if (variable.isTransient())
      kind = variable.getRole() == Role::gradient ? exec::BufferKind::gradient
                                                  : exec::BufferKind::scratch;
    symbols.insert(exec::BufferOp::create(
        builder, variable.getLoc(), ("variable." + variable.getSymName()).str(),
        getByteSize(variable.getTensorType()), kind, true, variable.getHost(),
        nullptr));
  }
}

// An input holds the full batch: phases that repeat see slices of it.
ArrayAttr LowerToExecPass::declareInputs(ProgramOp program,
                                         SymbolTable &symbols) {
  OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
  SmallVector<Attribute> inputs;
  llvm::StringSet<> seen;
  bool isFunction = false;
  program.walk([&](PhaseOp phase) { isFunction |= phase.getName() == "call"; });
  program.walk([&](PhaseOp phase) {
    for (auto [name, argument] :
         llvm::zip(phase.getInputs(), phase.getBody().getArguments())) {
      StringRef key = cast<StringAttr>(name).getValue();
      if (!seen.insert(key).second)
        continue;
      auto type = cast<RankedTensorType>(argument.getType());
      SmallVector<int64_t> shape(type.getShape());
      if (!isFunction)
        shape.front() = program.getBatch();
      auto whole = RankedTensorType::get(shape, type.getElementType());
      std::string symbol = ("input." + program.getSymName() + "." + key).str();
      auto add = [&](const Twine &name, exec::BufferKind kind) {
        auto buffer = exec::BufferOp::create(builder, program.getLoc(),
                                             name.str(), getByteSize(whole),
                                             kind, true, false, nullptr);
        symbols.insert(buffer);
        return FlatSymbolRefAttr::get(buffer);
      };
      auto buffer = add(symbol, exec::BufferKind::input);
      auto staging = isFunction
                         ? buffer
                         : add("staging." + symbol, exec::BufferKind::staging);
      inputs.push_back(
          builder.getArrayAttr({name, buffer, staging, TypeAttr::get(whole)}));
    }
  });
  return builder.getArrayAttr(inputs);
}

LogicalResult LowerToExecPass::lower(ProgramOp program, SymbolTable &symbols,
                                     KernelTable &kernels) {
  OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
  ArrayAttr inputs = declareInputs(program, symbols);
  std::string name = program.getSymName().str();
  auto lowered = exec::ProgramOp::create(builder, program.getLoc(), name,
                                         program.getBatch(), inputs,
                                         builder.getArrayAttr({}));
  OpBuilder phases = OpBuilder::atBlockEnd(&lowered.getBody().emplaceBlock());
  SmallVector<Attribute> outputs;
  int64_t tickets = 0;
  for (auto phase :
       llvm::to_vector(program.getBody().front().getOps<PhaseOp>())) {
    auto target = exec::PhaseOp::create(phases, phase.getLoc(), phase.getName(),
                                        phase.getRepeat());
    OpBuilder commands =
        OpBuilder::atBlockEnd(&target.getBody().emplaceBlock());
    PhaseLowering lowering(phase, getOperation(), symbols, kernels, commands,
                           name, tickets);
    if (failed(lowering.run()))
      return failure();
    outputs.append(lowering.outputs);
  }
  lowered.setOutputsAttr(builder.getArrayAttr(outputs));
  program.erase();
  return success();
}

} // namespace kiln
