// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Asks whether generated code can run here, without LLVM.
#ifndef KILN_RUNTIME_DEVICE_CPU_HOSTFEATURES_H
#define KILN_RUNTIME_DEVICE_CPU_HOSTFEATURES_H

#include <string>
#include <string_view>

namespace kiln::cpu {

/// The flags that the kernel reports for the first processor, separated by
/// blanks. Unlike cpuid they leave out features that the operating system does
/// not enable.
std::string hostFlags();

/// The features that `features` (LLVM's form: "+avx2,-avx512f,...") requires
/// and `flags` lack, separated by blanks. Features that code generation never
/// uses (such as clzero) are not required.
std::string missingFeatures(std::string_view features, std::string_view flags);

/// Asks the system for the tile registers of AMX, for all threads of this
/// process; false if it refuses.
bool requestTiles();

} // namespace kiln::cpu

#endif // KILN_RUNTIME_DEVICE_CPU_HOSTFEATURES_H
