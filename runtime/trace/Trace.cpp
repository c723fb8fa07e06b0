// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/trace/Trace.h"

#include <cerrno>
#include <cstring>

namespace kiln {

static double microseconds(Track::Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

Expected<std::unique_ptr<Trace>> Trace::create(const std::string &path) {
  std::FILE *file = std::fopen(path.c_str(), "we");
  if (!file)
    return Status(Code::io,
                  "trace " + path + ": cannot open: " + std::strerror(errno));
  std::fputs("{\"traceEvents\": [\n", file);
  return std::unique_ptr<Trace>(new Trace(file));
}

Trace::~Trace() {
  flush();
  std::fputs("\n]}\n", file_);
  std::fclose(file_);
}

void Trace::separate() {
  if (!isFirst_)
    std::fputs(",\n", file_);
  isFirst_ = false;
}

void Trace::writeName(const char *name) {
  std::fputc('"', file_);
  for (; *name; ++name) {
    if (static_cast<unsigned char>(*name) < 0x20)
      continue;
    if (*name == '"' || *name == '\\')
      std::fputc('\\', file_);
    std::fputc(*name, file_);
  }
  std::fputc('"', file_);
}

Track &Trace::addTrack(uint32_t device, const char *name, size_t capacity) {
  tracks_.push_back(std::make_unique<Track>(device, name, capacity));
  for (const char *kind : {"process_name", "thread_name"}) {
    separate();
    std::fprintf(file_,
                 "{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %u, \"tid\": "
                 "\"%s\", \"args\": {\"name\": ",
                 kind, device, name);
    bool isProcess = std::strcmp(kind, "process_name") == 0;
    writeName(isProcess ? ("device " + std::to_string(device)).c_str() : name);
    std::fputs("}}", file_);
  }
  return *tracks_.back();
}

void Trace::flush() {
  for (const std::unique_ptr<Track> &track : tracks_) {
    for (const Track::Event &event : track->events_) {
      separate();
      std::fputs("{\"ph\": \"X\", \"name\": ", file_);
      writeName(event.name);
      std::fprintf(file_,
                   ", \"cat\": \"%s\", \"pid\": %u, \"tid\": \"%s\", "
                   "\"ts\": %.3f, \"dur\": %.3f, \"args\": {\"bytes\": %llu}}",
                   event.category, track->device_, track->name_,
                   microseconds(event.begin.time_since_epoch()),
                   microseconds(event.end - event.begin),
                   static_cast<unsigned long long>(event.bytes));
    }
    track->events_.clear();
  }
  std::fflush(file_);
}

} // namespace kiln
