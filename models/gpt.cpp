// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "models/Models.h"

#include <cmath>

using namespace mlir;

namespace kiln {

/// GPT-2: a decoder with learned positions and norms before each block. Names,
/// layouts and starting values are those of the public checkpoints.
Loss gpt(ModelBuilder &m, const ModelConfig &config) {
  Start normal = {InitKind::normal, 0, 0.02};
  // Projections into the residual stream start smaller, so that its variance
  // does not grow with depth.
  Start residual = {InitKind::normal, 0,
                    0.02 / std::sqrt(2.0 * double(config.layers))};
  std::optional<Start> bias;
  if (config.biases)
    bias = Start{};
  Value tokens = m.integers("tokens", {config.sequence});
  Value labels = m.integers("labels", {config.sequence});
  Value x = m.embedding("wte.weight", tokens, config.vocabulary, config.hidden,
                        normal);
  if (config.positions == Positions::Learned) {
    Value positions =
        m.parameter("wpe.weight", {config.sequence, config.hidden}, normal);
    x = m.c.add(x, m.c.broadcast("sd->bsd", positions, tensorType(x)));
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    std::string name = "h." + std::to_string(layer);
    Value attended = m.layerNorm(name + ".ln_1", x, config.biases);
    attended = m.linear(name + ".attn.c_attn", attended, 3 * config.hidden,
                        normal, bias);
    attended = m.causalAttention(attended, config.heads);
    x = m.c.add(x, m.linear(name + ".attn.c_proj", attended, config.hidden,
                            residual, bias));
    Value wide = m.layerNorm(name + ".ln_2", x, config.biases);
    wide = m.gelu(
        m.linear(name + ".mlp.c_fc", wide, config.feedForward, normal, bias));
    x = m.c.add(
        x, m.linear(name + ".mlp.c_proj", wide, config.hidden, residual, bias));
  }
  x = m.layerNorm("ln_f", x, config.biases);
  // A tied head is the embedding table itself.
  Value head = m.parameter(config.tiedHead ? "wte.weight" : "lm_head.weight",
                           {config.vocabulary, config.hidden}, normal);
  return m.headCrossEntropy(x, head, labels);
}

} // namespace kiln
