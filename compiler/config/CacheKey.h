// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_CONFIG_CACHE_KEY_H
#define KILN_COMPILER_CONFIG_CACHE_KEY_H

#include "compiler/config/Config.h"

#include <string>

namespace kiln {

/// Whether KILN_RED_ZONES is set: tests find writes outside of buffers that
/// way.
bool wantsRedZones();

/// All that the bytes of an artifact depend on.
struct CompileInputs {
  std::string compilerLibrary; // path of libKilnCompiler.so
  bool isReference = false;
  bool hasRedZones = wantsRedZones();
};

/// Name and features of the processor as /proc/cpuinfo has them: code is
/// generated for the machine that compiles.
std::string hostProcessor();

/// Whether the system lets this process use the tile registers of AMX, which it
/// then may; threads that it has and makes, too.
bool permitsTiles();

/// Sizes of the caches that blocks of kernels are chosen for.
struct HostCaches {
  int64_t l1Bytes, l2Bytes;
};
HostCaches hostCaches();

/// "kiln_" and 64 hexadecimal digits. Fails when the compiler library or the
/// model file cannot be read; `error` then says which.
std::optional<std::string> compileKey(const Config &config,
                                      const CompileInputs &inputs,
                                      std::string &error);

} // namespace kiln

#endif
