// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Processes that were started by mpirun. A library of its own, so that only a
// run that needs it loads Open MPI.
#include "runtime/collective/World.h"

#include <algorithm>
#include <cstdio>
#include <mpi.h>
#include <mutex>
#include <sched.h>
#include <thread>
#include <unistd.h>

namespace kiln {

namespace {

using Clock = std::chrono::steady_clock;

/// MPI is told that calls come from any thread, but never two at once.
std::mutex calls;

/// Ends the process if a call of MPI fails: what is lost with it cannot be
/// brought back, and mpirun then ends the others.
void require(int result, const char *call) {
  if (result == MPI_SUCCESS)
    return;
  std::fprintf(stderr, "kiln: error: %s failed with code %d\n", call, result);
  ::_exit(static_cast<int>(Code::rankLost));
}

/// Waits without holding the lock or the core; false if that takes longer than
/// the limit.
bool await(std::span<MPI_Request> requests, std::chrono::seconds limit) {
  Clock::time_point end = Clock::now() + limit;
  std::chrono::microseconds pause{0};
  for (unsigned looks = 0;; ++looks) {
    int isDone = 0;
    {
      std::lock_guard lock(calls);
      require(MPI_Testall(static_cast<int>(requests.size()), requests.data(),
                          &isDone, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    }
    if (isDone)
      return true;
    // Most come at once; for the rest, waiting must not take a core away.
    constexpr unsigned quickLooks = 64;
    constexpr std::chrono::microseconds longest{200};
    if (looks < quickLooks) {
      ::sched_yield();
      continue;
    }
    if (Clock::now() > end)
      return false;
    pause = std::min(longest, pause + std::chrono::microseconds(5));
    std::this_thread::sleep_for(pause);
  }
}

class MpiLink final : public Link {
public:
  /// `ranks` are those of the members; the communicator has them sorted.
  MpiLink(const std::vector<uint32_t> &ranks, MPI_Comm communicator)
      : ranks_(ranks), communicator_(communicator), requests_(ranks.size()) {
    std::vector<uint32_t> sorted = ranks;
    std::sort(sorted.begin(), sorted.end());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    for (uint32_t rank : ranks)
      places_.push_back(static_cast<int>(
          std::lower_bound(sorted.begin(), sorted.end(), rank) -
          sorted.begin()));
    for (std::vector<MPI_Request> &each : requests_)
      each.reserve(2 * ranks.size());
  }

  ~MpiLink() override {
    std::lock_guard lock(calls);
    MPI_Comm_free(&communicator_);
  }

  std::optional<uint32_t> transfer(uint32_t member,
                                   std::span<const Message> sends,
                                   std::span<const Message> receives,
                                   std::chrono::seconds limit) override {
    std::vector<MPI_Request> &requests = requests_[member];
    requests.clear();
    {
      std::lock_guard lock(calls);
      for (const Message &message : receives)
        require(MPI_Irecv(message.bytes, static_cast<int>(message.count),
                          MPI_BYTE, places_[message.member],
                          tag(message.member, member), communicator_,
                          &requests.emplace_back()),
                "MPI_Irecv");
      for (const Message &message : sends)
        require(MPI_Isend(message.bytes, static_cast<int>(message.count),
                          MPI_BYTE, places_[message.member],
                          tag(member, message.member), communicator_,
                          &requests.emplace_back()),
                "MPI_Isend");
    }
    if (await(requests, limit))
      return std::nullopt;
    return findMissing(requests, receives, sends);
  }

  uint32_t rankOf(uint32_t member) const override { return ranks_[member]; }

private:
  int tag(uint32_t from, uint32_t to) const {
    return static_cast<int>(from * ranks_.size() + to);
  }

  /// Requests that are done have become null.
  static uint32_t findMissing(const std::vector<MPI_Request> &requests,
                              std::span<const Message> receives,
                              std::span<const Message> sends) {
    for (size_t i = 0; i < requests.size(); ++i)
      if (requests[i] != MPI_REQUEST_NULL)
        return i < receives.size() ? receives[i].member
                                   : sends[i - receives.size()].member;
    return 0;
  }

  std::vector<uint32_t> ranks_;
  std::vector<int> places_; // Of the members in the communicator.
  MPI_Comm communicator_;
  std::vector<std::vector<MPI_Request>> requests_; // By the member that calls.
};

class MpiWorld final : public World {
public:
  MpiWorld(MPI_Comm communicator, std::chrono::seconds limit)
      : communicator_(communicator), limit_(limit) {
    int rank, size;
    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &size);
    rank_ = static_cast<uint32_t>(rank);
    size_ = static_cast<uint32_t>(size);
  }

  ~MpiWorld() override {
    std::lock_guard lock(calls);
    MPI_Comm_free(&communicator_);
    MPI_Finalize();
  }

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return size_; }

  std::unique_ptr<Link> connect(const std::vector<uint32_t> &ranks) override {
    std::vector<int> sorted(ranks.begin(), ranks.end());
    std::sort(sorted.begin(), sorted.end());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    std::lock_guard lock(calls);
    MPI_Group all, some;
    MPI_Comm made;
    require(MPI_Comm_group(communicator_, &all), "MPI_Comm_group");
    require(MPI_Group_incl(all, static_cast<int>(sorted.size()), sorted.data(),
                           &some),
            "MPI_Group_incl");
    require(MPI_Comm_create_group(communicator_, some, /*tag=*/0, &made),
            "MPI_Comm_create_group");
    MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    return std::make_unique<MpiLink>(ranks, made);
  }

  // Through the first process, so that one that is missing can be named.
  std::vector<std::string> gather(const std::string &text) override {
    std::vector<std::string> all(size_);
    all[rank_] = text;
    if (rank_ != 0) {
      sendText(0, text);
      for (std::string &each : all)
        each = receiveText(0);
      return all;
    }
    for (uint32_t other = 1; other < size_; ++other)
      all[other] = receiveText(other);
    for (uint32_t other = 1; other < size_; ++other)
      for (const std::string &each : all)
        sendText(other, each);
    return all;
  }

  uint64_t maximum(uint64_t number) override {
    auto bytes = std::as_writable_bytes(std::span(&number, 1));
    if (rank_ != 0) {
      send(0, bytes);
      receive(0, bytes);
      return number;
    }
    for (uint32_t other = 1; other < size_; ++other) {
      uint64_t theirs;
      receive(other, std::as_writable_bytes(std::span(&theirs, 1)));
      number = std::max(number, theirs);
    }
    for (uint32_t other = 1; other < size_; ++other)
      send(other, bytes);
    return number;
  }

  void send(uint32_t rank, std::span<const std::byte> bytes) override {
    forEachPart(bytes, [&](std::span<const std::byte> part) {
      MPI_Request request;
      {
        std::lock_guard lock(calls);
        require(MPI_Isend(part.data(), static_cast<int>(part.size()), MPI_BYTE,
                          static_cast<int>(rank), 0, communicator_, &request),
                "MPI_Isend");
      }
      finish(request, rank);
    });
  }

  void receive(uint32_t rank, std::span<std::byte> bytes) override {
    forEachPart(bytes, [&](std::span<std::byte> part) {
      MPI_Request request;
      {
        std::lock_guard lock(calls);
        require(MPI_Irecv(part.data(), static_cast<int>(part.size()), MPI_BYTE,
                          static_cast<int>(rank), 0, communicator_, &request),
                "MPI_Irecv");
      }
      finish(request, rank);
    });
  }

private:
  /// MPI counts with int.
  template <typename Byte, typename Function>
  static void forEachPart(std::span<Byte> bytes, Function function) {
    constexpr size_t most = size_t{1} << 30;
    for (size_t begin = 0; begin < bytes.size(); begin += most)
      function(bytes.subspan(begin, std::min(most, bytes.size() - begin)));
  }

  void finish(MPI_Request request, uint32_t rank) {
    // The first process waits for who is missing, the others for the first:
    // they give it time to say so.
    constexpr std::chrono::seconds grace{5};
    if (await(std::span(&request, 1), rank_ == 0 ? limit_ : limit_ + grace))
      return;
    std::fprintf(stderr,
                 "kiln: error: collective 'agreement of processes' timed out: "
                 "rank %u has not come within %lld s "
                 "(KILN_COLLECTIVE_TIMEOUT), rank %u waits for it\n",
                 rank, static_cast<long long>(limit_.count()), rank_);
    ::_exit(static_cast<int>(Code::timedOut));
  }

  void sendText(uint32_t rank, const std::string &text) {
    uint64_t size = text.size();
    send(rank, std::as_bytes(std::span(&size, 1)));
    send(rank, std::as_bytes(std::span(text)));
  }

  std::string receiveText(uint32_t rank) {
    uint64_t size = 0;
    receive(rank, std::as_writable_bytes(std::span(&size, 1)));
    std::string text(size, '\0');
    receive(rank, std::as_writable_bytes(std::span(text)));
    return text;
  }

  MPI_Comm communicator_;
  std::chrono::seconds limit_;
  uint32_t rank_, size_;
};

} // namespace

} // namespace kiln

extern "C" __attribute__((visibility("default"))) kiln::World *
kilnOpenMpiWorld(std::chrono::seconds limit, std::string &error) {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) !=
          MPI_SUCCESS ||
      provided < MPI_THREAD_SERIALIZED) {
    error = "Open MPI cannot be called from several threads (level " +
            std::to_string(provided) + ")";
    return nullptr;
  }
  MPI_Comm communicator;
  MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  return new kiln::MpiWorld(communicator, limit);
}
