// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/artifact/IndexTables.h"
#include "models/Models.h"

using namespace mlir;

namespace kiln {

std::optional<artifact::ElementType> findElementType(Type type) {
  if (type.isF32())
    return artifact::ElementType::f32;
  if (type.isF64())
    return artifact::ElementType::f64;
  if (type.isInteger(32))
    return artifact::ElementType::i32;
  if (type.isInteger(64))
    return artifact::ElementType::i64;
  if (type.isInteger(1))
    return artifact::ElementType::i1;
  if (type.isBF16())
    return artifact::ElementType::bf16;
  if (type.isF16())
    return artifact::ElementType::f16;
  return std::nullopt;
}

std::unique_ptr<artifact::PublicNamesT>
describePublicNames(const ModelConfig &model) {
  PublicNames names = publicNames(model);
  auto table = std::make_unique<artifact::PublicNamesT>();
  table->prefix = names.prefix;
  table->bare = names.bare;
  table->ignored = names.ignored;
  for (auto [from, to] : {std::pair(&names.aliases, &table->aliases),
                          std::pair(&names.renamed, &table->renamed)})
    for (const auto &[name, variable] : *from) {
      auto alias = std::make_unique<artifact::AliasT>();
      alias->name = name;
      alias->variable = variable;
      to->push_back(std::move(alias));
    }
  return table;
}

} // namespace kiln
