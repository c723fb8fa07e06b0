// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/collective/Roster.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace kiln {

namespace {

/// Of this process, if it is a rank of `kiln run -n`.
std::optional<Roster> joined;
uint32_t ownRank = 0;

Status refuse(const std::string &what) {
  return Status(Code::failed, std::string(Roster::variable) + ": " + what);
}

} // namespace

Expected<Roster> Roster::create(uint32_t ranks) {
  // Without a name in any folder, so that nothing is left behind.
  int file = ::memfd_create("kiln-roster", MFD_CLOEXEC);
  size_t size = bytes(ranks);
  void *page = MAP_FAILED;
  if (file >= 0 && ::ftruncate(file, static_cast<off_t>(size)) == 0)
    page = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) {
    Status status(Code::failed,
                  std::string("cannot share memory with ranks: ") +
                      std::strerror(errno));
    if (file >= 0)
      ::close(file);
    return status;
  }
  Roster roster(file, static_cast<Page *>(page));
  roster.page_->ranks = ranks;
  return roster;
}

Roster::Roster(Roster &&other) noexcept
    : file_(std::exchange(other.file_, -1)),
      page_(std::exchange(other.page_, nullptr)) {}

Roster::~Roster() {
  if (page_)
    ::munmap(page_, bytes(page_->ranks));
  if (file_ >= 0)
    ::close(file_);
}

std::string Roster::setting() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_);
}

bool Roster::requestStop(int signal) {
  page_->stop = signal;
  Phase phase = Phase::starting;
  return !page_->phase.compare_exchange_strong(phase, Phase::over) &&
         phase == Phase::training;
}

Status Roster::join() {
  const char *path = std::getenv(variable),
             *number = std::getenv("OMPI_COMM_WORLD_RANK");
  if (!number)
    return Status();
  // mpirun is the parent on this machine. If it is killed outright, nothing
  // else would end its ranks.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!path)
    return Status();
  int file = ::open(path, O_RDWR | O_CLOEXEC);
  struct stat found;
  if (file < 0 || ::fstat(file, &found) != 0)
    return refuse(std::string("cannot open ") + path + ": " +
                  std::strerror(errno) +
                  "; the ranks of `kiln run -n` must be on its machine");
  auto size = static_cast<size_t>(found.st_size);
  void *page =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED || size < sizeof(Page))
    return refuse(std::string("cannot read ") + path);
  Roster roster(file, static_cast<Page *>(page));
  ownRank = static_cast<uint32_t>(std::atoi(number));
  if (ownRank >= roster.ranks() || size != bytes(roster.ranks()))
    return refuse(std::string(path) + " has no place for rank " + number);
  joined.emplace(std::move(roster));
  joined->entry(ownRank).process = ::getpid();
  report(State::started);
  // mpirun may have been ended before it knew of this rank.
  endIfOver();
  return Status();
}

void Roster::report(State state) {
  if (joined)
    joined->entry(ownRank).state = state;
}

void Roster::endIfOver() {
  if (joined->page_->phase == Phase::over)
    ::_exit(static_cast<int>(Code::failed)); // The command has the reason.
}

void Roster::beginTraining() {
  if (!joined)
    return;
  Phase phase = Phase::starting;
  joined->page_->phase.compare_exchange_strong(phase, Phase::training);
  endIfOver();
  report(State::training);
}

void Roster::beginLeaving(int exitCode) {
  if (joined)
    joined->entry(ownRank).exitCode = exitCode;
  report(State::leaving);
}

void Roster::leave(int exitCode) {
  if (joined)
    joined->entry(ownRank).exitCode = exitCode;
  report(State::left);
}

bool Roster::isJoined() { return joined.has_value(); }

int Roster::requestedStop() { return joined ? joined->page_->stop.load() : 0; }

} // namespace kiln
