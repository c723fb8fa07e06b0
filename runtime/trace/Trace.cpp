// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/trace/Trace.h"
#include "runtime/checkpoint/OutputFile.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

namespace kiln {

namespace fs = std::filesystem;

/// Above the number of any device.
static constexpr uint64_t mostDevices = uint64_t{1} << 16;

/// The track of a device's steps, beside those of its queues.
static constexpr uint32_t steps = 0, tracksOfDevice = 3;

/// Number of a track in the file, unique among all devices. Perfetto takes
/// track 0 of a process, and the one with the process's own number, for its
/// main thread, and would put steps among commands.
static uint32_t numberTrack(uint32_t device, uint32_t track) {
  return device * tracksOfDevice + track + 1;
}

static uint32_t numberTrack(uint32_t device, Track::Queue queue) {
  return numberTrack(device, static_cast<uint32_t>(queue));
}

static double microseconds(Track::Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

static double microseconds(Track::Clock::time_point time) {
  return microseconds(time.time_since_epoch());
}

/// Formats one more element of the array; a name follows by itself, because it
/// may be of any length.
[[gnu::format(printf, 2, 3)]]
static void print(std::string &text, const char *format, ...) {
  char piece[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(piece, sizeof(piece), format, arguments);
  va_end(arguments);
  text += piece;
}

static void separate(std::string &text) {
  if (!text.empty())
    text += ",\n";
}

std::string Trace::pathOfSegment(const std::string &path, uint64_t segment) {
  if (segment == 1)
    return path;
  fs::path first = path;
  return (first.parent_path() / first.stem()).string() + "-" +
         std::to_string(segment) + first.extension().string();
}

Status Trace::check() const {
  std::string second = pathOfSegment(options_.path, 2);
  std::error_code error;
  if (fs::exists(second, error))
    return Status(Code::usage, "trace " + options_.path + ": found " + second +
                                   " of an earlier trace; remove it, or give "
                                   "another --trace");
  return checkOutput("trace " + options_.path, options_.path);
}

Status Trace::open() {
  if (file_)
    return Status();
  Status status = check();
  return status.ok() ? openSegment() : status;
}

Status Trace::openSegment() {
  Expected<std::unique_ptr<TraceFile>> file =
      TraceFile::open(pathOfSegment(options_.path, segment_),
                      segment_ == 1 ? TraceFile::Existing::emptied
                                    : TraceFile::Existing::refused);
  if (!file.ok())
    return file.status();
  file_ = std::move(*file);
  hasMetadata_ = false;
  return Status();
}

Status Trace::nextSegment() {
  Status status = file_->finish();
  ++segment_;
  return status.ok() ? openSegment() : status;
}

Track &Trace::addTrack(uint32_t device, Track::Queue queue, size_t capacity) {
  tracks_.push_back(
      std::make_unique<Track>(device, queue, capacity, isRecording_));
  return *tracks_.back();
}

void Trace::beginStep(uint64_t step) {
  step_ = step;
  isRecording_ = status_.ok() && options_.steps.contains(step);
}

/// The name in quotes. Names come from models: any byte may be in them.
const std::string &Trace::quote(const char *name) {
  std::string &text = quoted_[name];
  if (text.empty())
    text = nlohmann::json(name).dump(-1, ' ', false,
                                     nlohmann::json::error_handler_t::replace);
  return text;
}

void Trace::addName(uint32_t device, uint32_t track, const char *kind,
                    const std::string &name) {
  separate(text_);
  print(
      text_,
      R"({"ph": "M", "name": "%s", "pid": %u, "tid": %u, "args": {"name": "%s"}})",
      kind, device, numberTrack(device, track), name.c_str());
}

void Trace::addMetadata() {
  hasMetadata_ = true;
  std::set<uint32_t> devices;
  for (const std::unique_ptr<Track> &track : tracks_) {
    uint32_t device = track->device_;
    if (devices.insert(device).second) {
      addName(device, steps, "process_name",
              "device " + std::to_string(device));
      separate(text_);
      print(
          text_,
          R"({"ph": "M", "name": "process_sort_index", "pid": %u, "args": {"sort_index": %u}})",
          device, device);
      addName(device, steps, "thread_name", "steps");
    }
    addName(device, static_cast<uint32_t>(track->queue_), "thread_name",
            track->queue_ == Track::Queue::compute ? "compute"
                                                   : "communication");
  }
}

void Trace::add(const Track &track, const Track::Event &event) {
  double begin = microseconds(event.begin), end = microseconds(event.end);
  separate(text_);
  text_ += R"({"ph": "X", "name": )" + quote(event.name);
  print(
      text_,
      R"(, "cat": "%s", "pid": %u, "tid": %u, "ts": %.3f, "dur": %.3f, "args": {"bytes": %llu}})",
      event.category, track.device_, numberTrack(track.device_, track.queue_),
      begin, end - begin, static_cast<unsigned long long>(event.bytes));
  if (event.collective != 0)
    addFlow(track, event);
}

void Trace::addFlow(const Track &track, const Track::Event &event) {
  std::string_view category = event.category;
  bool isStart = category == "start", isWait = category == "wait";
  if (category == "rendezvous")
    return;
  double begin = microseconds(event.begin), end = microseconds(event.end);
  // An arrow is tied to the event around its time: it leaves the start when
  // that begins, and reaches the wait just before that ends.
  double time = isWait ? std::max(begin, end - 0.001) : begin;
  separate(text_);
  print(
      text_,
      R"({"ph": "%s", "name": "collective", "cat": "flow", "id": %llu, "pid": %u, "tid": %u, "ts": %.3f%s})",
      isStart  ? "s"
      : isWait ? "f"
               : "t",
      static_cast<unsigned long long>(event.collective * mostDevices +
                                      track.device_),
      track.device_, numberTrack(track.device_, track.queue_), time,
      isWait ? R"(, "bp": "e")" : "");
}

// Only changes are written, and the first of every run, so that each file and
// each limited trace has them.
void Trace::addLiveBytes(const Track &track) {
  uint64_t live = 0, host = 0;
  bool hasHost = std::any_of(
      track.events_.begin(), track.events_.end(),
      [](const Track::Event &event) { return event.liveHostBytes != 0; });
  for (const Track::Event &event : track.events_) {
    if (event.liveBytes == live && event.liveHostBytes == host)
      continue;
    live = event.liveBytes;
    host = event.liveHostBytes;
    separate(text_);
    print(
        text_,
        R"({"ph": "C", "name": "live bytes", "pid": %u, "ts": %.3f, "args": {"device": %llu)",
        track.device_, microseconds(event.begin),
        static_cast<unsigned long long>(live));
    if (hasHost)
      print(text_, R"(, "host": %llu)", static_cast<unsigned long long>(host));
    text_ += "}}";
  }
}

void Trace::flush(std::string_view program, Track::Clock::time_point begin,
                  Track::Clock::time_point end) {
  if (!isRecording_)
    return;
  if (file_->bytes() > options_.segmentBytes)
    status_ = nextSegment();
  text_.clear();
  if (!hasMetadata_)
    addMetadata();
  std::string name(program);
  if (step_ != 0)
    name += ", step " + std::to_string(step_);
  name = nlohmann::json(name).dump(-1, ' ', false,
                                   nlohmann::json::error_handler_t::replace);
  std::set<uint32_t> devices;
  for (const std::unique_ptr<Track> &track : tracks_) {
    if (devices.insert(track->device_).second) {
      separate(text_);
      text_ += R"({"ph": "X", "name": )" + name;
      print(
          text_,
          R"(, "cat": "step", "pid": %u, "tid": %u, "ts": %.3f, "dur": %.3f})",
          track->device_, numberTrack(track->device_, steps),
          microseconds(begin), microseconds(end - begin));
    }
    for (const Track::Event &event : track->events_)
      add(*track, event);
    addLiveBytes(*track);
    track->events_.clear();
  }
  if (status_.ok())
    status_ = file_->append(text_);
  isRecording_ = status_.ok();
}

Status Trace::finish() { return status_.ok() ? file_->finish() : status_; }

} // namespace kiln
