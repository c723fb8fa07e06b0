// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/compiler/TestDevice.h"
#include "compiler/config/Schema.h"

#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>

namespace kiln::test {

std::string testDevice() {
  const char *kind = std::getenv("KILN_TEST_DEVICE");
  return kind ? kind : "cpu";
}

DeviceKind testDeviceKind() {
  std::vector<std::string> kinds =
      splitChoices(findKey("devices.kind", "")->choices);
  auto found = std::find(kinds.begin(), kinds.end(), testDevice());
  EXPECT_NE(found, kinds.end())
      << "KILN_TEST_DEVICE is '" << testDevice() << "'";
  return static_cast<DeviceKind>(found - kinds.begin());
}

std::string testDeviceOverride() { return "devices.kind=" + testDevice(); }

bool testDeviceComputes() { return testDeviceKind() != DeviceKind::Dry; }

} // namespace kiln::test
