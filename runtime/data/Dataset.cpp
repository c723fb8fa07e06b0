// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Dataset.h"

namespace kiln {

Expected<std::unique_ptr<Dataset>> Dataset::open(const artifact::Data &data) {
  std::string_view kind = data.kind()->string_view();
  if (kind == "none")
    return std::unique_ptr<Dataset>();
  if (!data.path() || data.path()->size() == 0)
    return Status(Code::inputRejected,
                  "data of kind '" + data.kind()->str() + "' has no path");
  if (kind == "idx")
    return openIdx(data);
  if (kind == "text" || kind == "tokens")
    return openTokens(data);
  return Status(Code::inputRejected, "data kind '" + data.kind()->str() +
                                         "' is not one of idx, text, tokens, "
                                         "none");
}

uint64_t sampleElements(const artifact::Input &input) {
  uint64_t elements = 1; // The artifact's checks exclude overflow.
  for (int64_t size : *input.sample_shape())
    elements *= static_cast<uint64_t>(size);
  return elements;
}

Status rejectInput(const artifact::Input &input, const std::string &known) {
  return Status(Code::inputRejected, "input '" + input.name()->str() +
                                         "' cannot be fed from this data, "
                                         "which has " +
                                         known);
}

} // namespace kiln
