// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/CompareTensors.h"
#include "runtime/checkpoint/ConvertElements.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace kiln {

std::string TensorDifference::describe() const {
  if (isEqual)
    return "equal";
  if (!unlike.empty())
    return unlike;
  if (!maximum)
    return "different";
  char text[64];
  std::snprintf(text, sizeof(text), "different by at most %.6g", *maximum);
  return text;
}

/// The greatest difference of floats; NaN if any element is NaN.
static double greatest(std::string_view dtype, std::span<const std::byte> first,
                       std::span<const std::byte> second) {
  size_t count = first.size() / dtypeBytes(dtype);
  std::vector<double> a(count), b(count);
  for (auto [bytes, values] : {std::pair(first, &a), std::pair(second, &b)})
    convertElements(dtype, bytes, artifact::ElementType::f64,
                    std::as_writable_bytes(std::span(*values)));
  double maximum = 0;
  for (size_t i = 0; i < count; ++i) {
    double difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference) && a[i] != b[i])
      return difference;
    maximum = std::max(maximum, difference);
  }
  return maximum;
}

Expected<TensorDifference> compareTensors(const Safetensors &firstFile,
                                          const Safetensors::Entry &first,
                                          const Safetensors &secondFile,
                                          const Safetensors::Entry &second) {
  TensorDifference result;
  if (first.dtype != second.dtype || first.shape != second.shape) {
    result.unlike = first.describe() + " and " + second.describe();
    return result;
  }
  result.isEqual = true;
  if (isFloating(first.dtype))
    result.maximum = 0;
  constexpr uint64_t pieceBytes = uint64_t{1} << 20;
  std::vector<std::byte> a(std::min(first.bytes(), pieceBytes)), b(a.size());
  for (uint64_t offset = 0; offset < first.bytes(); offset += pieceBytes) {
    uint64_t size = std::min(pieceBytes, first.bytes() - offset);
    std::span<std::byte> left = std::span(a).first(size),
                         right = std::span(b).first(size);
    if (Status status = firstFile.read(first, offset, left); !status.ok())
      return status;
    if (Status status = secondFile.read(second, offset, right); !status.ok())
      return status;
    if (std::memcmp(left.data(), right.data(), size) == 0)
      continue;
    result.isEqual = false;
    if (!result.maximum)
      return result;
    double here = greatest(first.dtype, left, right);
    if (!(here <= *result.maximum))
      result.maximum = here;
    if (std::isnan(here))
      return result;
  }
  return result;
}

} // namespace kiln
