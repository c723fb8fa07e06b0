// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_TRACE_TRACE_H
#define KILN_RUNTIME_TRACE_TRACE_H

#include "runtime/Status.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace kiln {

/// Timed events of one thread of a device. Filled by that thread alone.
class Track {
public:
  using Clock = std::chrono::steady_clock;

  struct Event {
    const char *name;     // These two must live as long as the track.
    const char *category; // launch, copy, start, wait; rendezvous, transfer.
    Clock::time_point begin, end;
    uint64_t bytes;
  };

  Track(uint32_t device, const char *name, size_t capacity)
      : device_(device), name_(name) {
    events_.reserve(capacity);
  }

  /// Allocates nothing; events that do not fit are left out.
  void add(const Event &event) {
    if (events_.size() < events_.capacity())
      events_.push_back(event);
  }

private:
  friend class Trace;

  uint32_t device_;
  const char *name_; // compute or communication
  std::vector<Event> events_;
};

/// A file of events in Chrome's trace format: a process per device, with a
/// track for compute and one for communication. The clock is the machine's, so
/// that files of several processes go together.
class Trace {
public:
  static Expected<std::unique_ptr<Trace>> create(const std::string &path);
  /// The file of a process when the first one's is `path`.
  static std::string pathOf(const std::string &path, uint32_t rank) {
    return rank ? path + "." + std::to_string(rank) : path;
  }
  ~Trace();
  Trace(const Trace &) = delete;

  /// `capacity` is the number of events from one `flush` to the next.
  Track &addTrack(uint32_t device, const char *name, size_t capacity);

  /// Writes and drops the events of all tracks. No track may be in use.
  void flush();

private:
  explicit Trace(std::FILE *file) : file_(file) {}
  void separate();
  void writeName(const char *name);

  std::FILE *file_;
  bool isFirst_ = true;
  std::vector<std::unique_ptr<Track>> tracks_;
};

} // namespace kiln

#endif // KILN_RUNTIME_TRACE_TRACE_H
