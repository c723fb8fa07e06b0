// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/backend/Tuning.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace kiln {

std::string printTuning(const TuningRecord &record) {
  std::string text;
  for (const auto &[name, value] : record)
    text += (text.empty() ? "" : " ") + name + "=" + std::to_string(value);
  return text;
}

DictionaryAttr toAttribute(MLIRContext *context, const TuningRecord &record) {
  Builder builder(context);
  SmallVector<NamedAttribute> fields;
  for (const auto &[name, value] : record)
    fields.push_back(
        builder.getNamedAttr(name, builder.getI64IntegerAttr(value)));
  return builder.getDictionaryAttr(fields);
}

TuningRecord toTuning(DictionaryAttr attribute) {
  TuningRecord record;
  for (NamedAttribute field : attribute)
    record.push_back(
        {field.getName().str(), cast<IntegerAttr>(field.getValue()).getInt()});
  return record;
}

} // namespace kiln
