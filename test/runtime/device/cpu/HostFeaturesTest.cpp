// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/HostFeatures.h"

#include <gtest/gtest.h>

namespace kiln::cpu {

TEST(HostFeatures, NamesOnlyWhatIsAskedForAndMissing) {
  EXPECT_EQ(missingFeatures("+avx2,-avx512f,+fma,+avx512vnni,+avx512vl",
                            "fpu avx avx2 avx512vl"),
            "fma avx512vnni");
  EXPECT_EQ(missingFeatures("", "sse"), "");
  EXPECT_EQ(missingFeatures("-avx", ""), "");
}

// "avx" is the beginning of other flags, and must not be found in them.
TEST(HostFeatures, ComparesWholeWords) {
  EXPECT_EQ(missingFeatures("+avx", "avx2 xavx avx_vnni"), "avx");
  EXPECT_EQ(missingFeatures("+avx", "avx"), "");
}

TEST(HostFeatures, TranslatesTheKernelsNames) {
  EXPECT_EQ(missingFeatures("+sse3,+lzcnt,+bmi,+sse4.1,+sha,+pclmul",
                            "pni abm bmi1 sse4_1 sha_ni pclmulqdq"),
            "");
}

// The kernel does not list these, and generated code does not use them.
TEST(HostFeatures, IgnoresWhatCodeDoesNotUse) {
  EXPECT_EQ(missingFeatures("+64bit,+clzero,+rdpid,+shstk,+xsaves", ""), "");
}

TEST(HostFeatures, FindsThisProcessorsFlags) {
  EXPECT_EQ(missingFeatures("+sse2,+cmov", hostFlags()), "");
}

} // namespace kiln::cpu
