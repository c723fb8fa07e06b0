// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains configs inside a test, on data made for it, and compares their losses.
#ifndef KILN_TEST_COMPILER_TRAINEDMODEL_H
#define KILN_TEST_COMPILER_TRAINEDMODEL_H

#include "test/compiler/CompiledModule.h"

#include <random>

namespace kiln::test {

/// 4000 tokens of 16 bits below 37: mostly predictable, so that there is
/// something to learn.
void writeTokens(const std::string &path, std::mt19937_64 &generator);
/// An IDX file of bytes.
void writeIdx(const std::string &path, const std::vector<uint32_t> &sizes,
              const std::string &elements);

/// The losses of a file that training wrote: step, loss, loss in hexadecimal.
std::vector<double> readLosses(const std::string &path);

/// Compiles the text of a config; an error fails the test.
void compile(const std::string &text, const std::vector<std::string> &overrides,
             const std::string &artifact, bool isReference = false);

/// Losses of all steps of an artifact, on as many workers as it was planned for
/// unless told otherwise.
std::vector<double> run(const std::string &artifact, unsigned threads = 0);

/// Compiles and runs.
std::vector<double> train(const std::string &text,
                          const std::vector<std::string> &overrides,
                          bool isReference = false);

/// The model learns: its last loss is below its first.
void expectFalling(const std::vector<double> &losses);

/// Compares losses relatively, at every step.
void expectClose(const std::vector<double> &found,
                 const std::vector<double> &wanted, double tolerance,
                 const std::string &what);

} // namespace kiln::test

#endif // KILN_TEST_COMPILER_TRAINEDMODEL_H
