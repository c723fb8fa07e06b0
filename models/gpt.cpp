// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "models/Models.h"

#include <cmath>

using namespace mlir;

namespace kiln {

/// GPT-2: a decoder with learned positions and norms before each block. Names,
/// layouts and initial values are those of the public checkpoints.
void gpt(ModelBuilder &m, const ModelConfig &config) {
  constexpr double kEpsilon = 1e-5;
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
  // Sharded over `tensor`: rows of the vocabulary, heads, and the
  // feed-forward's width.
  Split rows = {0};
  int64_t head = config.hidden / config.heads;
  Value x = m.embedding("wte.weight", tokens, config.vocabulary, config.hidden,
                        normal, rows);
  if (config.positions == Positions::Learned)
    x = m.addPositions("wpe.weight", x, config.maximumPositions, normal);
  x = m.dropout("drop", x, config.dropout);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    auto scope = m.layer(layer);
    std::string name = "h." + std::to_string(layer);
    auto linear = [&](const char *part, Value y, int64_t out, Start start,
                      Parallel parallel) {
      return m.linear(name + part, y, out, start, bias, LinearLayout::InOut,
                      parallel);
    };
    Value y = m.layerNorm(name + ".ln_1", x, config.biases, kEpsilon);
    y = linear(".attn.c_attn", y, 3 * config.hidden, normal,
               Parallel::columns(head, 3));
    y = m.attention(name + ".attn.attn_dropout", y, config.heads,
                    /*isCausal=*/true, /*lengths=*/{}, config.attentionDropout);
    y = linear(".attn.c_proj", y, config.hidden, residual,
               Parallel::rows(head));
    x = m.c.add(x, m.dropout(name + ".attn.resid_dropout", y, config.dropout));
    y = m.layerNorm(name + ".ln_2", x, config.biases, kEpsilon);
    y = m.geluTanh(linear(".mlp.c_fc", y, config.feedForward, normal,
                          Parallel::columns()));
    y = linear(".mlp.c_proj", y, config.hidden, residual, Parallel::rows());
    x = m.c.add(x, m.dropout(name + ".mlp.dropout", y, config.dropout));
  }
  x = m.layerNorm("ln_f", x, config.biases, kEpsilon);
  // A tied head is the embedding table itself.
  Value table = m.parameter(config.tiedHead ? "wte.weight" : "lm_head.weight",
                            {config.vocabulary, config.hidden}, normal, rows);
  m.addHeadCrossEntropy(x, table, labels);
}

/// As in Hugging Face's GPT2LMHeadModel.
PublicNames gptNames(const ModelConfig &config) {
  PublicNames names;
  names.prefix = "transformer.";
  names.bare = {"lm_head."};
  names.ignored = {"attn.bias", "attn.masked_bias"};
  if (config.tiedHead)
    names.aliases = {{"lm_head.weight", "wte.weight"}};
  return names;
}

} // namespace kiln
