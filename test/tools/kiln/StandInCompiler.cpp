// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/CompilerLibrary.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <unistd.h>

/// Does as STAND_IN says: dies, hangs, fails with a code, or copies a file to
/// the output.
extern "C" int kilnCompile(const KilnCompileRequest *request) {
  const char *order = std::getenv("STAND_IN");
  if (!order || request->size != sizeof(KilnCompileRequest))
    return 1;
  if (!std::strcmp(order, "abort"))
    std::abort();
  if (!std::strcmp(order, "hang")) {
    std::ofstream(request->outputPath) << "part of an artifact";
    std::ofstream(std::getenv("STAND_IN_STARTED")) << getpid();
    while (true)
      pause();
  }
  if (!std::strncmp(order, "exit ", 5)) {
    std::ofstream(request->outputPath) << "part of an artifact";
    return std::atoi(order + 5);
  }
  std::ifstream source(order, std::ios::binary);
  std::ofstream target(request->outputPath, std::ios::binary);
  target << source.rdbuf();
  target.close();
  return target ? 0 : 5;
}
