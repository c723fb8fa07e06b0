// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/precision/PrecisionPolicy.h"

#include <algorithm>

namespace kiln {

static constexpr PrecisionPart parts[] = {
    {"parameters", &PrecisionPolicy::parameters},
    {"compute", &PrecisionPolicy::compute},
    {"activations", &PrecisionPolicy::activations},
    {"gradients", &PrecisionPolicy::gradients},
    {"messages", &PrecisionPolicy::messages},
    {"master", &PrecisionPolicy::master},
    {"moments", &PrecisionPolicy::moments},
};

std::span<const PrecisionPart> precisionParts() { return parts; }

static bool isNarrow(FloatFormat format) {
  return format == FloatFormat::BF16 || format == FloatFormat::F16;
}

PrecisionPolicy PrecisionPolicy::preset(FloatFormat format) {
  PrecisionPolicy policy;
  for (const PrecisionPart &part : parts)
    policy.*part.member = format;
  if (isNarrow(format))
    policy.gradients = policy.master = policy.moments = FloatFormat::F32;
  return policy;
}

bool PrecisionPolicy::hasNarrowParts() const {
  return std::any_of(
      std::begin(parts), std::end(parts),
      [&](const PrecisionPart &part) { return isNarrow(this->*part.member); });
}

bool PrecisionPolicy::scalesLoss() const {
  return std::any_of(std::begin(parts), std::end(parts),
                     [&](const PrecisionPart &part) {
                       return this->*part.member == FloatFormat::F16 &&
                              part.member != &PrecisionPolicy::parameters;
                     });
}

std::string PrecisionPolicy::print() const {
  for (int i = 0; i < countWords<FloatFormat>(); ++i)
    if (auto format = static_cast<FloatFormat>(i); isAll(format))
      return std::string(wordOf(format));
  std::string text;
  for (const PrecisionPart &part : parts) {
    bool isNone =
        roundsStochastically && part.member == &PrecisionPolicy::master;
    text += text.empty() ? "{" : ", ";
    text += std::string(part.name) + ": " +
            std::string(isNone ? "none" : wordOf(this->*part.member));
  }
  return text + "}";
}

/// "compute: f16".
static std::string describe(const PrecisionPolicy &policy,
                            const PrecisionPart &part) {
  return std::string(part.name) + ": " +
         std::string(wordOf(policy.*part.member));
}

/// The first part of a type, or null.
static const PrecisionPart *findPart(const PrecisionPolicy &policy,
                                     FloatFormat format) {
  for (const PrecisionPart &part : parts)
    if (policy.*part.member == format)
      return &part;
  return nullptr;
}

static std::string findMixture(const PrecisionPolicy &policy) {
  const PrecisionPart *wide = findPart(policy, FloatFormat::F64);
  if (wide && !policy.isAll(FloatFormat::F64)) {
    const PrecisionPart &other = *std::find_if(
        std::begin(parts), std::end(parts), [&](const PrecisionPart &part) {
          return policy.*part.member != FloatFormat::F64;
        });
    return "found " + describe(policy, *wide) + " with " +
           describe(policy, other) + "; f64 is for all parts or none";
  }
  const PrecisionPart *brain = findPart(policy, FloatFormat::BF16),
                      *half = findPart(policy, FloatFormat::F16);
  if (brain && half)
    return "found " + describe(policy, *brain) + " with " +
           describe(policy, *half) + "; wanted one type of 16 bits";
  return "";
}

static std::string findMasterFault(const PrecisionPolicy &policy) {
  std::string parameters = describe(policy, parts[0]);
  if (policy.roundsStochastically) {
    if (policy.parameters == FloatFormat::BF16)
      return "";
    if (policy.parameters == FloatFormat::F16)
      return "found master: none with " + parameters +
             ", which has too small a range for updates; wanted parameters: "
             "bf16, or master: f32";
    return "found master: none with " + parameters +
           ": stochastic rounding is for parameters of 16 bits, and these are "
           "their own master; wanted parameters: bf16, or no master";
  }
  if (isNarrow(policy.master))
    return "found master: " + std::string(wordOf(policy.master)) +
           ", which would lose small updates; wanted master: f32, or none for "
           "stochastic rounding";
  return "";
}

std::vector<std::string> findFaults(const PrecisionPolicy &policy) {
  std::vector<std::string> faults;
  for (std::string fault : {findMixture(policy), findMasterFault(policy)})
    if (!fault.empty())
      faults.push_back(std::move(fault));
  if (policy.moments == FloatFormat::F16)
    faults.push_back("found moments: f16, in which squares of gradients "
                     "vanish; wanted moments: f32 or bf16");
  return faults;
}

} // namespace kiln
