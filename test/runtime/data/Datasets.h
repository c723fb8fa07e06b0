// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TEST_RUNTIME_DATA_DATASETS_H
#define KILN_TEST_RUNTIME_DATA_DATASETS_H

#include "runtime/data/Dataset.h"
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

namespace kiln::test {

using namespace artifact;

/// A flatbuffer of one table, kept alive beside the pointer into it.
template <typename Table, typename Native> class Packed {
public:
  explicit Packed(const Native &native) {
    builder_.Finish(Table::Pack(builder_, &native));
  }
  const Table &operator*() const {
    return *flatbuffers::GetRoot<Table>(builder_.GetBufferPointer());
  }

private:
  flatbuffers::FlatBufferBuilder builder_;
};

using PackedInput = Packed<Input, InputT>;

inline DataT textData(const std::string &path, uint64_t sequence = 4) {
  DataT data;
  data.kind = "text";
  data.path = path;
  data.tokenizer = "bytes";
  data.sequence = sequence;
  data.vocabulary = 256;
  return data;
}

inline Expected<std::unique_ptr<Dataset>> open(const DataT &data,
                                               uint64_t seed = 1) {
  Packed<Data, DataT> packed(data);
  return Dataset::open(*packed, nullptr, seed);
}

/// The data without the samples held out.
inline Expected<std::unique_ptr<Dataset>>
openRest(const DataT &data, const EvaluationT &heldOut, uint64_t seed = 1) {
  Packed<Data, DataT> packed(data);
  Packed<Evaluation, EvaluationT> evaluation(heldOut);
  return Dataset::open(*packed, &*evaluation, seed);
}

inline Expected<std::unique_ptr<Dataset>>
openHeldOut(const DataT &data, const EvaluationT &heldOut, uint64_t seed = 1) {
  Packed<Data, DataT> packed(data);
  Packed<Evaluation, EvaluationT> evaluation(heldOut);
  return Dataset::openHeldOut(*packed, *evaluation, seed);
}

inline InputT input(const std::string &name, ElementType type,
                    std::vector<int64_t> shape) {
  InputT result;
  result.name = name;
  result.element_type = type;
  result.samples = 1;
  result.sample_shape = std::move(shape);
  return result;
}

/// Values of an i32 input from a dataset; fails if it does not feed it.
inline std::vector<int32_t> read(const Dataset &dataset,
                                 const std::string &name,
                                 std::vector<int64_t> shape, SampleId sample) {
  PackedInput packed(input(name, ElementType::i32, std::move(shape)));
  Status status = dataset.checkInput(*packed);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<int32_t> values(sampleElements(*packed), -2);
  if (status.ok())
    status = dataset.write(*packed, sample,
                           reinterpret_cast<std::byte *>(values.data()));
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

inline void expectRejected(const Status &status, const std::string &message) {
  EXPECT_EQ(status.code(), Code::inputRejected) << status.message();
  EXPECT_NE(status.message().find(message), std::string::npos)
      << status.message();
}

inline void expectRejected(const DataT &data, const std::string &message) {
  expectRejected(open(data).status(), message);
}

/// None of the inputs can be fed.
inline void expectInputsRejected(const DataT &data,
                                 std::initializer_list<InputT> inputs) {
  auto dataset = open(data);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  for (const InputT &bad : inputs) {
    PackedInput packed(bad);
    EXPECT_EQ((*dataset)->checkInput(*packed).code(), Code::inputRejected);
  }
}

} // namespace kiln::test

#endif // KILN_TEST_RUNTIME_DATA_DATASETS_H
