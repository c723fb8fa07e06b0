// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Processes that were started by mpirun. A library of its own, so that only a
// run that needs it loads Open MPI.
#include "runtime/collective/mpi/RollCall.h"

#include <algorithm>

namespace kiln {

namespace {

/// The processes of the members, each once, as a communicator has them.
std::vector<int> sortRanks(const std::vector<uint32_t> &ranks) {
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  return sorted;
}

class MpiLink final : public Link {
public:
  MpiLink(const std::vector<uint32_t> &ranks, MPI_Comm communicator,
          RollCall &rollCall)
      : ranks_(ranks), communicator_(communicator), rollCall_(rollCall),
        pending_(ranks.size()) {
    std::vector<int> sorted = sortRanks(ranks);
    for (uint32_t rank : ranks)
      places_.push_back(
          static_cast<int>(std::lower_bound(sorted.begin(), sorted.end(),
                                            static_cast<int>(rank)) -
                           sorted.begin()));
    for (Pending &each : pending_) {
      each.requests.reserve(2 * ranks.size());
      each.ranks.reserve(2 * ranks.size());
    }
    rollCall.reserve(ranks.size());
  }

  ~MpiLink() override {
    std::lock_guard lock(mpiCalls);
    MPI_Comm_free(&communicator_);
  }

  std::optional<Inquiry> transfer(uint32_t member, std::string_view collective,
                                  std::span<const Message> sends,
                                  std::span<const Message> receives) override {
    auto &[requests, ranks] = pending_[member];
    requests.clear();
    ranks.clear();
    {
      std::lock_guard lock(mpiCalls);
      // Lets MPI profilers count messages; otherwise a no-op.
      MPI_Pcontrol(1, collective.data(), collective.size());
      for (const Message &message : receives) {
        ranks.push_back(ranks_[message.member]);
        requireMpi(MPI_Irecv(message.bytes, static_cast<int>(message.count),
                             MPI_BYTE, places_[message.member],
                             tag(message.member, member), communicator_,
                             &requests.emplace_back()),
                   "MPI_Irecv");
      }
      for (const Message &message : sends) {
        ranks.push_back(ranks_[message.member]);
        requireMpi(MPI_Isend(message.bytes, static_cast<int>(message.count),
                             MPI_BYTE, places_[message.member],
                             tag(member, message.member), communicator_,
                             &requests.emplace_back()),
                   "MPI_Isend");
      }
    }
    return rollCall_.await({collective, requests, ranks});
  }

  uint32_t rankOf(uint32_t member) const override { return ranks_[member]; }

private:
  struct Pending {
    std::vector<MPI_Request> requests;
    std::vector<uint32_t> ranks; // Of the requests.
  };

  int tag(uint32_t from, uint32_t to) const {
    return static_cast<int>(from * ranks_.size() + to);
  }

  std::vector<uint32_t> ranks_;
  std::vector<int> places_; // Ranks of the members in the communicator.
  MPI_Comm communicator_;
  RollCall &rollCall_;
  std::vector<Pending> pending_; // By the calling member.
};

class MpiTransport final : public Transport {
public:
  /// Open MPI makes communicators by messages in the given one, so the roll
  /// call, which receives from any source, has its own.
  MpiTransport(MPI_Comm forRollCall, std::chrono::seconds limit)
      : forRollCall_(forRollCall), rollCall_(forRollCall, limit) {}

  ~MpiTransport() override {
    std::lock_guard lock(mpiCalls);
    MPI_Comm_free(&forRollCall_);
    MPI_Finalize();
  }

  uint32_t rank() const override { return rollCall_.rank(); }
  uint32_t size() const override { return rollCall_.size(); }

  std::unique_ptr<Link> connect(const std::vector<uint32_t> &ranks) override {
    std::vector<int> sorted = sortRanks(ranks);
    MPI_Group all, some;
    MPI_Comm made;
    {
      std::lock_guard lock(mpiCalls);
      requireMpi(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
      requireMpi(MPI_Group_incl(all, static_cast<int>(sorted.size()),
                                sorted.data(), &some),
                 "MPI_Group_incl");
      requireMpi(MPI_Comm_create_group(MPI_COMM_WORLD, some, /*tag=*/0, &made),
                 "MPI_Comm_create_group");
      MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
      MPI_Group_free(&some);
      MPI_Group_free(&all);
    }
    return std::make_unique<MpiLink>(ranks, made, rollCall_);
  }

  Inquiry ask() override { return rollCall_.ask(); }

private:
  MPI_Comm forRollCall_;
  RollCall rollCall_;
};

} // namespace

} // namespace kiln

extern "C" __attribute__((visibility("default"))) kiln::Transport *
kilnOpenMpiTransport(std::chrono::seconds limit, std::string &error) {
  int provided = 0;
  if (int result =
          MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
      result != MPI_SUCCESS) {
    error = "Open MPI cannot be started (code " + std::to_string(result) + ")";
    return nullptr;
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    error = "Open MPI cannot be called from several threads (level " +
            std::to_string(provided) + ")";
    MPI_Finalize();
    return nullptr;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm forRollCall; // It inherits the error handler.
  kiln::requireMpi(MPI_Comm_dup(MPI_COMM_WORLD, &forRollCall), "MPI_Comm_dup");
  return new kiln::MpiTransport(forRollCall, limit);
}
