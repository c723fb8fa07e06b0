// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_TRACE_TRACE_H
#define KILN_RUNTIME_TRACE_TRACE_H

#include "runtime/trace/TraceFile.h"

#include <chrono>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

namespace kiln {

/// Consecutive steps, counted from 1; all of them unless limited.
struct StepRange {
  uint64_t first = 0, last = std::numeric_limits<uint64_t>::max();

  bool contains(uint64_t step) const { return first <= step && step <= last; }
};

/// A file and the steps to record.
struct TraceOptions {
  std::string path; // Empty: no trace.
  StepRange steps;
  /// Of a file after which another is begun. Chrome reads a file as one string,
  /// which may have 512 MiB.
  uint64_t segmentBytes = uint64_t{256} << 20;
};

/// Timed events of one queue of a device. Filled by the queue's thread alone.
class Track {
public:
  using Clock = std::chrono::steady_clock;
  enum class Queue : uint32_t { compute = 1, communication = 2 };

  struct Event {
    const char *name;     // These two must live as long as the track.
    const char *category; // launch, copy, start, wait; rendezvous, transfer.
    Clock::time_point begin, end;
    uint64_t bytes;
    /// Numbers a device's collective, from its start over its transfer to its
    /// wait; 0 for anything else.
    uint64_t collective = 0;
    /// Planned bytes that are live on the device and in host memory while a
    /// command runs; 0 if unknown.
    uint64_t liveBytes = 0, liveHostBytes = 0;
  };

  Track(uint32_t device, Queue queue, size_t capacity, const bool &isRecording)
      : device_(device), queue_(queue), isRecording_(isRecording) {
    events_.reserve(capacity);
  }

  /// Allocates nothing; events that do not fit are left out.
  void add(const Event &event) {
    if (isRecording_ && events_.size() < events_.capacity())
      events_.push_back(event);
  }

private:
  friend class Trace;

  uint32_t device_;
  Queue queue_;
  const bool &isRecording_; // Changes between programs only.
  std::vector<Event> events_;
};

/// Events in Chrome's trace format, which Perfetto reads too: a process per
/// device, with a track of steps, one for each of its queues, a counter of live
/// bytes, and an arrow from the start of a collective to its wait. The clock is
/// the machine's, so that files of several processes go together.
///
/// The events of a step are on their way to the disk when the next one begins.
/// A file that becomes larger than viewers can open is followed by another one,
/// which is complete in itself.
class Trace {
public:
  explicit Trace(TraceOptions options) : options_(std::move(options)) {}
  Trace(const Trace &) = delete;

  /// Whether `open` can succeed. `usage` if there is a second file already: it
  /// is of an earlier trace.
  Status check() const;
  /// Opens the file before the first program is run; does nothing from the
  /// second call on.
  Status open();
  const TraceOptions &options() const { return options_; }

  /// The file of a process when the first one's is `path`.
  static std::string pathOf(const std::string &path, uint32_t rank) {
    return rank ? path + "." + std::to_string(rank) : path;
  }
  /// File number `segment`, from 1, of a trace: trace.json, trace-2.json, ...
  static std::string pathOfSegment(const std::string &path, uint64_t segment);

  /// `capacity` is the number of events from one `flush` to the next. Not after
  /// the first flush.
  Track &addTrack(uint32_t device, Track::Queue queue, size_t capacity);

  /// Tells that the next program is part of a step.
  void beginStep(uint64_t step);
  /// Writes and drops the events of all tracks, which are those of one run of
  /// a program. No track may be in use. After a failure nothing more is
  /// written.
  void flush(std::string_view program, Track::Clock::time_point begin,
             Track::Clock::time_point end);
  /// Waits until all events are on the disk; the first failure of all.
  Status finish();

private:
  Status openSegment();
  Status nextSegment();
  void add(const Track &track, const Track::Event &event);
  void addFlow(const Track &track, const Track::Event &event);
  void addLiveBytes(const Track &track);
  void addMetadata();
  void addName(uint32_t device, uint32_t track, const char *kind,
               const std::string &name);
  const std::string &quote(const char *name);

  TraceOptions options_;
  std::unique_ptr<TraceFile> file_;
  uint64_t segment_ = 1;
  Status status_;
  uint64_t step_ = 0; // 0: none was begun.
  bool isRecording_ = true;
  bool hasMetadata_ = false; // In this file.
  std::vector<std::unique_ptr<Track>> tracks_;
  std::unordered_map<const char *, std::string> quoted_;
  std::string text_;
};

} // namespace kiln

#endif // KILN_RUNTIME_TRACE_TRACE_H
