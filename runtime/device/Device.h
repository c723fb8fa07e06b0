// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_DEVICE_H
#define KILN_RUNTIME_DEVICE_DEVICE_H

#include "runtime/Status.h"
#include "runtime/artifact/Artifact.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kiln {

/// Time spent in one command of a program, over all runs and repetitions.
struct CommandProfile {
  std::string name;     // The command's label, or its kernel's name.
  std::string origin;   // The part of the model; empty if unknown.
  std::string label;    // Both, as in a trace.
  const char *category; // As in a trace.
  double seconds = 0;
  uint64_t runs = 0;
  uint64_t flops = 0;                        // Of one run.
  uint64_t bytes = 0;                        // Of one run.
  uint64_t liveBytes = 0, liveHostBytes = 0; // While it runs.
};

/// One device of the mesh: its memory, its programs, its side of collectives.
/// Memory is addressed by offsets as in the artifact, in [0, arena_bytes) on
/// the device and from there on in host memory.
///
/// Order: `reserve` once, then any number of runs, each a `begin` and a
/// `finish`; collectives block until all devices of a group have begun, so all
/// devices of a process begin before the first one is finished. `read`,
/// `write`, `clear` and `staging` are called after `reserve` and between a
/// `finish` and the next `begin`, from any thread, several at once on disjoint
/// ranges; only the staging place of an input may be filled while a program
/// runs. They take effect in the order of the calls, before and after runs.
///
/// Lifetime: a device goes before its Platform. Spans given to `read` and
/// `write` are free when the call returns; spans from `staging` live as long
/// as the device.
///
/// Failure: `finish` returns the first failure of the run, asynchronous errors
/// of the device included. A device that has failed keeps its failure: every
/// later call returns it, and its memory is undefined.
///
/// None of the functions called in a step allocates: `begin`, `finish`,
/// `read`, `write`, `clear`, and `staging` of a range asked for before.
class Device {
public:
  Device(uint32_t number, const artifact::Image &image)
      : number_(number), image_(image) {}
  virtual ~Device() = default;
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  /// Reserves all the memory that the device will ever use, zeroed, resolves
  /// its programs and writes its mesh coordinates. `noPlan` with the figures if
  /// there is less memory.
  virtual Status reserve() = 0;

  /// Starts a program, by its number in the image. May run it on the calling
  /// thread, and return when it is done.
  virtual void begin(size_t program) = 0;
  /// Returns when the program is done.
  virtual Status finish() = 0;

  /// Copies [offset, offset + target.size()) to the host.
  virtual Status read(uint64_t offset, std::span<std::byte> target) const = 0;
  /// Copies from the host. Free if `source` is the device's own memory of that
  /// range.
  virtual Status write(uint64_t offset, std::span<const std::byte> source) = 0;
  /// Writes zeros.
  virtual Status clear(uint64_t offset, uint64_t bytes) = 0;

  /// Host memory to prepare a `write` of this range in: the range itself where
  /// the host shares the device's memory, else a buffer that the device keeps
  /// for it. Empty if the device keeps no values.
  virtual std::span<std::byte> staging(uint64_t offset, uint64_t bytes) = 0;

  /// One entry per command of a program; empty unless measured.
  virtual std::span<const CommandProfile> profile(size_t program) const = 0;

  /// Position in the mesh.
  uint32_t number() const { return number_; }
  const artifact::Image &image() const { return image_; }
  /// 0 before `reserve`.
  virtual uint64_t reservedBytes() const = 0;
  /// Bytes received from other devices, over all runs. No program may run.
  virtual uint64_t receivedBytes() const = 0;
  /// Threads of the host that compute for it.
  virtual unsigned workers() const = 0;
  /// False if reads give zeros and writes are dropped: values that would only
  /// be written need not be computed.
  virtual bool keepsValues() const { return true; }

private:
  const uint32_t number_;
  const artifact::Image &image_;
};

} // namespace kiln

#endif // KILN_RUNTIME_DEVICE_DEVICE_H
