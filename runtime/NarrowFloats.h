// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Floats of 16 bits, as they lie in memory. Conversions round to nearest, ties
// to even, and once: from f64 too.
#ifndef KILN_RUNTIME_NARROWFLOATS_H
#define KILN_RUNTIME_NARROWFLOATS_H

#include <bit>
#include <cmath>
#include <cstdint>

namespace kiln {

namespace detail {

/// To f32, where the last bit is set if anything is lost: then rounding further
/// is the same as rounding at once.
inline float toSticky(double value) {
  auto nearest = static_cast<float>(value);
  double back = nearest;
  if (back == value || value != value)
    return nearest;
  auto bits = std::bit_cast<uint32_t>(nearest);
  if (std::abs(back) > std::abs(value))
    --bits; // Toward zero.
  return std::bit_cast<float>(bits | 1);
}

} // namespace detail

/// The upper half of an f32.
class Bfloat16 {
public:
  Bfloat16() = default;
  explicit Bfloat16(float value) : bits_(round(value)) {}
  explicit Bfloat16(double value) : Bfloat16(detail::toSticky(value)) {}
  operator float() const { return std::bit_cast<float>(uint32_t{bits_} << 16); }

private:
  static uint16_t round(float value) {
    auto bits = std::bit_cast<uint32_t>(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    // Rounding could turn a NaN into infinity.
    bool isNan = value != value;
    return static_cast<uint16_t>(isNan ? bits >> 16 | 0x40 : rounded);
  }

  uint16_t bits_ = 0;
};

/// IEEE's binary16: sign, 5 bits of exponent, 10 of fraction.
class Half {
public:
  Half() = default;
  explicit Half(float value) : bits_(round(value)) {}
  explicit Half(double value) : Half(detail::toSticky(value)) {}
  operator float() const {
    uint32_t sign = uint32_t{bits_} >> 15 << 31;
    uint32_t exponent = bits_ >> 10 & 31, fraction = bits_ & 1023;
    if (exponent == 31) // Infinite, or not a number.
      return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
    if (exponent != 0)
      return std::bit_cast<float>(sign | (exponent + 112) << 23 |
                                  fraction << 13);
    // Below the smallest normal number: fraction * 2^-24, which is normal.
    float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }

private:
  static uint16_t round(float value) {
    auto bits = std::bit_cast<uint32_t>(value);
    uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000)
      return static_cast<uint16_t>(sign | 0x7e00);
    if (size >= 0x47800000) // 2^16: infinity, and what rounds to it.
      return static_cast<uint16_t>(sign | 0x7c00);
    if (size < 0x38800000) { // 2^-14: the sum's unit is that of denormals.
      float sum = std::bit_cast<float>(size) + 0.5f;
      return static_cast<uint16_t>(sign |
                                   (std::bit_cast<uint32_t>(sum) - 0x3f000000));
    }
    uint32_t isOdd = size >> 13 & 1;
    return static_cast<uint16_t>(sign |
                                 (size - (112u << 23) + 0xfff + isOdd) >> 13);
  }

  uint16_t bits_ = 0;
};

} // namespace kiln

#endif // KILN_RUNTIME_NARROWFLOATS_H
