// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/compiler/TrainedModel.h"

#include "test/compiler/TestDevice.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

namespace kiln::test {

void writeTokens(const std::string &path, std::mt19937_64 &generator) {
  std::ofstream stream(path, std::ios::binary);
  unsigned token = 0;
  for (unsigned i = 0; i < 4000; ++i) {
    token = (generator() % 4 ? token * 3 + 1 : generator()) % 37;
    auto value = static_cast<uint16_t>(token);
    stream.write(reinterpret_cast<const char *>(&value), sizeof(value));
  }
}

void writeIdx(const std::string &path, const std::vector<uint32_t> &sizes,
              const std::string &elements) {
  std::ofstream stream(path, std::ios::binary);
  auto writeNumber = [&](uint32_t number) {
    for (int shift = 24; shift >= 0; shift -= 8)
      stream.put(static_cast<char>(number >> shift));
  };
  writeNumber(0x0800 + static_cast<uint32_t>(sizes.size()));
  for (uint32_t size : sizes)
    writeNumber(size);
  stream << elements;
}

std::vector<double> readLosses(const std::string &path) {
  std::istringstream text(readFile(path));
  std::vector<double> losses;
  for (std::string line; std::getline(text, line);)
    losses.push_back(std::strtod(line.substr(line.find(' ')).c_str(), nullptr));
  return losses;
}

std::vector<double> run(const std::string &artifact, unsigned threads) {
  SessionOptions options;
  options.threads = threads;
  Expected<Session> session = Session::load(artifact, options);
  if (!session.ok()) {
    ADD_FAILURE() << session.status().message();
    return {};
  }
  TemporaryFolder folder;
  TrainOptions train;
  train.logFile = -1;
  train.lossesPath = folder.file("losses");
  EXPECT_TRUE(session->reserve().ok());
  EXPECT_TRUE(session->initialise(session->settings().training()->seed()).ok());
  Status status = session->train(train);
  EXPECT_TRUE(status.ok()) << status.message();
  return readLosses(train.lossesPath);
}

void compile(const std::string &text, const std::vector<std::string> &overrides,
             const std::string &artifact, bool isReference) {
  CompileOptions options;
  options.isReference = isReference;
  options.cacheFolder = kernelCacheFolder();
  Status status =
      compileConfig(configFromText(text, overrides), options, artifact);
  ASSERT_TRUE(status.ok()) << status.message();
}

std::vector<double> train(const std::string &text,
                          const std::vector<std::string> &overrides,
                          bool isReference) {
  TemporaryFolder folder;
  compile(text, overrides, folder.file("model.kiln"), isReference);
  return run(folder.file("model.kiln"));
}

void expectFalling(const std::vector<double> &losses) {
  ASSERT_GE(losses.size(), 2u);
  if (testDeviceComputes())
    EXPECT_LT(losses.back(), losses.front());
}

void expectClose(const std::vector<double> &found,
                 const std::vector<double> &wanted, double tolerance,
                 const std::string &what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  if (!testDeviceComputes())
    return;
  double worst = 0;
  for (size_t step = 0; step < wanted.size(); ++step) {
    double error =
        std::abs(found[step] - wanted[step]) / std::abs(wanted[step]);
    worst = std::max(worst, error);
    EXPECT_LE(error, tolerance) << what << ", step " << step + 1 << ": "
                                << found[step] << ", wanted " << wanted[step];
  }
  std::printf("%s: within %.2g\n", what.c_str(), worst);
}

} // namespace kiln::test
