// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "models/Models.h"

using namespace mlir;

namespace kiln {

namespace {

constexpr double kEpsilon = 1e-12;
constexpr Start kNormal = {InitKind::normal, 0, 0.02};

Value linear(ModelBuilder &m, const std::string &name, Value x, int64_t out,
             Parallel parallel = {}) {
  return m.linear(name, x, out, kNormal, Start{}, LinearLayout::OutIn,
                  parallel);
}

Value norm(ModelBuilder &m, const std::string &name, Value x) {
  return m.layerNorm(name + ".LayerNorm", x, /*hasShift=*/true, kEpsilon);
}

/// One layer: attention and feed-forward, each followed by a norm.
Value encode(ModelBuilder &m, const ModelConfig &config,
             const std::string &name, Value x, Value lengths) {
  std::string self = name + ".attention.self";
  int64_t head = config.hidden / config.heads;
  SmallVector<Value> parts;
  for (const char *part : {".query", ".key", ".value"})
    parts.push_back(
        linear(m, self + part, x, config.hidden, Parallel::columns(head)));
  Value y =
      m.attention(self + ".dropout", m.c.concatenate(parts, 2), config.heads,
                  /*isCausal=*/false, lengths, config.attentionDropout);
  std::string output = name + ".attention.output";
  y = linear(m, output + ".dense", y, config.hidden, Parallel::rows(head));
  x = norm(m, output,
           m.c.add(m.dropout(output + ".dropout", y, config.dropout), x));
  y = m.gelu(linear(m, name + ".intermediate.dense", x, config.feedForward,
                    Parallel::columns()));
  y = linear(m, name + ".output.dense", y, config.hidden, Parallel::rows());
  return norm(
      m, name + ".output",
      m.c.add(m.dropout(name + ".output.dropout", y, config.dropout), x));
}

} // namespace

/// BERT with its two tasks: predicting masked tokens, and whether the second
/// segment follows the first. Names, layouts and initial values are those of
/// the public checkpoints.
void bert(ModelBuilder &m, const ModelConfig &config) {
  Value tokens = m.integers("tokens", {config.sequence});
  Value segments = m.integers("segments", {config.sequence});
  Value lengths = m.integers("length", {});
  Value positions = m.integers("positions", {config.predictions});
  Value labels = m.integers("labels", {config.predictions});
  Value next = m.integers("next", {});

  std::string embeddings = "bert.embeddings";
  std::string words = embeddings + ".word_embeddings.weight";
  Split rows = {0}; // Of the vocabulary, over `tensor`.
  Value x = m.embedding(words, tokens, config.vocabulary, config.hidden,
                        kNormal, rows);
  x = m.c.add(x, m.embedding(embeddings + ".token_type_embeddings.weight",
                             segments, 2, config.hidden, kNormal));
  x = m.addPositions(embeddings + ".position_embeddings.weight", x,
                     config.maximumPositions, kNormal);
  x = m.dropout(embeddings + ".dropout", norm(m, embeddings, x),
                config.dropout);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    auto scope = m.layer(layer);
    x = encode(m, config, "bert.encoder.layer." + std::to_string(layer), x,
               lengths);
  }

  // The head of the masked tokens is the word embedding table and a bias.
  Value masked = m.takeRows(x, positions);
  masked = m.gelu(
      linear(m, "cls.predictions.transform.dense", masked, config.hidden));
  masked = norm(m, "cls.predictions.transform", masked);
  Value table =
      m.parameter(words, {config.vocabulary, config.hidden}, kNormal, rows);
  Value bias =
      m.parameter("cls.predictions.bias", {config.vocabulary}, {}, rows);
  Value logits = m.linear(masked, table, bias, LinearLayout::OutIn);
  m.addCrossEntropy(logits, labels);

  ArrayRef<int64_t> shape = tensorType(x).getShape();
  Value first = m.c.reshape(m.c.slice(x, 1, 0, 1), {shape[0], shape[2]});
  Value pooled = m.c.tanh(linear(m, "bert.pooler.dense", first, config.hidden));
  m.addCrossEntropy(linear(m, "cls.seq_relationship", pooled, 2), next);
  m.countCorrect(logits, labels);
}

/// As in Hugging Face's BertForPreTraining. The first public files use
/// TensorFlow's names for scale and shift of a norm.
PublicNames bertNames(const ModelConfig &) {
  PublicNames names;
  names.prefix = "bert.";
  names.bare = {"cls."};
  names.ignored = {"position_ids"};
  names.aliases = {{"cls.predictions.decoder.weight",
                    "bert.embeddings.word_embeddings.weight"},
                   {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
  names.renamed = {{"LayerNorm.gamma", "LayerNorm.weight"},
                   {"LayerNorm.beta", "LayerNorm.bias"}};
  return names;
}

} // namespace kiln
