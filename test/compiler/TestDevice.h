// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kind of device that tests compile for and run on: one suite for all.
#ifndef KILN_TEST_COMPILER_TESTDEVICE_H
#define KILN_TEST_COMPILER_TESTDEVICE_H

#include "compiler/config/Config.h"

#include <string>

namespace kiln::test {

/// `devices.kind` of the environment variable KILN_TEST_DEVICE; cpu without it.
std::string testDevice();
DeviceKind testDeviceKind();
/// The same as an override of a config.
std::string testDeviceOverride();

/// False on a kind that only checks: values are not to be compared then.
bool testDeviceComputes();

} // namespace kiln::test

#endif // KILN_TEST_COMPILER_TESTDEVICE_H
