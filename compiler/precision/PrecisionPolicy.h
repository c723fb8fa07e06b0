// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_PRECISION_PRECISIONPOLICY_H
#define KILN_COMPILER_PRECISION_PRECISIONPOLICY_H

#include "compiler/config/Choices.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kiln {

/// Element types of training. Sums inside an op, losses, denominators, the norm
/// of the gradients and statistics are f32, or f64 if all parts are.
struct PrecisionPolicy {
  FloatFormat parameters = FloatFormat::F32;  ///< As forward and backward read.
  FloatFormat compute = FloatFormat::F32;     ///< Operands of products.
  FloatFormat activations = FloatFormat::F32; ///< Kept for the backward pass.
  FloatFormat gradients = FloatFormat::F32;   ///< Sums over micro-batches.
  FloatFormat messages = FloatFormat::F32;    ///< Terms of sums over devices.
  FloatFormat master = FloatFormat::F32; ///< Parameters as they are updated.
  FloatFormat moments = FloatFormat::F32;
  /// No master copy: parameters of 16 bits are updated by stochastic rounding.
  bool roundsStochastically = false;

  bool operator==(const PrecisionPolicy &) const = default;

  /// The policy that is written as this word.
  static PrecisionPolicy preset(FloatFormat format);
  /// Whether all elements are of this type.
  bool isAll(FloatFormat format) const { return *this == preset(format); }

  /// Whether elements of some part have 16 bits.
  bool hasNarrowParts() const;
  /// Whether forward and backward read a copy of the parameters.
  bool hasWorkingCopy() const {
    return !roundsStochastically && master != parameters;
  }
  /// Whether gradients could underflow, so that the loss is scaled.
  bool scalesLoss() const;
  /// Of a parameter's gradient in a step of that many micro-batches; without
  /// several there is no sum over them.
  FloatFormat gradientsOf(int64_t microBatches) const {
    return microBatches > 1 ? gradients : messages;
  }

  /// As in a config: a word, or a map of all parts.
  std::string print() const;
};

/// A member of the policy by its name in configs.
struct PrecisionPart {
  std::string_view name;
  FloatFormat PrecisionPolicy::*member;
};
std::span<const PrecisionPart> precisionParts();

/// Reasons why a policy makes no sense, each with what would work. Empty if it
/// does.
std::vector<std::string> findFaults(const PrecisionPolicy &policy);

} // namespace kiln

#endif // KILN_COMPILER_PRECISION_PRECISIONPOLICY_H
