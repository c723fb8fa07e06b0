// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/Arena.h"
#include "runtime/device/cpu/AvailableMemory.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace kiln::cpu {

namespace {

constexpr uint64_t hugePage = uint64_t{2} << 20;

uint64_t roundUp(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

Status refuse(uint64_t bytes, const std::string &reason) {
  return Status(Code::noPlan, "cannot reserve the arena of " +
                                  std::to_string(bytes) + " bytes: " + reason +
                                  "; compile for less memory (devices.memory)");
}

} // namespace

Expected<Arena> Arena::reserve(uint64_t bytes) {
  if (bytes == 0)
    return Arena(nullptr, 0);
  if (uint64_t available = availableMemory(); bytes > available)
    return refuse(bytes, std::to_string(available) + " bytes are available");
  // Only a mapping that starts at a huge page's boundary is backed by huge
  // pages. The address space before and behind it stays reserved: code that
  // leaves the arena by less than a huge page faults.
  uint64_t length = roundUp(bytes, 4096);
  uint64_t span = length + 3 * hugePage;
  void *mapping = ::mmap(nullptr, span, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    return refuse(bytes, std::strerror(errno));
  auto *first = static_cast<std::byte *>(mapping);
  uint64_t address = reinterpret_cast<uint64_t>(first);
  uint64_t head = roundUp(address, hugePage) - address;
  std::byte *base = first + head + hugePage;
  if (head != 0)
    ::munmap(first, head);
  if (head != hugePage)
    ::munmap(base + length + hugePage, hugePage - head);
  Arena arena(base, bytes);
  if (::mprotect(base, length, PROT_READ | PROT_WRITE) != 0)
    return refuse(bytes, std::strerror(errno));
  ::madvise(base, length,
            MADV_HUGEPAGE); // Speed only: a refusal does not matter.
  // Kernels older than 5.14 do not know this advice and commit page by page.
  if (::madvise(base, length, MADV_POPULATE_WRITE) != 0 && errno != EINVAL)
    return refuse(bytes, std::strerror(errno));
  return arena;
}

Arena::Arena(Arena &&other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Arena &Arena::operator=(Arena &&other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Arena::~Arena() {
  if (base_)
    ::munmap(base_ - hugePage, roundUp(bytes_, 4096) + 2 * hugePage);
}

} // namespace kiln::cpu
