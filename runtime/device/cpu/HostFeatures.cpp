// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/HostFeatures.h"

#include <array>
#include <fstream>
#include <sys/syscall.h>
#include <unistd.h>

namespace kiln::cpu {

namespace {

struct FeatureName {
  std::string_view llvm, kernel;
};

// Features whose instructions LLVM may emit in ordinary code. The kernel spells
// them its own way.
constexpr FeatureName features[] = {
    {"sse", "sse"},
    {"sse2", "sse2"},
    {"sse3", "pni"},
    {"ssse3", "ssse3"},
    {"sse4.1", "sse4_1"},
    {"sse4.2", "sse4_2"},
    {"sse4a", "sse4a"},
    {"crc32", "sse4_2"},
    {"popcnt", "popcnt"},
    {"cmov", "cmov"},
    {"cx8", "cx8"},
    {"cx16", "cx16"},
    {"fxsr", "fxsr"},
    {"mmx", "mmx"},
    {"sahf", "lahf_lm"},
    {"movbe", "movbe"},
    {"lzcnt", "abm"},
    {"bmi", "bmi1"},
    {"bmi2", "bmi2"},
    {"adx", "adx"},
    {"tbm", "tbm"},
    {"prfchw", "3dnowprefetch"},
    {"avx", "avx"},
    {"avx2", "avx2"},
    {"f16c", "f16c"},
    {"fma", "fma"},
    {"fma4", "fma4"},
    {"xop", "xop"},
    {"aes", "aes"},
    {"pclmul", "pclmulqdq"},
    {"sha", "sha_ni"},
    {"vaes", "vaes"},
    {"vpclmulqdq", "vpclmulqdq"},
    {"gfni", "gfni"},
    {"avx512f", "avx512f"},
    {"avx512cd", "avx512cd"},
    {"avx512bw", "avx512bw"},
    {"avx512dq", "avx512dq"},
    {"avx512vl", "avx512vl"},
    {"avx512ifma", "avx512ifma"},
    {"avx512vbmi", "avx512vbmi"},
    {"avx512vbmi2", "avx512_vbmi2"},
    {"avx512vnni", "avx512_vnni"},
    {"avx512bitalg", "avx512_bitalg"},
    {"avx512vpopcntdq", "avx512_vpopcntdq"},
    {"avx512vp2intersect", "avx512_vp2intersect"},
    {"avx512bf16", "avx512_bf16"},
    {"avx512fp16", "avx512_fp16"},
    {"avxvnni", "avx_vnni"},
    {"avxifma", "avx_ifma"},
    {"avxvnniint8", "avx_vnni_int8"},
    {"avxvnniint16", "avx_vnni_int16"},
    {"avxneconvert", "avx_ne_convert"},
    {"avx10.1", "avx10_1"},
    {"avx10.2", "avx10_2"},
    {"amx-tile", "amx_tile"},
    {"amx-int8", "amx_int8"},
    {"amx-bf16", "amx_bf16"},
    {"amx-fp16", "amx_fp16"},
    {"egpr", "apx"},
};

/// Whether `word` stands in `words`, which are separated by blanks.
bool contains(std::string_view words, std::string_view word) {
  for (size_t at = words.find(word); at != words.npos;
       at = words.find(word, at + 1)) {
    size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') &&
        (end == words.size() || words[end] == ' '))
      return true;
  }
  return false;
}

/// The kernel's name of a feature; empty if nothing depends on it.
std::string_view kernelName(std::string_view llvm) {
  for (const FeatureName &feature : features)
    if (feature.llvm == llvm)
      return feature.kernel;
  return {};
}

} // namespace

std::string hostFlags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags")) {
      size_t colon = line.find(": ");
      return colon == line.npos ? std::string() : line.substr(colon + 2);
    }
  return {};
}

std::string missingFeatures(std::string_view wanted, std::string_view flags) {
  std::string missing;
  while (!wanted.empty()) {
    std::string_view feature = wanted.substr(0, wanted.find(','));
    wanted.remove_prefix(std::min(wanted.size(), feature.size() + 1));
    if (!feature.starts_with('+'))
      continue;
    feature.remove_prefix(1);
    std::string_view name = kernelName(feature);
    if (name.empty() || contains(flags, name))
      continue;
    if (!missing.empty())
      missing += ' ';
    missing += feature;
  }
  return missing;
}

bool requestTiles() {
  constexpr long requestPermission = 0x1023, tileData = 18;
  return ::syscall(SYS_arch_prctl, requestPermission, tileData) == 0;
}

} // namespace kiln::cpu
