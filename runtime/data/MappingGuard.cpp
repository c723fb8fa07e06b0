// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/data/MappingGuard.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace kiln {

struct MappingGuard::Region {
  std::atomic<bool> isTaken{false}, hasLostBytes{false};
  std::atomic<uintptr_t> begin{0}, end{0}; // Equal: nothing to guard.
};

namespace {

/// A fixed number, never freed: the handler may read them at any time. A run
/// maps four files at most.
std::array<MappingGuard::Region, 64> regions;

struct sigaction actionBefore;
const auto pageBytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));

/// Puts zeros in the place of the page that cannot be read and of all that
/// follow, so that the interrupted instruction succeeds. A fault elsewhere is
/// left to the action that was there before.
void replaceLostBytes(int signal, siginfo_t *info, void *) {
  auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  int saved = errno;
  for (MappingGuard::Region &region : regions) {
    uintptr_t end = region.end.load();
    if (address < region.begin.load() || address >= end)
      continue;
    uintptr_t page = address / pageBytes * pageBytes;
    void *zeros = ::mmap(reinterpret_cast<void *>(page), end - page, PROT_READ,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = saved;
    if (zeros == MAP_FAILED)
      break;
    region.hasLostBytes = true;
    return;
  }
  ::sigaction(signal, &actionBefore, nullptr);
}

void installHandler() {
  static std::once_flag isInstalled;
  std::call_once(isInstalled, [] {
    struct sigaction action = {};
    action.sa_sigaction = replaceLostBytes;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, &actionBefore);
  });
}

} // namespace

MappingGuard::MappingGuard(std::span<const std::byte> mapping) {
  installHandler();
  for (Region &region : regions)
    if (!region_ && !region.isTaken.exchange(true))
      region_ = &region;
  if (!region_)
    return;
  auto begin = reinterpret_cast<uintptr_t>(mapping.data());
  region_->hasLostBytes = false;
  region_->begin = begin;
  region_->end = begin + mapping.size();
}

MappingGuard::MappingGuard(MappingGuard &&other) noexcept
    : region_(std::exchange(other.region_, nullptr)) {}

MappingGuard::~MappingGuard() {
  if (!region_)
    return;
  region_->end = 0;
  region_->begin = 0;
  region_->isTaken = false;
}

bool MappingGuard::hasLostBytes() const {
  return region_ && region_->hasLostBytes;
}

} // namespace kiln
