// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiles modules inside a test and runs the artifacts with the real runtime.
#ifndef KILN_TEST_COMPILER_COMPILEDMODULE_H
#define KILN_TEST_COMPILER_COMPILEDMODULE_H

#include "compiler/Compile.h"
#include "runtime/session/Session.h"

#include "mlir/IR/OwningOpRef.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace kiln::test {

/// A folder that is removed with the object.
class TemporaryFolder {
public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder &) = delete;
  std::string file(const std::string &name) const { return path / name; }

private:
  std::filesystem::path path;
};

/// The cache of kernels that ctest gives to all tests; empty, for none, when a
/// test is run by hand.
std::string kernelCacheFolder();

/// The config of a module of functions: no data, no training.
Config functionConfig();

/// A config from text, with overrides; the test fails if it has errors.
Config configFromText(const std::string &text,
                      const std::vector<std::string> &overrides = {});

/// An artifact that was made from a module, loaded and with its memory
/// reserved. Values are given and taken as doubles, whatever their element
/// type.
class CompiledModule {
public:
  /// Compiles `module` in place. Null after an error, which fails the test.
  static std::unique_ptr<CompiledModule> compile(mlir::ModuleOp module,
                                                 const Config &config,
                                                 bool isReference = false,
                                                 unsigned threads = 0);

  void setInput(const std::string &program, const std::string &name,
                const std::vector<double> &values);
  std::vector<double> getOutput(const std::string &program,
                                const std::string &name);
  /// Results of a function, in its order; the program may compute them in
  /// another.
  std::vector<std::vector<double>> getResults(const std::string &function);
  void run(const std::string &program);

  Session &session() { return *loaded; }
  const artifact::Index &index() const { return loaded->index(); }
  std::string file() const { return folder.file("module.kiln"); }

private:
  TemporaryFolder folder;
  std::optional<Session> loaded;
};

/// Parses kiln text; attributes named `test.*` are allowed. Null after an
/// error, which fails the test.
mlir::OwningOpRef<mlir::ModuleOp> parseText(mlir::MLIRContext &context,
                                            const std::string &text);

std::string readFile(const std::string &path);

} // namespace kiln::test

#endif // KILN_TEST_COMPILER_COMPILEDMODULE_H
