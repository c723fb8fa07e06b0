// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/collective/mpi/RollCall.h"
#include "runtime/Status.h"
#include "runtime/collective/Patience.h"

#include <algorithm>
#include <cstdio>
#include <sched.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace kiln {

std::mutex mpiCalls;

void requireMpi(int result, const char *call) {
  if (result == MPI_SUCCESS)
    return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(result, text, &length) != MPI_SUCCESS)
    length = 0;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "kiln: error: rank %d: %s failed: %.*s (code %d)\n",
               rank, call, length, text, result);
  ::_exit(static_cast<int>(Code::rankLost));
}

namespace {

enum Tag : int { questionTag = 1, answerTag = 2 };

/// Messages are so small that they arrive even if the sender hangs.
constexpr size_t longestName = 256;

/// After this long without a new answer no more will come. A waiting rank polls
/// thousands of times in it, even with more ranks than cores.
constexpr std::chrono::seconds silence{2};

} // namespace

RollCall::RollCall(MPI_Comm communicator, std::chrono::seconds limit)
    : communicator_(communicator), limit_(limit) {
  int rank, size;
  MPI_Comm_rank(communicator, &rank);
  MPI_Comm_size(communicator, &size);
  rank_ = static_cast<uint32_t>(rank);
  size_ = static_cast<uint32_t>(size);
  heard_.resize(size_);
  answers_.resize(size_);
  inbox_.resize(size_ + longestName);
}

void RollCall::reserve(size_t waits) {
  std::lock_guard lock(mpiCalls);
  waits_.reserve(waits_.capacity() + waits);
}

bool RollCall::isDone(const MpiWait &wait) {
  int isDone = 0;
  requireMpi(MPI_Testall(static_cast<int>(wait.requests.size()),
                         wait.requests.data(), &isDone, MPI_STATUSES_IGNORE),
             "MPI_Testall");
  return isDone != 0;
}

std::optional<Inquiry> RollCall::await(const MpiWait &wait) {
  // Most requests are done at once.
  constexpr unsigned quickLooks = 64;
  for (unsigned looks = 0; looks < quickLooks; ++looks) {
    {
      std::lock_guard lock(mpiCalls);
      if (isDone(wait))
        return std::nullopt;
    }
    ::sched_yield();
  }
  // Longer waits must not take a core away.
  constexpr std::chrono::microseconds longest{200};
  std::chrono::microseconds pause{0};
  Patience patience(limit_);
  {
    std::lock_guard lock(mpiCalls);
    waits_.push_back(wait);
  }
  while (!patience.isOver()) {
    pause = std::min(longest, pause + std::chrono::microseconds(5));
    std::this_thread::sleep_for(pause);
    std::lock_guard lock(mpiCalls);
    if (isDone(wait)) {
      std::erase_if(waits_, [&](const MpiWait &each) {
        return each.requests.data() == wait.requests.data();
      });
      return std::nullopt;
    }
    listen();
  }
  // The wait stays listed, so that this process keeps reporting it.
  std::string pending(size_, '\0');
  {
    std::lock_guard lock(mpiCalls);
    addPending(wait, pending);
  }
  return inquire(parse(pending).awaited);
}

Inquiry RollCall::ask() {
  std::vector<uint32_t> awaited;
  {
    std::lock_guard lock(mpiCalls);
    awaited = parse(describe()).awaited;
  }
  return awaited.empty() ? Inquiry() : inquire(std::move(awaited));
}

Inquiry RollCall::inquire(std::vector<uint32_t> awaited) {
  // Never unlocked: the first inquiry ends the process.
  asking_.lock();
  {
    std::lock_guard lock(mpiCalls);
    question_ = describe();
    heard_[rank_] = parse(question_);
    for (uint32_t other = 0; other < size_; ++other)
      if (other != rank_)
        say(other, questionTag, question_);
  }
  size_t heard = 0;
  for (Patience patience(silence); !patience.isOver() && heard < size_;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::lock_guard lock(mpiCalls);
    listen();
    auto before = std::exchange(
        heard, static_cast<size_t>(std::count_if(
                   heard_.begin(), heard_.end(),
                   [](const Statement &each) { return each.isGiven; })));
    if (heard != before)
      patience = Patience(silence);
  }
  // A rank that hung may answer now because it was woken while the run is being
  // ended: then this process is ended during the sleep, too.
  if (heard == size_)
    std::this_thread::sleep_for(5 * silence);
  std::lock_guard lock(mpiCalls);
  return {std::move(awaited), heard_};
}

void RollCall::addPending(const MpiWait &wait, std::string &ranks) {
  for (size_t i = 0; i < wait.requests.size(); ++i) {
    // MPI_Testall leaves finished requests as they are while others are not.
    int isDone = 0;
    requireMpi(
        MPI_Request_get_status(wait.requests[i], &isDone, MPI_STATUS_IGNORE),
        "MPI_Request_get_status");
    if (!isDone)
      ranks[wait.ranks[i]] = 1;
  }
}

std::string RollCall::describe() const {
  std::string text(size_, '\0');
  for (const MpiWait &wait : waits_)
    addPending(wait, text);
  if (!waits_.empty())
    text += waits_.front().collective.substr(0, longestName);
  return text;
}

Statement RollCall::parse(std::string_view text) const {
  Statement statement{true, {}, std::string(text.substr(size_))};
  for (uint32_t rank = 0; rank < size_; ++rank)
    if (text[rank])
      statement.awaited.push_back(rank);
  return statement;
}

void RollCall::say(uint32_t rank, int tag, const std::string &text) {
  // A rank that is gone needs no answer, so a failure does not matter.
  MPI_Request request;
  if (MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_CHAR,
                static_cast<int>(rank), tag, communicator_,
                &request) == MPI_SUCCESS)
    MPI_Request_free(&request);
}

void RollCall::listen() {
  int isThere = 0;
  MPI_Status status;
  while (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &isThere,
                    &status) == MPI_SUCCESS &&
         isThere) {
    int length = 0;
    requireMpi(MPI_Recv(inbox_.data(), static_cast<int>(inbox_.size()),
                        MPI_CHAR, status.MPI_SOURCE, status.MPI_TAG,
                        communicator_, &status),
               "MPI_Recv");
    MPI_Get_count(&status, MPI_CHAR, &length);
    auto source = static_cast<uint32_t>(status.MPI_SOURCE);
    heard_[source] =
        parse(std::string_view(inbox_).substr(0, static_cast<size_t>(length)));
    if (status.MPI_TAG == questionTag) {
      answers_[source] = describe();
      say(source, answerTag, answers_[source]);
    }
  }
}

} // namespace kiln
