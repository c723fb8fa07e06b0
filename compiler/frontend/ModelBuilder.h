// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_FRONTEND_MODELBUILDER_H
#define KILN_COMPILER_FRONTEND_MODELBUILDER_H

#include "compiler/config/Config.h"
#include "dialects/kiln/Composer.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <optional>
#include <string>

namespace kiln {

/// Initialiser of a parameter.
struct Start {
  InitKind kind = InitKind::zeros;
  double a = 0, b = 0;
};

/// Dimension along which a parameter is sharded over the mesh axis `tensor`,
/// see CutAttr; without one it is replicated.
struct Split {
  std::optional<int64_t> dimension;
  int64_t blocks = 1, unit = 1;
};

/// Tensor parallelism of a linear layer or a convolution: a column-parallel one
/// gives shards of the outputs, a row-parallel one after it partial sums.
struct Parallel {
  enum class Side { None, Columns, Rows } side = Side::None;
  int64_t blocks = 1, unit = 1;

  static Parallel columns(int64_t unit = 1, int64_t blocks = 1) {
    return {Side::Columns, blocks, unit};
  }
  static Parallel rows(int64_t unit = 1) { return {Side::Rows, 1, unit}; }
  /// For a weight with this dimension of outputs and that of inputs.
  Split weight(int64_t out, int64_t in) const {
    if (side == Side::None)
      return {};
    return {side == Side::Columns ? out : in, blocks, unit};
  }
  /// For a vector with one element per output.
  Split vector() const {
    return side == Side::Columns ? Split{0, blocks, unit} : Split{};
  }
};

/// Layout of the weight matrix of a linear layer in public checkpoints.
enum class LinearLayout { InOut, OutIn };

/// Training builds the loss. Evaluation builds metrics on held-out data,
/// without dropout and with running statistics in norms.
enum class Purpose { Training, Evaluation };

/// Writes a model in f32 as a function on a symbolic batch, `model` for
/// training or `evaluate`. The files in models/ use it. Parameters become
/// variables when first named; naming one again gives the same value, which
/// ties weights.
class ModelBuilder {
public:
  ModelBuilder(mlir::ModuleOp module, Purpose purpose);

  bool isTraining() const { return purpose == Purpose::Training; }

  /// Ops built during its lifetime belong to one layer.
  class LayerScope {
  public:
    LayerScope(ModelBuilder &model, int64_t number) : model(model) {
      model.marks.layer = number;
    }
    ~LayerScope() { model.marks.layer.reset(); }
    LayerScope(const LayerScope &) = delete;

  private:
    ModelBuilder &model;
  };
  LayerScope layer(int64_t number) { return {*this, number}; }

  /// Ops built during its lifetime have this name in their locations.
  class NameScope {
  public:
    NameScope(ModelBuilder &model, llvm::StringRef name);
    ~NameScope() { model.c.loc = outer; }
    NameScope(const NameScope &) = delete;

  private:
    ModelBuilder &model;
    mlir::Location outer;
  };

  /// One batch of samples of the given shape.
  mlir::Value input(llvm::StringRef name, llvm::ArrayRef<int64_t> sampleShape);
  mlir::Value integers(llvm::StringRef name,
                       llvm::ArrayRef<int64_t> sampleShape);

  /// Weight decay applies to matrices, not to vectors (biases, scales of
  /// norms).
  mlir::Value parameter(llvm::StringRef name, llvm::ArrayRef<int64_t> shape,
                        Start start, Split split = {});

  /// Uses `name.weight` and, if `bias` is given, `name.bias`.
  mlir::Value linear(llvm::StringRef name, mlir::Value x, int64_t out,
                     Start weight, std::optional<Start> bias,
                     LinearLayout layout, Parallel parallel = {});
  /// The same for parameters with other names.
  mlir::Value linear(mlir::Value x, mlir::Value weight, mlir::Value bias,
                     LinearLayout layout);
  mlir::Value layerNorm(llvm::StringRef name, mlir::Value x, bool hasShift,
                        double epsilon);
  /// Over the last dimension, with running statistics `name.running_mean` and
  /// `name.running_var`.
  mlir::Value batchNorm(llvm::StringRef name, mlir::Value x, int64_t group,
                        double momentum, Split split = {});
  mlir::Value embedding(llvm::StringRef name, mlir::Value ids, int64_t rows,
                        int64_t width, Start start, Split split = {});
  /// The first `sequence` of `rows` learned vectors, added to x.
  mlir::Value addPositions(llvm::StringRef name, mlir::Value x, int64_t rows,
                           Start start);
  mlir::Value geluTanh(mlir::Value x);
  mlir::Value gelu(mlir::Value x);
  mlir::Value relu(mlir::Value x);
  /// `name` selects the random stream, so that each use in the model draws its
  /// own numbers.
  mlir::Value dropout(llvm::StringRef name, mlir::Value x, double rate);
  /// Self-attention over packed queries, keys and values [batch, sequence, 3 *
  /// hidden]. Positions from `lengths` on are masked (null: none are).
  mlir::Value attention(llvm::StringRef name, mlir::Value packed, int64_t heads,
                        bool isCausal, mlir::Value lengths, double dropoutRate);
  /// Square windows over [batch, height, width, channels], padded so that only
  /// the stride makes the image smaller. `name.weight`, no bias.
  mlir::Value convolution(llvm::StringRef name, mlir::Value x, int64_t out,
                          int64_t window, int64_t stride, Start start,
                          Parallel parallel = {});
  mlir::Value maxPool(mlir::Value x, int64_t window, int64_t stride,
                      int64_t padding);
  /// Rows positions[b, p] of x[b, s, d].
  mlir::Value takeRows(mlir::Value x, mlir::Value positions);

  /// Adds the mean over all labelled rows to the loss.
  void addCrossEntropy(mlir::Value logits, mlir::Value labels);
  void addHeadCrossEntropy(mlir::Value x, mlir::Value weight,
                           mlir::Value labels);
  /// Evaluation also counts the rows whose greatest logit is the label's.
  void countCorrect(mlir::Value logits, mlir::Value labels);

  /// Ends the function.
  void finish();

  Composer c;

private:
  /// Marks ops of a loss with their layer.
  struct Marks : mlir::OpBuilder::Listener {
    std::optional<int64_t> layer;
    bool isAttention = false;
    void notifyOperationInserted(mlir::Operation *op,
                                 mlir::OpBuilder::InsertPoint) override;
  };

  mlir::Value addArgument(mlir::RankedTensorType type,
                          mlir::NamedAttribute attribute);
  void declare(llvm::StringRef name, mlir::RankedTensorType type, Role role,
               Start start, Split split = {});
  mlir::Value addVariable(llvm::StringRef name, mlir::RankedTensorType type,
                          Role role, Start start, llvm::StringRef attribute,
                          Split split = {});
  mlir::Value attendInParts(llvm::StringRef name, mlir::Value split,
                            bool isCausal, mlir::Value lengths, double scale,
                            double dropoutRate);
  mlir::Value countLabels(mlir::Value labels);
  mlir::Value getSamples();
  mlir::Value getStep();
  mlir::Value getSeed();
  void addResult(mlir::Value value, const std::string &name,
                 llvm::ArrayRef<mlir::NamedAttribute> attributes = {});
  void addLoss(mlir::Value total, mlir::Value count);
  void addCorrect(mlir::Value correct, mlir::Value labels);
  void follow(llvm::StringRef variable, mlir::Value total, double momentum);

  mlir::ModuleOp module;
  Purpose purpose;
  Marks marks;
  mlir::OpBuilder builder;
  mlir::func::FuncOp function;
  llvm::StringMap<mlir::Value> arguments; // Inputs and variables by name.
  llvm::SmallVector<mlir::Value> results;
  llvm::SmallVector<std::string> resultNames;
  llvm::SmallVector<mlir::Attribute> resultAttributes;
  unsigned losses = 0;
};

} // namespace kiln

#endif // KILN_COMPILER_FRONTEND_MODELBUILDER_H
