// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TEST_COMPILER_FUSE_RANDOMDAG_H
#define KILN_TEST_COMPILER_FUSE_RANDOMDAG_H

#include "dialects/kiln/Composer.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <array>
#include <optional>
#include <random>
#include <vector>

namespace kiln::test {

/// Writes a random function of elementwise ops, broadcasts, reductions and
/// changes of shape. Values lie in one of a few *spaces*: shapes that reshapes
/// and transposes lead between. A value has some of the dimensions of its
/// space, in order, so any two of a space can be brought together by
/// broadcasting.
///
/// Functions are continuous in what is rounded, so that another order of
/// summation changes results a little and not at all points: comparisons and
/// conversions to integers read only values that no op has rounded.
class RandomDag {
public:
  /// Size and range of an argument.
  struct Argument {
    int64_t elements = 0;
    double low = -1, high = 1;
    bool isInteger = false;
  };

  /// Adds function `name` to the module. Half of the seeds give functions in
  /// f32; `isWidened` writes those in f64 too, with the same arguments.
  RandomDag(mlir::ModuleOp module, const std::string &name, uint64_t seed,
            bool isWidened = false);

  const std::vector<Argument> &getArguments() const { return arguments; }
  /// Of the seed, whether widened or not.
  bool isF32() const { return isNarrow; }

private:
  struct Node {
    mlir::Value value;
    unsigned space = 0;
    std::vector<bool> has; // Dimensions of the space.
    bool isExact = false;  // Equal in every correct program, to the bit.
  };
  /// A space and how its values come from the first one.
  struct Space {
    std::vector<int64_t> sizes;
    std::string transposed; // Equation from the first space, if it is one.
  };

  unsigned draw(unsigned below) { return generator() % below; }
  bool chance(unsigned percent) { return draw(100) < percent; }

  void chooseSpaces();
  void addArgument(const Node &shape, mlir::Type type, double low, double high);
  void addOp();
  void addUnary();
  void addBinary();
  void addReduction();
  void addReductionOf(Node node);
  void addGate();
  void addNormalisation();
  void addColumnSum();
  void addBroadcast();
  void addSelect();
  void addConversion();
  void addMove();
  void addIota();
  void addEmbedding();
  void finish();

  const Node &pick();
  const Node *pickWhere(bool isExact);
  Node spread(const Node &node, const std::vector<bool> &has);
  std::vector<bool> joined(const Node &a, const Node &b) const;
  mlir::RankedTensorType typeOf(unsigned space, const std::vector<bool> &has,
                                mlir::Type type) const;
  static std::string letters(const std::vector<bool> &has);
  void push(mlir::Value value, const Node &like, bool isExact);

  std::mt19937_64 generator;
  mlir::OpBuilder builder;
  Composer c;
  bool isNarrow;
  mlir::Type element;
  mlir::func::FuncOp function;
  std::vector<Space> spaces;
  std::vector<Node> nodes;
  std::vector<Argument> arguments;
};

} // namespace kiln::test

#endif // KILN_TEST_COMPILER_FUSE_RANDOMDAG_H
