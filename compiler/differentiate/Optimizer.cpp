// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/differentiate/Optimizer.h"

#include "llvm/Support/xxhash.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <tuple>

using namespace mlir;

namespace kiln {

SmallVector<StringRef> Optimizer::reported() const {
  SmallVector<StringRef> names = {"loss", "learning_rate", "grad_norm"};
  if (lossScale)
    llvm::append_range(names, LossScale::reported());
  return names;
}

Value Optimizer::read(VariableOp variable) {
  return c.widen(ReadOp::create(c.builder, c.loc, variable.getTensorType(),
                                variable.getSymName()));
}

// Sharded like its parameter.
VariableOp Optimizer::declareMoment(VariableOp parameter, StringRef suffix) {
  RankedTensorType type = parameter.getTensorType();
  if (moments)
    type = type.clone(moments);
  VariableOp moment =
      declare((parameter.getSymName() + suffix).str(), type, Role::moment);
  moment.setShardingAttr(parameter.getShardingAttr());
  return moment;
}

// A loss or norm that is not finite leaves every variable as it was: there is
// no host branch inside a step.
void Optimizer::assign(VariableOp variable, Value old, Value value) {
  Value kept = c.select(c.spread(isFinite, value), value, old);
  Type element = variable.getTensorType().getElementType();
  AssignOp::create(c.builder, c.loc, variable.getSymName(),
                   c.convert(kept, element));
}

// The row and the column of each element of a tensor, so that both fit i32
// where the index does not. A row is all but the last dimension.
static std::pair<Value, Value> indexElements(Composer &c,
                                             RankedTensorType type) {
  RankedTensorType box = type.clone(c.builder.getI32Type());
  std::string letters = indexLetters(type.getRank());
  Value rows = c.broadcast("->" + letters,
                           c.constant(0, c.builder.getI32Type()), box),
        columns = rows;
  int64_t stride = 1;
  for (int64_t dim = type.getRank() - 1; dim >= 0; --dim) {
    Value indices = c.broadcast(letters.substr(dim, 1) + "->" + letters,
                                c.iota(type.getDimSize(dim)), box);
    if (dim == type.getRank() - 1) {
      columns = indices;
      continue;
    }
    rows = c.add(rows, c.mul(indices, double(stride)));
    stride *= type.getDimSize(dim);
  }
  return {rows, columns};
}

// Without a master, rounding to nearest would lose every update of less than
// half the distance to the next bf16. Draws are by step, name and element.
Value Optimizer::roundStochastically(VariableOp parameter, Value value) {
  Builder &b = c.builder;
  Value seed = read(declare(
      kSeedSetting, RankedTensorType::get({}, b.getI64Type()), Role::setting));
  auto [rows, columns] = indexElements(c, tensorType(value));
  Value now = c.convert(step, b.getI32Type());
  int64_t stream = llvm::xxh3_64bits(parameter.getSymName());
  return StochasticRoundOp::create(
      c.builder, c.loc, tensorType(value).clone(b.getBF16Type()), value, rows,
      columns, c.spread(now, rows), c.spread(seed, rows),
      b.getI64IntegerAttr(stream));
}

// Its working copy is written beside it, so that both stay the same.
void Optimizer::assignParameter(VariableOp parameter, Value old, Value value) {
  if (isNarrow(parameter.getTensorType().getElementType()))
    value = c.widen(roundStochastically(parameter, value));
  assign(parameter, old, value);
  VariableOp copy = findCopy(parameter);
  if (copy)
    assign(copy, old, value);
}

Value Optimizer::scalarLike(Value scalar, Value like) {
  return c.spread(c.convert(scalar, tensorType(like).getElementType()), like);
}

// Rises linearly to the peak over `warmup` steps, then falls along half a
// cosine to the minimum at `steps`. A rate that stays has its peak as minimum.
// Without warm-up the rise is infinite, which its minimum with 1 takes for
// done.
Value Optimizer::buildRate() {
  SmallVector<Value> settings;
  for (StringRef name : kRateSettings)
    settings.push_back(
        read(declare(name, RankedTensorType::get({}, c.builder.getF64Type()),
                     Role::setting)));
  auto [peak, minimum, warmup, steps] =
      std::tuple(settings[0], settings[1], settings[2], settings[3]);
  Value one = c.fill(1, step), span = c.maximum(c.sub(steps, warmup), one);
  Value progress = c.div(c.sub(step, warmup), span);
  progress = c.minimum(c.maximum(progress, c.fill(0, progress)), one);
  Value wave = c.mul(c.add(c.cos(c.mul(progress, std::numbers::pi)), 1), 0.5);
  Value rate = c.add(c.mul(wave, c.sub(peak, minimum)), minimum);
  return c.mul(rate, c.minimum(c.div(step, warmup), one));
}

SmallVector<Value> Optimizer::scale(ValueRange grads, Value factor) {
  SmallVector<Value> scaled;
  for (Value grad : grads)
    scaled.push_back(c.mul(grad, scalarLike(factor, grad)));
  return scaled;
}

Value Optimizer::buildNorm(ValueRange grads) {
  Value total;
  for (Value grad : grads) {
    Value square = c.sumAll(c.mul(grad, grad));
    total = total ? c.add(total, square) : square;
  }
  return c.sqrt(total);
}

// v = mu v + g, p = p - rate v; decay is added to the gradient.
void Optimizer::updateSgd(VariableOp parameter, Value grad) {
  Value p = read(parameter);
  if (options.weightDecay > 0 && parameter.getDecays())
    grad = c.add(grad, c.mul(p, options.weightDecay));
  if (options.momentum > 0) {
    VariableOp moment = declareMoment(parameter, ".momentum");
    Value old = read(moment);
    grad = c.add(c.mul(old, options.momentum), grad);
    assign(moment, old, grad);
  }
  assignParameter(parameter, p, c.sub(p, c.mul(grad, scalarLike(rate, p))));
}

// m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
// p = p - rate / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + epsilon).
// Adam adds decay to the gradient; AdamW takes rate * decay * p off the
// parameter.
void Optimizer::updateAdam(VariableOp parameter, Value grad) {
  Value p = read(parameter);
  bool decays = options.weightDecay > 0 && parameter.getDecays();
  if (decays && options.optimizer == "adam")
    grad = c.add(grad, c.mul(p, options.weightDecay));
  VariableOp first = declareMoment(parameter, ".exp_avg"),
             second = declareMoment(parameter, ".exp_avg_sq");
  Value oldM = read(first), oldV = read(second);
  Value m = c.add(c.mul(oldM, options.beta1), c.mul(grad, 1 - options.beta1));
  Value v = c.add(c.mul(oldV, options.beta2),
                  c.mul(c.mul(grad, grad), 1 - options.beta2));
  auto correction = [&](double beta) {
    return c.sub(c.fill(1, step), c.exp(c.mul(step, std::log(beta))));
  };
  Value size = c.div(rate, correction(options.beta1));
  Value root = c.rsqrt(correction(options.beta2));
  Value denominator =
      c.add(c.mul(c.sqrt(v), scalarLike(root, v)), options.epsilon);
  Value shrunk = p;
  if (decays && options.optimizer == "adamw") {
    Value keep = c.sub(c.fill(1, rate), c.mul(rate, options.weightDecay));
    shrunk = c.mul(p, scalarLike(keep, p));
  }
  Value moved =
      c.sub(shrunk, c.mul(scalarLike(size, p), c.div(m, denominator)));
  assign(first, oldM, m);
  assign(second, oldV, v);
  assignParameter(parameter, p, moved);
}

// s = s + momentum (total / samples - s)
void Optimizer::follow(VariableOp statistic, Value total, Value samples,
                       double momentum) {
  Value old = read(statistic);
  Value mean = c.div(total, scalarLike(samples, total));
  assign(statistic, old, c.add(old, c.mul(c.sub(mean, old), momentum)));
}

SmallVector<Value> Optimizer::update(ArrayRef<VariableOp> parameters,
                                     ValueRange grads, Value loss) {
  VariableOp count = declare(
      "step", RankedTensorType::get({}, c.builder.getF64Type()), Role::state);
  Value before = read(count);
  step = c.add(before, 1);
  rate = buildRate();
  // No variable is assigned before every gradient is known to be finite. The
  // norm of finite gradients can overflow: that too stops the update.
  SmallVector<Value> wide;
  for (Value grad : grads)
    wide.push_back(c.widen(grad));
  Value norm = buildNorm(wide), scaleBefore, factor;
  if (lossScale) {
    // The norm is that of the scaled gradients: unscaled ones would be stored,
    // since both norm and update read them. The sum of their squares stays far
    // within f32: an f16 is at most 65504, so 1e9 of them give 4.3e18, and sums
    // of them over 1e6 micro-batches 4.3e30. Sums of gradients that never were
    // f16 have no such bound; if theirs overflows, the step is skipped and the
    // scale halved, as for any that is not finite.
    scaleBefore = lossScale->read(c);
    factor = c.div(c.fill(1, scaleBefore), scaleBefore);
    norm = c.mul(norm, c.convertLike(factor, norm));
  }
  isFinite = c.compare(Predicate::lt, c.add(c.abs(loss), norm),
                       std::numeric_limits<double>::infinity());
  if (options.clipNorm > 0) {
    Value clip =
        c.minimum(c.div(c.fill(options.clipNorm, norm), c.add(norm, 1e-6)),
                  c.fill(1, norm));
    factor = factor ? c.mul(factor, c.convertLike(clip, factor)) : clip;
  }
  SmallVector<Value> scaled = factor ? scale(wide, factor) : wide;
  assign(count, before, step);
  for (auto [parameter, grad] : llvm::zip_equal(parameters, scaled)) {
    if (options.optimizer == "sgd")
      updateSgd(parameter, grad);
    else
      updateAdam(parameter, grad);
  }
  SmallVector<Value> reports = {loss, rate, norm};
  if (lossScale)
    llvm::append_range(reports, lossScale->follow(c, scaleBefore, isFinite));
  return reports;
}

} // namespace kiln
