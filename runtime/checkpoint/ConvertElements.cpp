// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/ConvertElements.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace kiln {

namespace {

float fromBfloat16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

/// Sign, 5 bits of exponent, 10 of fraction. Exact: f32 holds them all.
float fromHalf(uint16_t bits) {
  uint32_t sign = uint32_t{bits} >> 15 << 31;
  uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) // Infinite, or not a number.
    return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent == 0) { // Below the smallest normal number: fraction * 2^-24.
    float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

template <typename Stored, typename Element, typename Decode>
void convert(std::span<const std::byte> source, std::span<std::byte> target,
             Decode decode) {
  for (size_t i = 0; i < target.size() / sizeof(Element); ++i) {
    Stored stored;
    std::memcpy(&stored, source.data() + i * sizeof(Stored), sizeof(Stored));
    auto element = static_cast<Element>(decode(stored));
    std::memcpy(target.data() + i * sizeof(Element), &element, sizeof(Element));
  }
}

template <typename Element>
void convertTo(std::string_view dtype, std::span<const std::byte> source,
               std::span<std::byte> target) {
  if (dtype == "F64")
    convert<double, Element>(source, target, [](double x) { return x; });
  else if (dtype == "F32")
    convert<float, Element>(source, target, [](float x) { return x; });
  else if (dtype == "F16")
    convert<uint16_t, Element>(source, target, fromHalf);
  else
    convert<uint16_t, Element>(source, target, fromBfloat16);
}

} // namespace

bool isFloating(std::string_view dtype) {
  return dtype == "F64" || dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

void convertElements(std::string_view dtype, std::span<const std::byte> source,
                     artifact::ElementType type, std::span<std::byte> target) {
  if (type == artifact::ElementType::f64)
    convertTo<double>(dtype, source, target);
  else
    convertTo<float>(dtype, source, target);
}

} // namespace kiln
