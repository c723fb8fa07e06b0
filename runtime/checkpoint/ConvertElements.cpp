// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/ConvertElements.h"
#include "runtime/NarrowFloats.h"

#include <cstring>

namespace kiln {

namespace {

template <typename Stored, typename Element>
void convert(std::span<const std::byte> source, std::span<std::byte> target) {
  for (size_t i = 0; i < target.size() / sizeof(Element); ++i) {
    Stored stored;
    std::memcpy(&stored, source.data() + i * sizeof(Stored), sizeof(Stored));
    auto element = static_cast<Element>(stored);
    std::memcpy(target.data() + i * sizeof(Element), &element, sizeof(Element));
  }
}

template <typename Element>
void convertTo(std::string_view dtype, std::span<const std::byte> source,
               std::span<std::byte> target) {
  if (dtype == "F64")
    convert<double, Element>(source, target);
  else if (dtype == "F32")
    convert<float, Element>(source, target);
  else if (dtype == "F16")
    convert<Half, Element>(source, target);
  else
    convert<Bfloat16, Element>(source, target);
}

} // namespace

bool isFloating(std::string_view dtype) {
  return dtype == "F64" || dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

void convertElements(std::string_view dtype, std::span<const std::byte> source,
                     artifact::ElementType type, std::span<std::byte> target) {
  switch (type) {
  case artifact::ElementType::f64:
    return convertTo<double>(dtype, source, target);
  case artifact::ElementType::bf16:
    return convertTo<Bfloat16>(dtype, source, target);
  case artifact::ElementType::f16:
    return convertTo<Half>(dtype, source, target);
  default:
    return convertTo<float>(dtype, source, target);
  }
}

} // namespace kiln
