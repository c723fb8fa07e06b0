// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/session/VariableFiles.h"
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kiln::test {

using namespace artifact;

/// Two weights with public names as a tied language model has them, and a
/// moment.
class WeightsTest : public testing::Test {
protected:
  WeightsTest() {
    addProgram(index, "nothing");
    addVariable(index, "wte.weight", ElementType::f32, {2}, 0, InitKind::zeros);
    addVariable(index, "ln_f.bias", ElementType::f32, {1}, 64, InitKind::zeros);
    addVariable(index, "wte.weight.exp_avg", ElementType::f32, {2}, 128,
                InitKind::zeros);
    image(index).variables[0]->role = image(index).variables[1]->role =
        "parameter";
    image(index).variables[2]->role = "moment";
    index.public_names = std::make_unique<PublicNamesT>();
    index.public_names->prefix = "transformer.";
    index.public_names->bare = {"lm_head."};
    index.public_names->ignored = {"attn.bias"};
    auto alias = std::make_unique<AliasT>();
    alias->name = "lm_head.weight";
    alias->variable = "wte.weight";
    index.public_names->aliases.push_back(std::move(alias));
    auto renamed = std::make_unique<AliasT>();
    renamed->name = "beta";
    renamed->variable = "bias";
    index.public_names->renamed.push_back(std::move(renamed));
  }

  template <typename Element>
  void add(const std::string &name, const std::string &dtype,
           std::vector<Element> values) {
    std::vector<int64_t> shape = {static_cast<int64_t>(values.size())};
    sources.push_back({{name, dtype, shape}, [values](OutputFile &file) {
                         return file.write(std::as_bytes(std::span(values)));
                       }});
  }

  Status read() {
    std::string path = folder / "weights";
    std::remove(path.c_str());
    Expected<OutputFile> written = OutputFile::create(path);
    EXPECT_TRUE(writeSafetensors(*written, sources, {}).ok());
    EXPECT_TRUE(written->finish().ok());
    sources.clear();
    Session session = openSession(index, compileKernels(""));
    EXPECT_TRUE(session.initialise(0).ok());
    Expected<Safetensors> file = Safetensors::open(path);
    Status status = file.ok() ? readWeights(*file, session) : file.status();
    EXPECT_TRUE(session
                    .readVariable("wte.weight",
                                  std::as_writable_bytes(std::span(table)))
                    .ok());
    EXPECT_TRUE(session
                    .readVariable("ln_f.bias",
                                  std::as_writable_bytes(std::span(&bias, 1)))
                    .ok());
    return status;
  }

  TemporaryFolder folder;
  IndexT index = emptyIndex(4096);
  std::vector<TensorSource> sources;
  float table[2] = {}, bias = 0;
};

TEST_F(WeightsTest, TakesFilesWithAndWithoutThePrefix) {
  for (std::string prefix : {"", "transformer."}) {
    add<float>(prefix + "wte.weight", "F32", {1, 2});
    add<float>(prefix + "ln_f.bias", "F32", {3});
    add<uint8_t>(prefix + "h.0.attn.bias", "U8", {1});
    Status status = read();
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(table[1], 2);
    EXPECT_EQ(bias, 3);
  }
}

TEST_F(WeightsTest, TakesNarrowAndWideTypes) {
  add<uint16_t>("wte.weight", "F16", {0x3c00, 0xc000});
  add<double>("ln_f.bias", "F64", {0.25});
  Status status = read();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(table[0], 1);
  EXPECT_EQ(table[1], -2);
  EXPECT_EQ(bias, 0.25);
}

TEST_F(WeightsTest, TakesTheOtherNameOfALastPart) {
  add<float>("wte.weight", "F32", {1, 2});
  add<float>("transformer.ln_f.beta", "F32", {3});
  Status status = read();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(bias, 3);
}

TEST_F(WeightsTest, AnAliasAgreesOrStandsIn) {
  add<float>("transformer.wte.weight", "F32", {1, 2});
  add<float>("lm_head.weight", "F32", {1, 2});
  add<float>("ln_f.bias", "F32", {3});
  EXPECT_TRUE(read().ok());
  add<float>("lm_head.weight", "F32", {5, 6});
  add<float>("ln_f.bias", "F32", {3});
  EXPECT_TRUE(read().ok());
  EXPECT_EQ(table[0], 5);
  add<float>("wte.weight", "F32", {1, 2});
  add<float>("lm_head.weight", "F32", {1, 3});
  add<float>("ln_f.bias", "F32", {3});
  Status status = read();
  EXPECT_NE(status.message().find("'lm_head.weight' differs from 'wte.weight'"),
            std::string::npos)
      << status.message();
}

TEST_F(WeightsTest, ListsAllThatDoesNotFit) {
  add<float>("transformer.wte.weight", "F32", {1, 2, 3});
  add<float>("h.0.attn.c_attn.bias", "F32", {1});
  add<float>("h.1.strange", "F32", {1});
  Status status = read();
  EXPECT_EQ(status.exitCode(), 4);
  for (const char *part :
       {"'transformer.wte.weight' is F32 [3], wanted F32 [2]",
        "missing 'ln_f.bias', F32 [1]", "extra 'h.0.attn.c_attn.bias', F32 [1]",
        "extra 'h.1.strange'"})
    EXPECT_NE(status.message().find(part), std::string::npos)
        << part << "\n"
        << status.message();
  EXPECT_EQ(table[0], 0); // Nothing has changed.
  add<int32_t>("wte.weight", "I32", {1, 2});
  add<float>("transformer.ln_f.bias", "F32", {3});
  add<float>("ln_f.bias", "F32", {3});
  status = read();
  EXPECT_NE(status.message().find("'wte.weight' is I32 [2], wanted F32 [2]"),
            std::string::npos);
  EXPECT_NE(status.message().find("occurs with and without its prefix"),
            std::string::npos);
}

TEST_F(WeightsTest, WritesThePublicNames) {
  Expected<Artifact> artifact = loadIndex(index);
  ASSERT_TRUE(artifact.ok());
  auto names = publicNamesOf(artifact->index());
  EXPECT_EQ(names.size(), 2u);
  EXPECT_EQ(
      names["wte.weight"],
      (std::vector<std::string>{"transformer.wte.weight", "lm_head.weight"}));
  addVariable(index, "lm_head.weight", ElementType::f32, {2}, 192,
              InitKind::zeros);
  image(index).variables.back()->role = "parameter";
  Expected<Artifact> untied = loadIndex(index);
  names = publicNamesOf(untied->index());
  EXPECT_EQ(names["wte.weight"],
            std::vector<std::string>{"transformer.wte.weight"});
  EXPECT_EQ(names["lm_head.weight"],
            std::vector<std::string>{"lm_head.weight"});
}

} // namespace kiln::test
