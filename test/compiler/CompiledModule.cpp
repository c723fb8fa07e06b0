// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/compiler/CompiledModule.h"
#include "runtime/NarrowFloats.h"
#include "test/compiler/TestDevice.h"

#include "mlir/Parser/Parser.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

namespace kiln::test {

TemporaryFolder::TemporaryFolder() {
  std::string name = std::filesystem::temp_directory_path() / "kiln-XXXXXX";
  if (!mkdtemp(name.data()))
    ADD_FAILURE() << "cannot make the folder " << name;
  path = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::string kernelCacheFolder() {
  const char *folder = std::getenv("KILN_CACHE_DIR");
  return folder ? folder : "";
}

Config functionConfig() {
  Config config;
  config.model.kind = ModelKind::File;
  config.training.globalBatch = 1;
  config.training.steps = 1;
  config.devices.kind = testDeviceKind();
  config.devices.threads = 2;
  return config;
}

Config configFromText(const std::string &text,
                      const std::vector<std::string> &overrides) {
  Diagnostics diagnostics;
  std::vector<std::string> all = overrides;
  all.push_back(testDeviceOverride());
  auto config = parseConfig(text, "test.yaml", all, diagnostics);
  if (!config) {
    ADD_FAILURE() << diagnostics.text();
    return {};
  }
  return *config;
}

std::unique_ptr<CompiledModule> CompiledModule::compile(mlir::ModuleOp module,
                                                        const Config &config,
                                                        bool isReference,
                                                        unsigned threads) {
  auto result = std::make_unique<CompiledModule>();
  CompileOptions options;
  options.isReference = isReference;
  options.cacheFolder = kernelCacheFolder();
  Status status = compileModule(module, config, options, result->file());
  if (!status.ok()) {
    ADD_FAILURE() << "does not compile: " << status.message();
    return nullptr;
  }
  SessionOptions sessionOptions;
  sessionOptions.threads = threads;
  Expected<Session> session = Session::load(result->file(), sessionOptions);
  if (!session.ok()) {
    ADD_FAILURE() << "does not load: " << session.status().message();
    return nullptr;
  }
  result->loaded.emplace(std::move(*session));
  if (Status reserved = result->loaded->reserve(); !reserved.ok()) {
    ADD_FAILURE() << reserved.message();
    return nullptr;
  }
  return result;
}

template <typename T>
static std::vector<std::byte> encodeAs(const std::vector<double> &values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value = static_cast<T>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

static std::vector<std::byte> encode(artifact::ElementType type,
                                     const std::vector<double> &values) {
  switch (type) {
  case artifact::ElementType::f32:
    return encodeAs<float>(values);
  case artifact::ElementType::f64:
    return encodeAs<double>(values);
  case artifact::ElementType::i32:
    return encodeAs<int32_t>(values);
  case artifact::ElementType::i64:
    return encodeAs<int64_t>(values);
  case artifact::ElementType::i1:
    return encodeAs<uint8_t>(values);
  case artifact::ElementType::bf16:
    return encodeAs<Bfloat16>(values);
  case artifact::ElementType::f16:
    return encodeAs<Half>(values);
  }
  return {};
}

template <typename T>
static std::vector<double> decodeAs(const std::vector<std::byte> &bytes) {
  std::vector<double> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
  return values;
}

static std::vector<double> decode(artifact::ElementType type,
                                  const std::vector<std::byte> &bytes) {
  switch (type) {
  case artifact::ElementType::f32:
    return decodeAs<float>(bytes);
  case artifact::ElementType::f64:
    return decodeAs<double>(bytes);
  case artifact::ElementType::i32:
    return decodeAs<int32_t>(bytes);
  case artifact::ElementType::i64:
    return decodeAs<int64_t>(bytes);
  case artifact::ElementType::i1:
    return decodeAs<uint8_t>(bytes);
  case artifact::ElementType::bf16:
    return decodeAs<Bfloat16>(bytes);
  case artifact::ElementType::f16:
    return decodeAs<Half>(bytes);
  }
  return {};
}

void CompiledModule::setInput(const std::string &program,
                              const std::string &name,
                              const std::vector<double> &values) {
  const artifact::Program *entry = loaded->artifact().findProgram(program);
  ASSERT_NE(entry, nullptr) << program;
  for (const artifact::Input *input : *entry->inputs())
    if (input->name()->str() == name) {
      Status status = loaded->writeInput(program, name,
                                         encode(input->element_type(), values));
      ASSERT_TRUE(status.ok()) << status.message();
      return;
    }
  FAIL() << program << " has no input " << name;
}

std::vector<double> CompiledModule::getOutput(const std::string &program,
                                              const std::string &name) {
  const artifact::Program *entry = loaded->artifact().findProgram(program);
  for (const artifact::Output *output : *entry->outputs())
    if (output->name()->str() == name) {
      std::vector<std::byte> bytes(output->bytes());
      Status status = loaded->readOutput(program, name, bytes);
      EXPECT_TRUE(status.ok()) << status.message();
      return decode(output->element_type(), bytes);
    }
  ADD_FAILURE() << program << " has no output " << name;
  return {};
}

std::vector<std::vector<double>>
CompiledModule::getResults(const std::string &function) {
  std::vector<std::vector<double>> values;
  const artifact::Program *entry = loaded->artifact().findProgram(function);
  for (size_t i = 0; i < entry->outputs()->size(); ++i)
    values.push_back(getOutput(function, "result" + std::to_string(i)));
  return values;
}

void CompiledModule::run(const std::string &program) {
  Status status = loaded->run(program);
  EXPECT_TRUE(status.ok()) << status.message();
}

mlir::OwningOpRef<mlir::ModuleOp> parseText(mlir::MLIRContext &context,
                                            const std::string &text) {
  context.allowUnregisteredDialects();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  EXPECT_TRUE(module) << text;
  return module;
}

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

} // namespace kiln::test
