// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "models/Models.h"

#include <cmath>

using namespace mlir;

namespace kiln {

namespace {

constexpr double kEpsilon = 1e-5;
constexpr auto kOutIn = LinearLayout::OutIn;

/// PyTorch's initialiser of linear layers, for weights and biases.
Start uniformFor(int64_t in) {
  double bound = 1 / std::sqrt(double(in));
  return {InitKind::uniform, -bound, bound};
}

Value linear(ModelBuilder &m, const std::string &name, Value x, int64_t out,
             Parallel parallel = {}) {
  Start start = uniformFor(tensorType(x).getShape().back());
  return m.linear(name, x, out, start, start, kOutIn, parallel);
}

/// One layer of PyTorch's TransformerEncoder with norm_first and GELU.
Value encode(ModelBuilder &m, const ModelConfig &config,
             const std::string &name, Value x, Value lengths) {
  int64_t hidden = config.hidden, head = hidden / config.heads;
  Split heads = {0, 3, head};
  double xavier = std::sqrt(6.0 / double(4 * hidden));
  Value y = m.layerNorm(name + ".norm1", x, /*hasShift=*/true, kEpsilon);
  Value weight =
      m.parameter(name + ".self_attn.in_proj_weight", {3 * hidden, hidden},
                  {InitKind::uniform, -xavier, xavier}, heads);
  Value bias =
      m.parameter(name + ".self_attn.in_proj_bias", {3 * hidden}, {}, heads);
  y = m.attention(name + ".self_attn.dropout",
                  m.linear(y, weight, bias, kOutIn), config.heads,
                  /*isCausal=*/false, lengths, config.attentionDropout);
  y = m.linear(name + ".self_attn.out_proj", y, hidden, uniformFor(hidden),
               Start{}, kOutIn, Parallel::rows(head));
  x = m.c.add(x, m.dropout(name + ".dropout1", y, config.dropout));
  y = m.layerNorm(name + ".norm2", x, /*hasShift=*/true, kEpsilon);
  y = m.gelu(
      linear(m, name + ".linear1", y, config.feedForward, Parallel::columns()));
  y = linear(m, name + ".linear2",
             m.dropout(name + ".dropout", y, config.dropout), hidden,
             Parallel::rows());
  return m.c.add(x, m.dropout(name + ".dropout2", y, config.dropout));
}

/// Mean over the positions that hold a token.
Value averageTokens(ModelBuilder &m, Value x, Value lengths) {
  RankedTensorType type = tensorType(x);
  auto rows = RankedTensorType::get(type.getShape().drop_back(),
                                    m.c.builder.getI32Type());
  Value isToken = m.c.compare(
      Predicate::lt, m.c.broadcast("s->bs", m.c.iota(rows.getDimSize(1)), rows),
      m.c.broadcast("b->bs", lengths, rows));
  Value weight = m.c.convert(isToken, type.getElementType());
  Value count = m.c.convert(lengths, type.getElementType());
  count = m.c.maximum(count, m.c.fill(1, count)); // A sample may be padding.
  Value share = m.c.div(weight, m.c.spreadRows(count, weight));
  return m.c.sum("bsd->bd", m.c.mul(x, m.c.spreadRows(share, x)));
}

} // namespace

/// A transformer encoder that classifies sentences, with the names of PyTorch's
/// TransformerEncoder.
void classifier(ModelBuilder &m, const ModelConfig &config) {
  Start normal = {InitKind::normal, 0, 0.02};
  Value tokens = m.integers("tokens", {config.sequence});
  Value lengths = m.integers("length", {});
  Value label = m.integers("label", {});
  Value x = m.embedding("embedding.weight", tokens, config.vocabulary,
                        config.hidden, normal, Split{0});
  x = m.addPositions("positions.weight", x, config.maximumPositions, normal);
  x = m.dropout("dropout", x, config.dropout);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    auto scope = m.layer(layer);
    x = encode(m, config, "encoder.layers." + std::to_string(layer), x,
               lengths);
  }
  x = m.layerNorm("encoder.norm", x, /*hasShift=*/true, kEpsilon);
  Value logits =
      linear(m, "head", averageTokens(m, x, lengths), config.classes);
  m.addCrossEntropy(logits, label);
  m.countCorrect(logits, label);
}

} // namespace kiln
