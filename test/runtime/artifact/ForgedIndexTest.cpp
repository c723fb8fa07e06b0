// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An index with matching hashes may hold anything. Each change of a sound one
// is refused with a message, or the artifact runs, or it ends with one; it
// never ends by a signal, by an exception or not at all.
#include "test/runtime/artifact/ForgedIndex.h"
#include "test/runtime/SampleArtifact.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

namespace kiln::test {

using namespace artifact;

static std::vector<std::byte> readBytes(const std::string &path) {
  std::string content = readFile(path);
  const auto *first = reinterpret_cast<const std::byte *>(content.data());
  return {first, first + content.size()};
}

/// Values of all tables of the schema that devices run.
static IndexT richIndex(const std::string &dataPath) {
  IndexT index = shardedTraining(dataPath, 2);
  // Two images: their collectives must fit each other.
  IndexT other = shardedTraining(dataPath, 2);
  addEvaluation(index, dataPath, 4, 1);
  addEvaluation(other, dataPath, 4, 1);
  for (IndexT *each : {&index, &other}) {
    auto coordinate = std::make_unique<CoordinateT>();
    coordinate->offset = 320;
    image(*each).coordinates.push_back(std::move(coordinate));
    addSlice(*image(*each).programs[0], {0},
             Piece(Place(256, 0), Place(640, 0), 2, 2, 1));
    addCollective(*image(*each).programs[0], CollectiveKind::all_gather, {0},
                  {Piece(Place(640, 0), Place(704, 0), 1, 4, 1)}, 1, 16);
    addWait(*image(*each).programs[0], 1);
    image(*each).scalars.push_back(std::make_unique<ScalarT>());
    image(*each).scalars[0]->offset = 896;
    image(*each).peak.push_back(std::make_unique<LiveBufferT>());
    image(*each).peak[0]->kind = "activation";
  }
  index.images.push_back(std::move(other.images[0]));
  index.devices[1]->image = 1;
  // Each kernel's buffers, in the order in which they were added.
  const std::vector<uint64_t> buffers[] = {
      {128, 16, 4}, {4, 4, 4}, {4, 32}, {128, 24, 4}};
  for (size_t i = 0; i < std::size(buffers); ++i)
    index.kernels[i]->buffers = buffers[i];
  index.kernels[0]->reads = 1;
  index.public_names = std::make_unique<PublicNamesT>();
  index.public_names->prefix = "model.";
  index.public_names->bare = {"head."};
  index.plan = std::make_unique<PlanT>();
  index.plan->offload = index.plan->recompute = "none";
  index.plan->speeds = {1, 1};
  return index;
}

class ForgedIndexes : public testing::Test {
protected:
  ForgedIndexes() {
    flatbuffers::FlatBufferBuilder builder;
    IndexT index = richIndex(data_.path());
    FinishIndexBuffer(builder, CreateIndex(builder, &index));
    std::span<const std::byte> bytes =
        std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
    index_.assign(bytes.begin(), bytes.end());
    forged_.emplace(schema_, index_);
  }

  std::vector<std::byte> packWith(std::span<const std::byte> index) const {
    std::vector<Section> sections = {{std::string(indexSectionName), index},
                                     {"kernels.cpu", kernels_}};
    return packContainer(sections);
  }

  /// The failure of the artifact, if there is one.
  Status run(std::span<const std::byte> index, bool hasFolder) const {
    Expected<Container> container = Container::parse(packWith(index), "sample");
    if (!container.ok())
      return container.status();
    Expected<Artifact> artifact =
        Artifact::fromContainer(std::move(*container));
    if (!artifact.ok())
      return artifact.status();
    Expected<Session> session = Session::fromArtifact(std::move(*artifact));
    if (!session.ok())
      return session.status();
    if (Status status = session->reserve(); !status.ok())
      return status;
    TemporaryFolder folder;
    TrainOptions options;
    options.steps = 2;
    options.logFile = -1;
    if (hasFolder)
      options.runFolder = folder / "run";
    options.isInitialising = true;
    options.warn = [](const std::string &) {};
    return session->train(options);
  }

  /// Runs in a child: a kernel that faults ends its process.
  void expectCleanEnd(std::span<const std::byte> index,
                      const std::string &change) {
    Expected<Container> container = Container::parse(packWith(index), "sample");
    Expected<Artifact> artifact =
        Artifact::fromContainer(std::move(*container));
    ++forgeries_;
    if (!artifact.ok()) {
      EXPECT_EQ(artifact.status().code(), Code::inputRejected) << change;
      EXPECT_NE(artifact.status().message(), "") << change;
      ++refusals_;
      return;
    }
    // Memory that the machine has is given, and takes its time.
    for (const Image *image : *artifact->index().images())
      if (image->arena_bytes() + image->host_bytes() > uint64_t{1} << 26)
        return;
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::alarm(60); // Of a run of some milliseconds.
      if (!std::freopen("/dev/null", "w", stderr))
        ::_exit(99);
      // To save the state takes longer than the run.
      ::_exit(run(index, /*hasFolder=*/forgeries_ % 8 == 0).exitCode());
    }
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    EXPECT_TRUE(WIFEXITED(state)) << change << " ends by a signal";
    const int clean[] = {0, 1, 2, 3, 4, 5, 8};
    EXPECT_NE(std::find(std::begin(clean), std::end(clean), WEXITSTATUS(state)),
              std::end(clean))
        << change << " ends with " << WEXITSTATUS(state);
  }

  /// Changes of the same field of the same tables.
  std::vector<std::vector<size_t>> groupByField() const {
    std::map<std::string, std::vector<size_t>> groups;
    for (size_t i = 0; i < forged_->changes(); ++i)
      groups[forged_->fieldOf(i)].push_back(i);
    std::vector<std::vector<size_t>> lists;
    for (auto &[field, changes] : groups)
      lists.push_back(std::move(changes));
    return lists;
  }

  /// KILN_FORGERIES=N makes N times as many.
  static size_t effort() {
    const char *text = std::getenv("KILN_FORGERIES");
    return text ? std::strtoull(text, nullptr, 10) : 1;
  }

  TemporaryFile data_{sampleText(2000)};
  std::vector<std::byte> schema_ = readBytes(KILN_ARTIFACT_SCHEMA);
  std::vector<std::byte> kernels_ = compileKernels(sampleKernels());
  std::vector<std::byte> index_;
  std::optional<ForgedIndex> forged_;
  size_t forgeries_ = 0, refusals_ = 0;
};

TEST_F(ForgedIndexes, TheIndexItselfRuns) {
  Status status = run(forged_->forge({}), /*hasFolder=*/true);
  EXPECT_EQ(status.code(), Code::ok) << status.message();
}

TEST_F(ForgedIndexes, AChangeOfAnyFieldEndsCleanly) {
  std::mt19937_64 random(1);
  for (const std::vector<size_t> &changes : groupByField())
    for (size_t i = 0; i < 4 * effort(); ++i) {
      size_t change = changes[random() % changes.size()];
      expectCleanEnd(forged_->forge({&change, 1}), forged_->describe(change));
    }
  EXPECT_GT(refusals_, forgeries_ / 4);
  EXPECT_LT(refusals_, forgeries_);
}

TEST_F(ForgedIndexes, ChangesOfSeveralFieldsEndCleanly) {
  std::mt19937_64 random(2);
  std::vector<std::vector<size_t>> fields = groupByField();
  for (size_t i = 0; i < 200 * effort(); ++i) {
    std::vector<size_t> changes;
    std::string text;
    for (size_t j = 0; j < 2 + random() % 2; ++j) {
      const std::vector<size_t> &field = fields[random() % fields.size()];
      changes.push_back(field[random() % field.size()]);
      text += forged_->describe(changes.back()) + "; ";
    }
    expectCleanEnd(forged_->forge(changes), text);
  }
}

TEST_F(ForgedIndexes, FlippedBitsEndCleanly) {
  std::mt19937_64 random(3);
  for (size_t i = 0; i < 600 * effort(); ++i) {
    std::vector<std::byte> damaged = index_;
    std::string text = "bits";
    for (size_t flips = 0; flips < 1 + i % 3; ++flips) {
      size_t bit = random() % (8 * damaged.size());
      damaged[bit / 8] ^= std::byte{1} << bit % 8;
      text += " " + std::to_string(bit);
    }
    expectCleanEnd(damaged, text);
  }
}

} // namespace kiln::test
