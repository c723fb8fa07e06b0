// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_CPU_DEVICE_H
#define KILN_RUNTIME_DEVICE_CPU_DEVICE_H

#include "runtime/device/cpu/Arena.h"
#include "runtime/device/cpu/Executor.h"

#include <memory>

namespace kiln::cpu {

/// A virtual device: workers, memory, programs and a thread for collectives.
/// Any number of them in a process. Call in this order: start, reserve, begin
/// and finish by turns.
class Device {
public:
  struct Options {
    uint32_t number;
    unsigned workers;
    bool isPassive; // Others need the cores while it waits.
    bool hasThread; // `begin` returns at once.
    bool isProfiled;
    Trace *trace; // Null for none.
  };

  /// `failed` if the system refuses a thread. What is given must outlive it.
  static Expected<std::unique_ptr<Device>> start(const Artifact &artifact,
                                                 const KernelLibrary &library,
                                                 const Options &options);
  ~Device();
  Device(const Device &) = delete;

  /// Takes all the memory it will ever use, and resolves its programs.
  Status reserve(const Groups &groups, const CollectiveSettings &settings);
  uint64_t reservedBytes() const { return arena_ ? arena_->bytes() : 0; }

  /// Runs a program by its number: on the device's own thread, or before it
  /// returns.
  void begin(size_t program);
  /// Returns when the program is done.
  void finish();

  uint32_t number() const { return options_.number; }
  /// What it runs.
  const artifact::Image &image() const { return image_; }
  std::byte *memory() const { return arena_->base(); }
  Team &team() { return *team_; }
  const Executor &executor(size_t program) const { return executors_[program]; }
  /// Bytes taken from other devices. No program may be running.
  uint64_t receivedBytes() const { return communicator_->receivedBytes(); }

private:
  Device(const Artifact &artifact, const KernelLibrary &library,
         const Options &options, std::unique_ptr<Team> team);
  void serve();
  void writeCoordinates() const;
  Track *addTrack(const char *name) const;

  const Artifact &artifact_;
  const KernelLibrary &library_;
  const Options options_;
  const artifact::Image &image_;
  std::unique_ptr<Team> team_;
  std::optional<Arena> arena_;
  std::unique_ptr<RedZones> redZones_; // Null for none.
  std::unique_ptr<Communicator> communicator_;
  std::vector<Executor> executors_; // In the order of the image's programs.

  size_t program_ = 0;
  bool isStopping_ = false;
  Gate begun_, done_;
  std::optional<Thread> thread_;
};

} // namespace kiln::cpu

#endif // KILN_RUNTIME_DEVICE_CPU_DEVICE_H
