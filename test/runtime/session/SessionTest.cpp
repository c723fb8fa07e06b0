// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

namespace kiln::test {

using namespace artifact;

TEST(Session, RefusesMoreThreadsThanPlanned) {
  IndexT index = emptyIndex(4096, 2);
  addProgram(index, "train");
  SessionOptions options;
  options.threads = 3;
  EXPECT_EQ(Session::fromArtifact(std::move(*loadIndex(index)), options)
                .status()
                .code(),
            Code::usage);
}

TEST(Session, ReportsUnknownNamesAndWrongSizes) {
  IndexT index = emptyIndex(4096);
  addVariable(index, "w", ElementType::f32, {2}, 0, InitKind::ones);
  addProgram(index, "train");
  Expected<Session> unready =
      Session::fromArtifact(std::move(*loadIndex(index)));
  EXPECT_EQ(unready->initialise(0).code(), Code::usage);
  EXPECT_EQ(unready->run("train").code(), Code::usage);
  EXPECT_EQ(unready->reservedBytes(), 0u);
  Session session = openSession(index);
  EXPECT_EQ(session.reservedBytes(), 4096u);
  std::byte bytes[4];
  EXPECT_EQ(session.readVariable("w", bytes).message(),
            "'w' has 8 bytes, given 4");
  EXPECT_EQ(session.writeVariable("v", bytes).message(),
            "artifact has no variable 'v'");
  EXPECT_FALSE(session.writeInput("train", "x", bytes).ok());
  EXPECT_FALSE(session.readOutput("train", "x", bytes).ok());
  EXPECT_FALSE(session.readOutput("eval", "x", bytes).ok());
  EXPECT_FALSE(session.run("eval").ok());
}

} // namespace kiln::test
