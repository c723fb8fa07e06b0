// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/frontend/ImportModel.h"
#include "models/Models.h"

#include "mlir/Parser/Parser.h"

using namespace mlir;

namespace kiln {

OwningOpRef<ModuleOp> importModel(const Config &config, MLIRContext &context) {
  Model model = findModel(config.model.kind);
  if (!model)
    return parseSourceFile<ModuleOp>(config.model.path, &context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  SmallVector<Purpose> purposes = {Purpose::Training};
  if (config.evaluation.presence == Presence::Given)
    purposes.push_back(Purpose::Evaluation);
  for (Purpose purpose : purposes) {
    ModelBuilder writer(*module, purpose);
    model(writer, config.model);
    writer.finish();
  }
  return module;
}

} // namespace kiln
