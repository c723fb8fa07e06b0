// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_CPU_AVAILABLEMEMORY_H
#define KILN_RUNTIME_DEVICE_CPU_AVAILABLEMEMORY_H

#include <cstdint>
#include <string>

namespace kiln::cpu {

/// Bytes that can be taken without anything being killed: the least that
/// machine and control groups around the process have left, droppable file
/// cache included. Overcommit lets mmap succeed far beyond this; the process
/// would then die in the middle of a step. `root` is for tests.
uint64_t availableMemory(const std::string &root = "");

} // namespace kiln::cpu

#endif // KILN_RUNTIME_DEVICE_CPU_AVAILABLEMEMORY_H
