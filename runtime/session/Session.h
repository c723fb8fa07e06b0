// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The interface through which programs and tests run an artifact.
#ifndef KILN_RUNTIME_SESSION_SESSION_H
#define KILN_RUNTIME_SESSION_SESSION_H

#include "runtime/Warn.h"
#include "runtime/data/Feeder.h"
#include "runtime/device/Devices.h"
#include "runtime/session/Variables.h"

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

struct SessionOptions {
  /// Workers per device; 0 takes the number that the plan was made for, and
  /// more than that is refused, because scratch memory is planned for it.
  unsigned threads = 0;
  /// Measure every command, see Session::profile.
  bool isProfiled = false;
  /// The artifact's name in messages; empty for its path.
  std::string name;
  /// May refuse a verified artifact before any of its code is loaded or any
  /// file is written.
  std::function<Status(const Artifact &)> admit;
  /// Of all commands; rank N appends ".N" to the path.
  TraceOptions trace;
  /// The processes that run the artifact together; null if this one is alone.
  World *world = nullptr;
  /// Kinds of device to choose the artifact's from.
  std::span<const PlatformKind> kinds = platformKinds();
};

/// "kiln: warning: ..." on stderr.
void printWarning(const std::string &message);

/// Overrides of the artifact's own training settings.
struct TrainOptions {
  std::optional<uint64_t> steps;  // The last step, those already done included.
  std::optional<uint64_t> epochs; // Ignored if steps are given.
  std::optional<uint64_t> seed;   // Of the order of samples.
  std::optional<uint64_t> logEvery;
  uint64_t firstStep =
      0;           // Steps already done; the step count goes on from here.
  int logFile = 1; // Descriptor; -1 for no log.
  int progressFile = -1;  // A terminal's descriptor; -1 for no progress bar.
  std::string lossesPath; // One line per step, for tests; empty for none.

  std::string runFolder; // For metrics and checkpoints; empty for none.
  /// The checkpoint to go on from: "auto" is the newest intact one of the run
  /// folder, "none" is none, anything else is the path of a checkpoint or of
  /// another run, which stands for its newest intact one. Empty: "auto" if
  /// checkpoints are saved on the way, else "none".
  std::string resume;
  /// Files that the caller reads beside the artifact's own, by the user's word
  /// for them: they keep their names when an earlier run is set aside.
  std::map<std::string, std::string> inputs;
  /// Give all variables their initial values if no checkpoint does.
  bool isInitialising = false;
  Warn warn = printWarning;
};

/// Result of training, also if it was stopped.
struct TrainReport {
  uint64_t steps = 0;     // Index of the last step run, from 1.
  uint64_t firstStep = 0; // Steps that were done before, by a checkpoint.
  double loss = 0;        // Of the last step.
  double seconds = 0;     // From before the first step to after the last.
  uint64_t samples = 0;
  uint64_t skipped = 0; // Steps that updated nothing, see LossScale.
};

/// Whether an output is one number, of f32 or f64.
bool isScalar(const artifact::Output &output);

/// An artifact on the devices of this process. Call in this order: load,
/// reserve, initialise (or write all variables), then run or train, from one
/// thread. Several processes each make the same calls.
class Session {
public:
  /// Verifies the artifact, checks that it fits this machine and loads its
  /// code. A failure in one process fails in all.
  static Expected<Session> load(const std::string &path,
                                const SessionOptions &options = {});
  static Expected<Session> fromArtifact(Artifact artifact,
                                        const SessionOptions &options = {});

  /// Takes all the memory that the program will ever use. Its bytes are zero,
  /// but for the settings that programs read.
  Status reserve();
  /// Bytes of memory of this process's device number `device`, from 0; 0 before
  /// `reserve`.
  uint64_t reservedBytes(size_t device = 0) const {
    return devices_[device]->reservedBytes();
  }

  /// Gives every variable its initial value.
  Status initialise(uint64_t seed);

  /// The variables as full tensors. Memory must have been reserved.
  Variables &variables() { return *variables_; }
  const Variables &variables() const { return *variables_; }
  /// False if the devices check commands and compute nothing.
  bool computes() const { return devices_[0]->keepsValues(); }

  /// Full tensors. `bytes` must have exactly the size of the value.
  Status readVariable(std::string_view name, std::span<std::byte> bytes) const;
  Status writeVariable(std::string_view name, std::span<const std::byte> bytes);
  /// On one of the devices in this process, counted from 0.
  Status writeInput(std::string_view program, std::string_view input,
                    std::span<const std::byte> bytes, size_t device = 0);
  Status readOutput(std::string_view program, std::string_view output,
                    std::span<std::byte> bytes, size_t device = 0) const;

  /// The output of a program with this name, or null.
  static const artifact::Output *findOutput(const artifact::Program &program,
                                            std::string_view name);
  /// The value of an output that `isScalar`, after a run of its program. All
  /// devices have the same.
  Status readScalar(const artifact::Output &output, double &value) const;

  /// Runs a program once on its current inputs, on all devices at once.
  Status run(std::string_view program);

  /// Feeds and runs the training program step by step. Reports progress even
  /// when it fails: `notFinite` for a loss or a state that is not, `stopped` by
  /// a signal.
  Status train(const TrainOptions &options, TrainReport *report = nullptr);

  const artifact::Index &index() const { return artifact_->index(); }
  const artifact::Settings &settings() const { return artifact_->settings(); }
  const Artifact &artifact() const { return *artifact_; }
  /// Workers of all devices in this process.
  unsigned workers() const;
  /// Devices in this process.
  size_t devices() const { return devices_.size(); }
  uint32_t rank() const { return world_ ? world_->rank() : 0; }
  World *world() const { return world_; }
  /// Bytes that a device in this process has received from other devices.
  uint64_t receivedBytes(size_t device) const {
    return devices_[device]->receivedBytes();
  }

  /// See kiln::agree. Collective.
  Status agree(const Status &status) const {
    return kiln::agree(world_, status);
  }
  /// The text of the first process, on all of them. Collective.
  std::string share(const std::string &text) const;

  /// The devices in this process with their shares of a program's batch: the
  /// inputs of all replicas, concatenated.
  std::vector<FedDevice> findShares(std::string_view program,
                                    uint64_t &batch) const;

  /// Time per command of a program on the first device; empty if it was not
  /// measured.
  std::span<const CommandProfile> profile(std::string_view program) const;

private:
  friend class Evaluator;
  friend class TrainingLoop;

  Session(Artifact artifact, World *world);

  Status start(const SessionOptions &options);
  Status startDevices(const SessionOptions &options, PlatformOptions platform);
  Status requireMemory() const;
  /// Gives the programs the settings that they read.
  Status writeScalars();
  std::optional<size_t> findProgram(std::string_view name) const;
  std::optional<size_t> findVariable(std::string_view name) const;
  /// A variable by name, if it has this size and memory is reserved.
  Expected<size_t> findWhole(std::string_view name, uint64_t bytes) const;
  /// The offset of an element of a list of a program on a device, likewise.
  template <typename List>
  Expected<uint64_t> locate(std::string_view program, const char *kind,
                            List list, std::string_view name, uint64_t bytes,
                            size_t device) const;
  /// The first failure of a device.
  Status runProgram(size_t number);
  Status runOnDevices(size_t number);
  /// Opens the file of the trace, if there is one and it is not open yet.
  Status openTrace() { return trace_ ? trace_->open() : Status(); }
  void beginStep(uint64_t step) {
    if (trace_)
      trace_->beginStep(step);
  }
  Status finishTrace() { return trace_ ? trace_->finish() : Status(); }

  // Platform and devices keep the addresses of these objects.
  std::unique_ptr<Artifact> artifact_;
  World *world_;
  Mesh mesh_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<Team> host_;
  std::unique_ptr<Platform> platform_;
  std::vector<std::unique_ptr<Device>> devices_; // Destroyed before platform_.
  std::unique_ptr<Variables> variables_;
  bool isReserved_ = false;
};

} // namespace kiln

#endif // KILN_RUNTIME_SESSION_SESSION_H
