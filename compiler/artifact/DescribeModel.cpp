// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/artifact/DescribeModel.h"
#include "compiler/artifact/IndexTables.h"
#include "dialects/kiln/Kiln.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace kiln {

static void addVariable(VariableOp variable, artifact::ImageT &image) {
  RankedTensorType type = variable.getTensorType();
  auto element = findElementType(type.getElementType());
  if (!element)
    return; // Passes say what is wrong with it.
  auto entry = std::make_unique<artifact::VariableT>();
  entry->name = variable.getSymName().str();
  entry->element_type = *element;
  entry->shape = {type.getShape().begin(), type.getShape().end()};
  entry->role = stringifyRole(variable.getRole()).str();
  image.variables.push_back(std::move(entry));
}

static void addInput(StringRef name, Type type, artifact::ProgramT &program) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  auto element =
      tensor ? findElementType(tensor.getElementType()) : std::nullopt;
  if (!element || tensor.getRank() == 0)
    return; // As above.
  auto input = std::make_unique<artifact::InputT>();
  input->name = name.str();
  input->element_type = *element;
  ArrayRef<int64_t> sample = tensor.getShape().drop_front();
  input->sample_shape = {sample.begin(), sample.end()};
  program.inputs.push_back(std::move(input));
}

static void addProgram(func::FuncOp function, artifact::ImageT &image) {
  auto program = std::make_unique<artifact::ProgramT>();
  program->name = "train";
  for (BlockArgument argument : function.getArguments())
    if (auto name = function.getArgAttrOfType<StringAttr>(
            argument.getArgNumber(), kInputAttribute))
      addInput(name, argument.getType(), *program);
  image.programs.push_back(std::move(program));
}

flatbuffers::DetachedBuffer describeModel(ModuleOp module,
                                          const Config &config) {
  auto image = std::make_unique<artifact::ImageT>();
  for (auto variable : module.getOps<VariableOp>())
    addVariable(variable, *image);
  for (auto function : module.getOps<func::FuncOp>())
    if (function->hasAttr(kLossAttribute))
      addProgram(function, *image);
  artifact::IndexT index;
  index.images.push_back(std::move(image));
  index.public_names = describePublicNames(config.model);
  flatbuffers::FlatBufferBuilder builder;
  artifact::FinishIndexBuffer(builder, artifact::Index::Pack(builder, &index));
  return builder.Release();
}

} // namespace kiln
