// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/Feeder.h"
#include "test/runtime/data/Datasets.h"
#include "test/runtime/device/SampleDevice.h"

#include <deque>
#include <filesystem>
#include <set>

namespace kiln::test {

// Batches run on over the end of an epoch, and each epoch holds every sample
// once.
TEST(SampleOrder, CoversEveryEpochOnce) {
  SampleOrder order{7, 3, 5, true};
  std::vector<uint64_t> samples;
  for (uint64_t step = 0; step < 7; ++step)
    for (uint64_t j = 0; j < 3; ++j)
      samples.push_back(order.at(step, j).index);
  for (size_t epoch = 0; epoch < 3; ++epoch) {
    std::set<uint64_t> seen(samples.begin() + epoch * 7,
                            samples.begin() + (epoch + 1) * 7);
    EXPECT_EQ(seen.size(), 7u);
  }
  order.isShuffled = false;
  SampleId next = order.at(2, 1); // Sample 7 is the first of epoch 1.
  EXPECT_EQ(next.index, 0u);
  EXPECT_EQ(next.epoch, 1u);
}

TEST(Feeder, GivesTheSameBatchesFromAnyFirstStep) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += static_cast<char>(i * 7);
  TemporaryFile file(text);
  auto dataset = open(textData(file.path()));
  ASSERT_TRUE(dataset.ok());
  ProgramT native;
  native.name = "train";
  addInput(native, "tokens", ElementType::i32, 6, {4}, 0, 128);
  addInput(native, "labels", ElementType::i32, 6, {4}, 256, 256); // Not staged.
  Packed<Program, ProgramT> program(native);
  SampleOrder order{(*dataset)->samples(), 6, 1, true};
  auto batches = [&](uint64_t first, uint64_t last) {
    std::vector<int32_t> arena(88);
    std::vector<std::vector<int32_t>> result;
    SampleDevice memory(std::as_writable_bytes(std::span(arena)));
    FedDevice device{&*program, &memory, 0, 6};
    auto feeder = Feeder::start(**dataset, order, std::span(&device, 1), first);
    for (uint64_t step = first; step < last; ++step) {
      EXPECT_TRUE((*feeder)->next().ok());
      result.push_back({arena.begin(), arena.begin() + 24});
      result.push_back({arena.begin() + 64, arena.begin() + 88});
    }
    return result;
  };
  auto all = batches(0, 50);
  for (size_t i = 0; i < all.size(); i += 2) // Labels follow tokens.
    EXPECT_EQ(all[i][1], all[i + 1][0]);
  auto rest = batches(20, 50);
  EXPECT_EQ(std::vector(all.begin() + 40, all.end()), rest);
}

// A batch that could not be read is not run, whichever thread reads it.
TEST(Feeder, GivesNoBatchWithAnIdOutOfRange) {
  for (uint64_t staging : {64, 0}) {
    TemporaryFile file("abcdefghijklm");
    DataT data = textData(file.path());
    data.vocabulary = 'z';
    auto dataset = open(data);
    ASSERT_TRUE(dataset.ok());
    ProgramT native;
    native.name = "train";
    addInput(native, "tokens", ElementType::i32, 3, {4}, 0, staging);
    Packed<Program, ProgramT> program(native);
    std::vector<int32_t> arena(32);
    SampleDevice memory(std::as_writable_bytes(std::span(arena)));
    FedDevice device{&*program, &memory, 0, 3};
    writeFile(file.path(), "abcdefghiz!!!");
    auto feeder =
        Feeder::start(**dataset, {3, 3, 0, false}, std::span(&device, 1), 0);
    for (int attempt = 0; attempt < 2; ++attempt)
      expectRejected((*feeder)->next(), "token 9 has id 122");
    expectRejected(writeHeldOut(device, **dataset, 0), "token 9 has id 122");
  }
}

// The thread that prepares batches reads past the end of the file.
TEST(Feeder, GivesNoBatchOfAFileThatShrinks) {
  TemporaryFile file(std::string(20000, 'a'));
  auto dataset = open(textData(file.path()));
  ASSERT_TRUE(dataset.ok());
  ProgramT native;
  native.name = "train";
  addInput(native, "tokens", ElementType::i32, 3, {4}, 0, 64);
  Packed<Program, ProgramT> program(native);
  std::vector<int32_t> arena(32);
  SampleDevice memory(std::as_writable_bytes(std::span(arena)));
  FedDevice device{&*program, &memory, 0, 3};
  std::filesystem::resize_file(file.path(), 0);
  auto feeder =
      Feeder::start(**dataset, {4999, 3, 0, true}, std::span(&device, 1), 0);
  expectRejected((*feeder)->next(), "has 0 bytes, had 20000");
}

TEST(Feeder, PositionsAreFedWithAnyDataAndWithout) {
  TemporaryFile file("abcdefghijklm");
  auto dataset = open(textData(file.path()));
  ASSERT_TRUE(dataset.ok());
  ProgramT native;
  native.name = "train";
  addInput(native, "sample", ElementType::i32, 3, {}, 0, 64);
  addInput(native, "tokens", ElementType::i32, 3, {4}, 128, 192);
  Packed<Program, ProgramT> program(native);
  EXPECT_TRUE(checkInputs(*program, dataset->get(), 3).ok());
  EXPECT_TRUE(checkInputs(*program, nullptr, 3).ok());
  EXPECT_EQ(checkInputs(*program, nullptr, 4).code(), Code::inputRejected);

  const std::vector<int32_t> places = {0, 1, 2};
  std::vector<int32_t> arena(64, -2);
  SampleDevice memory(std::as_writable_bytes(std::span(arena)));
  FedDevice device{&*program, &memory, 0, 3};
  EXPECT_TRUE(writePositions(device).ok());
  EXPECT_EQ(std::vector(arena.begin(), arena.begin() + 3), places);
  arena.assign(64, -2);
  {
    auto feeder =
        Feeder::start(**dataset, {3, 3, 0, false}, std::span(&device, 1), 0);
    ASSERT_TRUE((*feeder)->next().ok());
  }
  EXPECT_EQ(std::vector(arena.begin(), arena.begin() + 3), places);
  EXPECT_EQ(arena[32], 'a');

  ProgramT wide;
  wide.name = "train";
  addInput(wide, "sample", ElementType::i64, 3, {}, 0, 64);
  Packed<Program, ProgramT> bad(wide);
  EXPECT_EQ(checkInputs(*bad, nullptr, 3).code(), Code::inputRejected);
}

// Two replicas with unequal shares, the second on two devices: together they
// are fed the samples of one device.
TEST(Feeder, SharesTileTheBatch) {
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += static_cast<char>(i * 5);
  TemporaryFile file(text);
  auto dataset = open(textData(file.path()));
  ASSERT_TRUE(dataset.ok());
  auto make = [](uint64_t samples) {
    ProgramT native;
    native.name = "train";
    addInput(native, "sample", ElementType::i32, samples, {}, 0, 64);
    addInput(native, "tokens", ElementType::i32, samples, {4}, 128, 256);
    return native;
  };
  Packed<Program, ProgramT> whole(make(5)), large(make(3)), small(make(2));
  std::vector<std::vector<int32_t>> arenas(4, std::vector<int32_t>(96));
  std::deque<SampleDevice> devices;
  for (std::vector<int32_t> &arena : arenas)
    devices.emplace_back(std::as_writable_bytes(std::span(arena)));
  FedDevice one{&*whole, &devices[0], 0, 5};
  std::vector<FedDevice> many = {{&*large, &devices[1], 0, 3},
                                 {&*small, &devices[2], 3, 2},
                                 {&*small, &devices[3], 3, 2}};
  SampleOrder order{(*dataset)->samples(), 5, 1, true};
  auto single = Feeder::start(**dataset, order, std::span(&one, 1), 0);
  auto shared = Feeder::start(**dataset, order, many, 0);
  for (int step = 0; step < 20; ++step) {
    ASSERT_TRUE((*single)->next().ok());
    ASSERT_TRUE((*shared)->next().ok());
    for (size_t i = 0; i < 5; ++i) {
      size_t device = i < 3 ? 1 : 2, at = i < 3 ? i : i - 3;
      EXPECT_EQ(arenas[device][at], static_cast<int32_t>(i));
      EXPECT_EQ(arenas[device][32 + 4 * at], arenas[0][32 + 4 * i]);
    }
    // Apart from staging, where the next batch is already being written.
    for (auto [begin, end] : {std::pair(0, 16), std::pair(32, 64)})
      EXPECT_TRUE(std::equal(arenas[2].begin() + begin, arenas[2].begin() + end,
                             arenas[3].begin() + begin));
  }
}

// Slots past the end of the data must not count.
TEST(Feeder, HeldOutDataIsPadded) {
  TemporaryFile file("abcdefghijklm"); // Three samples.
  auto dataset = open(textData(file.path()));
  ASSERT_TRUE(dataset.ok());
  ProgramT native;
  native.name = "evaluate";
  addInput(native, "tokens", ElementType::i32, 2, {4}, 0, 0);
  addInput(native, "labels", ElementType::i32, 2, {4}, 32, 32);
  Packed<Program, ProgramT> program(native);
  std::vector<int32_t> arena(16, -2);
  SampleDevice memory(std::as_writable_bytes(std::span(arena)));
  EXPECT_TRUE(writeHeldOut({&*program, &memory, 0, 2}, **dataset, 2).ok());
  EXPECT_EQ(arena, (std::vector<int32_t>{'i', 'j', 'k', 'l', 0, 0, 0, 0, 'j',
                                         'k', 'l', 'm', -1, -1, -1, -1}));
}

} // namespace kiln::test
