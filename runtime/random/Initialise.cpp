// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/random/Initialise.h"
#include "runtime/NarrowFloats.h"
#include "runtime/random/Philox.h"

#include <cmath>
#include <numbers>

namespace kiln {

using artifact::ElementType;
using artifact::InitKind;

namespace {

/// The elements of one variable before rounding to its type.
class Generator {
public:
  Generator(const artifact::Variable &variable, uint64_t seed)
      : stream_(seed, variable.name()->string_view()),
        kind_(variable.init() ? variable.init()->kind() : InitKind::zeros),
        a_(variable.init() ? variable.init()->a() : 0),
        b_(variable.init() ? variable.init()->b() : 0) {}

  double operator()(uint64_t index) {
    switch (kind_) {
    case InitKind::zeros:
      return 0;
    case InitKind::ones:
      return 1;
    case InitKind::constant:
      return a_;
    case InitKind::uniform:
      return uniform(index);
    case InitKind::normal:
      return normal(index);
    }
    return 0;
  }

private:
  double uniform(uint64_t index) {
    PhiloxCounter bits = stream_.block(index / 2);
    bool isSecond = index % 2;
    return a_ + (b_ - a_) * unitInterval(bits[isSecond ? 2 : 0],
                                         bits[isSecond ? 3 : 1]);
  }

  // Box and Muller: one block of random bits gives two independent normal
  // numbers.
  double normal(uint64_t index) {
    PhiloxCounter bits = stream_.block(index / 2);
    // 1 - u lies in (0, 1], where the logarithm is finite.
    double radius =
        std::sqrt(-2 * std::log(1 - unitInterval(bits[0], bits[1])));
    double angle = 2 * std::numbers::pi * unitInterval(bits[2], bits[3]);
    double unit = radius * (index % 2 ? std::sin(angle) : std::cos(angle));
    return a_ + b_ * unit;
  }

  PhiloxStream stream_;
  InitKind kind_;
  double a_, b_;
};

template <typename Element>
void fill(Generator generate, std::byte *target, uint64_t begin, uint64_t end) {
  auto *elements = reinterpret_cast<Element *>(target);
  for (uint64_t i = begin; i < end; ++i)
    elements[i - begin] = static_cast<Element>(generate(i));
}

} // namespace

void initialiseRange(const artifact::Variable &variable, uint64_t seed,
                     uint64_t begin, uint64_t end, std::byte *target) {
  Generator generator(variable, seed);
  switch (variable.element_type()) {
  case ElementType::f32:
    return fill<float>(generator, target, begin, end);
  case ElementType::f64:
    return fill<double>(generator, target, begin, end);
  case ElementType::i32:
    return fill<int32_t>(generator, target, begin, end);
  case ElementType::i64:
    return fill<int64_t>(generator, target, begin, end);
  case ElementType::i1:
    return fill<uint8_t>(generator, target, begin, end);
  case ElementType::bf16:
    return fill<Bfloat16>(generator, target, begin, end);
  case ElementType::f16:
    return fill<Half>(generator, target, begin, end);
  }
}

} // namespace kiln
