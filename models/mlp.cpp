// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "models/Models.h"

#include <cmath>

using namespace mlir;

namespace kiln {

/// Perceptron with ReLU between its layers, on images as vectors: the smallest
/// model that trains.
void mlp(ModelBuilder &m, const ModelConfig &config) {
  Value x = m.input("image", {config.inputs});
  Value label = m.integers("label", {});
  auto layer = [&](int64_t number, int64_t out) {
    double bound = 1 / std::sqrt(double(tensorType(x).getShape().back()));
    Start uniform = {InitKind::uniform, -bound, bound};
    // Columns and rows are sharded in turn over `tensor`; classes are not.
    bool isOdd = number % 2 == 1,
         isLast = number == int64_t(config.hiddenSizes.size()) + 1;
    Parallel parallel = !isOdd   ? Parallel::rows()
                        : isLast ? Parallel{}
                                 : Parallel::columns();
    return m.linear("fc" + std::to_string(number), x, out, uniform, uniform,
                    LinearLayout::InOut, parallel);
  };
  int64_t number = 1;
  for (int64_t width : config.hiddenSizes) {
    auto scope = m.layer(number);
    x = m.relu(layer(number++, width));
  }
  Value logits = layer(number, config.classes);
  m.addCrossEntropy(logits, label);
  m.countCorrect(logits, label);
}

} // namespace kiln
