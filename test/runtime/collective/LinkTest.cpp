// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives of devices in several processes, simulated in one: only their
// groups do not know of each other.
#include "runtime/collective/Communicator.h"
#include "test/runtime/collective/SampleCollective.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>

namespace kiln::test {

using namespace artifact;

/// Messages in flight on the links of one group. As with large messages of MPI,
/// nothing is copied before the receiver arrives, and a message must have the
/// expected length.
class Wire {
public:
  Wire(size_t members, uint64_t seed)
      : members_(members), queues_(members * members) {
    for (size_t member = 0; member < members; ++member)
      restless_.emplace_back(seed + member);
  }

  void transfer(uint32_t member, std::span<const Message> sends,
                std::span<const Message> receives) {
    dawdle(restless_[member]);
    std::unique_lock lock(mutex_);
    std::vector<Parcel> parcels(sends.size());
    for (size_t i = 0; i < sends.size(); ++i) {
      parcels[i].message = &sends[i];
      queue(member, sends[i].member).push_back(&parcels[i]);
    }
    changed_.notify_all();
    for (const Message &message : receives)
      receive(lock, queue(message.member, member), message);
    changed_.wait(lock, [&] {
      return isBroken_ || std::ranges::all_of(parcels, &Parcel::isTaken);
    });
  }

  /// Lets other threads go first, or not.
  static void dawdle(std::minstd_rand &random) {
    for (auto yields = random() % 8; yields > 0; --yields)
      std::this_thread::yield();
  }

private:
  struct Parcel {
    const Message *message = nullptr;
    bool isTaken = false;
  };
  using Queue = std::deque<Parcel *>;

  Queue &queue(uint32_t from, uint32_t to) {
    return queues_[from * members_ + to];
  }

  void receive(std::unique_lock<std::mutex> &lock, Queue &queue,
               const Message &message) {
    changed_.wait(lock, [&] { return isBroken_ || !queue.empty(); });
    if (isBroken_)
      return;
    Parcel &parcel = *queue.front();
    queue.pop_front();
    if (parcel.message->count != message.count) {
      ADD_FAILURE() << "a message of " << parcel.message->count
                    << " bytes comes where " << message.count
                    << " are expected";
      isBroken_ = true; // Otherwise other members would block for ever.
    } else {
      std::memcpy(message.bytes, parcel.message->bytes, message.count);
    }
    parcel.isTaken = true;
    changed_.notify_all();
  }

  size_t members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Queue> queues_; // By sender and receiver.
  std::vector<std::minstd_rand> restless_;
  bool isBroken_ = false;
};

/// A process's end of a wire.
class WireLink : public Link {
public:
  WireLink(std::shared_ptr<Wire> wire, std::vector<uint32_t> ranks)
      : wire_(std::move(wire)), ranks_(std::move(ranks)) {}

  std::optional<Inquiry> transfer(uint32_t member, std::string_view,
                                  std::span<const Message> sends,
                                  std::span<const Message> receives) override {
    wire_->transfer(member, sends, receives);
    return std::nullopt;
  }

  uint32_t rankOf(uint32_t member) const override { return ranks_[member]; }

private:
  std::shared_ptr<Wire> wire_;
  std::vector<uint32_t> ranks_;
};

/// The groups of several processes. `ranks` has the process of each device.
class LinkedGroups {
public:
  LinkedGroups(std::vector<uint32_t> ranks, uint64_t seed)
      : ranks_(std::move(ranks)), seed_(seed) {}

  /// A device's group, shared by the devices of its process.
  Group &find(uint32_t device, const std::vector<uint32_t> &members) {
    std::unique_ptr<Group> &group = groups_[{ranks_[device], members}];
    if (!group)
      group = make(ranks_[device], members);
    return *group;
  }

private:
  std::unique_ptr<Group> make(uint32_t rank,
                              const std::vector<uint32_t> &members) {
    std::vector<uint32_t> ranks;
    std::vector<bool> isLocal;
    for (uint32_t member : members) {
      ranks.push_back(ranks_[member]);
      isLocal.push_back(ranks_[member] == rank);
    }
    std::unique_ptr<Link> link;
    if (!std::ranges::all_of(isLocal, std::identity())) {
      std::shared_ptr<Wire> &wire = wires_[members];
      if (!wire)
        wire = std::make_shared<Wire>(members.size(), seed_);
      link = std::make_unique<WireLink>(wire, ranks);
    }
    return std::make_unique<Group>(members, isLocal, std::move(link));
  }

  std::vector<uint32_t> ranks_;
  uint64_t seed_;
  std::map<std::vector<uint32_t>, std::shared_ptr<Wire>> wires_;
  std::map<std::pair<uint32_t, std::vector<uint32_t>>, std::unique_ptr<Group>>
      groups_; // By process and members.
};

template <typename Element> constexpr ElementType elementType = ElementType();
template <> constexpr ElementType elementType<float> = ElementType::f32;
template <> constexpr ElementType elementType<double> = ElementType::f64;
template <> constexpr ElementType elementType<int32_t> = ElementType::i32;
template <> constexpr ElementType elementType<int64_t> = ElementType::i64;

/// The collective of a sample with devices in several processes. Members arrive
/// in an order that depends on the seed.
template <typename Element> class LinkedRun {
public:
  LinkedRun(const CollectiveSample<Element> &sample,
            std::vector<uint32_t> ranks, uint64_t seed = 1)
      : sample_(sample), groups_(std::move(ranks), seed), random_(seed) {
    uint64_t end = 0;
    for (size_t piece = 0; piece < sample.subject().pieces.size(); ++piece) {
      sources_.push_back(end);
      end += 2 * sample.sourceElements(piece);
      targets_.push_back(sample.subject().isInPlace ? sources_.back() : end);
      end += 2 * sample.targetElements(piece);
    }
    for (uint32_t device = 0; device < sample.devices(); ++device)
      addDevice(device, end);
  }

  void check(int runs = 1) {
    for (int run = 1; run <= runs; ++run) {
      ASSERT_NO_FATAL_FAILURE(runOnce());
      for (uint32_t device = 0; device < sample_.devices(); ++device)
        EXPECT_EQ(communicators_[device]->receivedBytes(),
                  run * bytesTo(device));
    }
  }

private:
  /// The running repetition: memory of the first must not be touched.
  static constexpr uint64_t repetition = 1;
  static constexpr Element untouched = -55;

  void addDevice(uint32_t device, uint64_t elements) {
    std::vector<Element> &arena =
        arenas_.emplace_back(elements, Element(untouched));
    exchanges_.push_back(makeExchange(arena));
    communicators_.push_back(std::make_unique<Communicator>(
        device, CollectiveSettings(), /*track=*/nullptr));
    communicators_.back()->add(exchanges_.back(),
                               groups_.find(device, sample_.group(device)));
    ASSERT_TRUE(communicators_.back()->startThread().ok());
  }

  Exchange makeExchange(std::vector<Element> &arena) const {
    const Subject &subject = sample_.subject();
    CollectiveT collective;
    collective.kind = subject.kind;
    collective.combine = sample_.combine();
    collective.element_type = elementType<Element>;
    for (size_t piece = 0; piece < subject.pieces.size(); ++piece) {
      auto [outer, size, inner] = subject.pieces[piece];
      constexpr uint64_t bytes = sizeof(Element);
      Place source(bytes * sources_[piece],
                   bytes * sample_.sourceElements(piece)),
          target(bytes * targets_[piece],
                 bytes * sample_.targetElements(piece));
      collective.pieces.push_back(Piece(source, target, outer, size, inner));
    }
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(Collective::Pack(builder, &collective));
    return Exchange(
        *flatbuffers::GetRoot<Collective>(builder.GetBufferPointer()),
        reinterpret_cast<std::byte *>(arena.data()), sample_.members(),
        "sample");
  }

  uint64_t bytesTo(uint32_t device) const {
    const Exchange &exchange = exchanges_[device];
    uint32_t own = sample_.memberOf(device);
    uint64_t count = 0;
    for (uint32_t member = 0; member < sample_.members(); ++member)
      if (member != own)
        count += (exchange.reduces() ? exchange.countPart(own) : 0) +
                 (exchange.gathers() ? exchange.countPart(member) : 0);
    return count * sizeof(Element);
  }

  std::span<Element> sourceOf(uint32_t device, size_t piece, uint64_t turn) {
    uint64_t count = sample_.sourceElements(piece);
    return {arenas_[device].data() + sources_[piece] + turn * count, count};
  }
  std::span<Element> targetOf(uint32_t device, size_t piece, uint64_t turn) {
    uint64_t count = sample_.targetElements(piece);
    return {arenas_[device].data() + targets_[piece] + turn * count, count};
  }

  void runOnce() {
    std::vector<uint32_t> order;
    for (uint32_t device = 0; device < sample_.devices(); ++device) {
      order.push_back(device);
      for (size_t piece = 0; piece < sources_.size(); ++piece) {
        std::ranges::fill(targetOf(device, piece, repetition),
                          Element(untouched));
        std::ranges::copy(sample_.source(device, piece),
                          sourceOf(device, piece, repetition).begin());
      }
    }
    std::ranges::shuffle(order, random_);
    for (uint32_t device : order) {
      Wire::dawdle(random_);
      communicators_[device]->start(0, repetition);
    }
    for (uint32_t device : order)
      communicators_[device]->wait(0);
    for (uint32_t device = 0; device < sample_.devices(); ++device)
      for (size_t piece = 0; piece < sources_.size(); ++piece)
        ASSERT_NO_FATAL_FAILURE(checkPiece(device, piece));
  }

  void checkPiece(uint32_t device, size_t piece) {
    expectSame<Element>(targetOf(device, piece, repetition),
                        sample_.wanted(device, piece), device, piece);
    if (!sample_.subject().isInPlace)
      expectSame<Element>(sourceOf(device, piece, repetition),
                          sample_.source(device, piece), device, piece);
    for (std::span<Element> other :
         {sourceOf(device, piece, 0), targetOf(device, piece, 0)})
      ASSERT_TRUE(std::ranges::all_of(
          other, [](Element each) { return each == untouched; }));
  }

  const CollectiveSample<Element> &sample_;
  LinkedGroups groups_;
  std::minstd_rand random_;
  std::vector<uint64_t> sources_, targets_;  // Elements before each piece.
  std::vector<std::vector<Element>> arenas_; // By device, like all below.
  std::vector<Exchange> exchanges_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

/// Devices in as many processes, in blocks that are equal if they can be.
static std::vector<uint32_t> inBlocks(size_t devices, uint32_t processes) {
  std::vector<uint32_t> ranks;
  for (uint32_t device = 0; device < devices; ++device)
    ranks.push_back(static_cast<uint32_t>(device * processes / devices));
  return ranks;
}

/// Round-robin, as when axes are taken in the other order.
static std::vector<uint32_t> inTurn(size_t devices, uint32_t processes) {
  std::vector<uint32_t> ranks;
  for (uint32_t device = 0; device < devices; ++device)
    ranks.push_back(device % processes);
  return ranks;
}

template <typename Element>
static void checkInProcesses(const Subject &subject, Combine combine) {
  CollectiveSample<Element> sample(subject, combine, wholeNumber);
  for (uint32_t processes : {2u, 4u})
    LinkedRun<Element>(sample, inBlocks(sample.devices(), processes))
        .check(/*runs=*/2);
}

// The members of a group may be in one process, each in one of its own, or some
// together; results must not depend on it.
TEST(Link, ComputesEveryKindOnEveryGroup) {
  for (const Subject &subject : allSubjects()) {
    checkInProcesses<float>(subject, Combine::sum);
    checkInProcesses<double>(subject, Combine::max);
    checkInProcesses<int32_t>(subject, Combine::max);
    checkInProcesses<int64_t>(subject, Combine::sum);
    if (HasFailure())
      return;
  }
}

/// Numbers of such different magnitude that their sum depends on its order.
static Values unlikeNumbers(uint64_t seed) {
  return [seed](uint32_t device, size_t piece, uint64_t element) {
    // SplitMix64, so that neighbours have nothing in common.
    uint64_t bits = (((seed * 16 + device) * 16 + piece) << 32) + element;
    bits *= 0x9e3779b97f4a7c15;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    bits ^= bits >> 31;
    constexpr double sizes[] = {1e8, -1e8, 1, 1e-3, 3e7, -2e7, -0.1, 5e4};
    return sizes[bits % 8] * (1 + static_cast<double>(bits >> 32) * 0x1p-32);
  };
}

/// Pieces whose shards take between two and three messages, but the last shard
/// fewer: rows that are split between messages, and padding.
static std::vector<std::array<uint64_t, 3>>
longPieces(uint64_t members, uint64_t remotes, uint64_t elementBytes) {
  uint64_t slot = Endpoint::windowBytes / (2 * remotes) / elementBytes;
  uint64_t most = slot * 7 / 4, some = slot / 3 / 15, few = slot / 3 / 202;
  return {{1, members * most - most / 2, 1},
          {3, members * some - some / 2, 5},
          {1, 1, 4},
          {2, members * few - 1, 101}};
}

template <typename Element>
static void checkLong(const std::vector<uint32_t> &ranks, CollectiveKind kind,
                      Combine combine, const Values &values) {
  auto members = static_cast<uint32_t>(ranks.size());
  auto remotes =
      members - static_cast<uint32_t>(std::ranges::count(ranks, ranks[0]));
  Subject subject{{{"data", members}},
                  {0},
                  kind,
                  longPieces(members, remotes, sizeof(Element))};
  CollectiveSample<Element> sample(subject, combine, values);
  LinkedRun<Element>(sample, ranks).check();
}

static void checkLong(const std::vector<uint32_t> &ranks) {
  using enum CollectiveKind;
  checkLong<float>(ranks, all_reduce, Combine::sum, unlikeNumbers(1));
  checkLong<float>(ranks, all_gather, Combine::sum, unlikeNumbers(2));
  checkLong<double>(ranks, reduce_scatter, Combine::sum, unlikeNumbers(3));
  checkLong<double>(ranks, all_reduce, Combine::max, unlikeNumbers(4));
  checkLong<int32_t>(ranks, all_reduce, Combine::sum, wholeNumber);
  checkLong<int32_t>(ranks, reduce_scatter, Combine::max, wholeNumber);
}

// Shards larger than the window go in rounds; in the last rounds members with
// smaller shards send no message.
TEST(Link, MovesPartsThatTakeSeveralMessages) {
  for (const std::vector<uint32_t> &ranks :
       {inBlocks(2, 2), inTurn(4, 2), inBlocks(4, 4), inBlocks(8, 4),
        inBlocks(8, 8)}) {
    SCOPED_TRACE(testing::PrintToString(ranks));
    checkLong(ranks);
    if (HasFailure())
      return;
  }
}

// Processes have equal numbers of devices, but not of members: one with fewer
// remote members must not send more at once than those receive.
TEST(Link, MovesPartsBetweenProcessesWithUnequalNumbersOfMembers) {
  checkLong({0, 0, 1});
}

template <typename Element>
static void checkOrder(uint32_t members, CollectiveKind kind, uint64_t seed) {
  Subject subject{
      {{"data", members}}, {0}, kind, {{1, 61, 1}, {3, 5, 7}, {2, 16, 3}}};
  CollectiveSample<Element> sample(subject, Combine::sum, unlikeNumbers(seed));
  std::vector<uint32_t> anyhow;
  std::minstd_rand random(seed);
  for (uint32_t device = 0; device < members; ++device)
    anyhow.push_back(random() % members);
  for (const std::vector<uint32_t> &ranks :
       {inBlocks(members, 1), inTurn(members, 2), inBlocks(members, members),
        anyhow}) {
    SCOPED_TRACE(testing::PrintToString(ranks));
    LinkedRun<Element>(sample, ranks, seed).check(/*runs=*/3);
  }
}

// Sums are taken in the order of the members, bit for bit, whatever the order
// of arrival and the processes.
TEST(Link, AddsInTheOrderOfTheMembers) {
  for (uint32_t members = 2; members <= 8; ++members)
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      checkOrder<float>(members, CollectiveKind::all_reduce, seed);
      checkOrder<float>(members, CollectiveKind::reduce_scatter, seed);
      checkOrder<double>(members, CollectiveKind::all_reduce, seed);
      if (HasFailure())
        return;
    }
}

// Otherwise the test above could not fail.
TEST(Link, OrderShowsInSumsOfUnlikeNumbers) {
  auto countDiffering = [](auto zero) {
    uint64_t differing = 0;
    for (uint64_t element = 0; element < 1000; ++element) {
      auto sum = [&](std::initializer_list<uint32_t> devices) {
        auto sum = zero;
        for (uint32_t device : devices)
          sum +=
              static_cast<decltype(zero)>(unlikeNumbers(1)(device, 0, element));
        return sum;
      };
      differing += sum({0, 1, 2}) != sum({1, 2, 0});
    }
    return differing;
  };
  EXPECT_GT(countDiffering(0.0f), 100u);
  EXPECT_GT(countDiffering(0.0), 100u);
}

} // namespace kiln::test
