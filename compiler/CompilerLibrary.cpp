// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/CompilerLibrary.h"
#include "compiler/Compile.h"

#include <cstdio>

int kilnCompile(const KilnCompileRequest *request) {
  if (request->size != sizeof(KilnCompileRequest)) {
    fprintf(stderr,
            "kiln: error: libKilnCompiler and kiln are of different builds; "
            "build both again\n");
    return static_cast<int>(kiln::Code::internal);
  }
  kiln::Diagnostics diagnostics;
  std::vector<std::string> overrides(
      request->overrides, request->overrides + request->overrideCount);
  auto config = kiln::loadConfig(request->configPath, overrides, diagnostics);
  if (!config) {
    fputs(diagnostics.text().c_str(), stderr);
    return static_cast<int>(kiln::Code::usage);
  }
  kiln::CompileOptions options;
  options.isReference = request->isReference != 0;
  if (request->dumpFolder)
    options.dumpFolder = request->dumpFolder;
  if (request->cacheFolder)
    options.cacheFolder = request->cacheFolder;
  options.outputName = request->outputName;
  options.showActivity = request->showActivity;
  if (request->checkModel)
    options.checkModel = [&](std::span<const uint8_t> model) {
      const char *fault =
          request->checkModel(request->context, model.data(), model.size());
      return std::string(fault ? fault : "");
    };
  kiln::Status status =
      kiln::compileConfig(*config, options, request->outputPath);
  if (!status.ok())
    fprintf(stderr, "%s\n", status.message().c_str());
  return status.exitCode();
}
