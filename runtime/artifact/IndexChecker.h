// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_ARTIFACT_INDEXCHECKER_H
#define KILN_RUNTIME_ARTIFACT_INDEXCHECKER_H

#include "runtime/Mesh.h"
#include "runtime/artifact/Artifact.h"

#include <set>
#include <string>
#include <vector>

namespace kiln::artifact {

/// More than any machine's address space, and far from overflow when added.
inline constexpr uint64_t maximumArena = uint64_t{1} << 47;
inline constexpr uint64_t maximumSize = uint64_t{1} << 47;

/// The greatest training.global_batch of a config; no phase repeats more often
/// than once per sample.
inline constexpr uint64_t maximumBatch = uint64_t{1} << 24;

/// The flatbuffer's verifier leaves the alignment of 8-byte elements unchecked,
/// and to read one that is not aligned is undefined.
inline bool isAligned(const void *element) {
  return reinterpret_cast<uintptr_t>(element) % 8 == 0;
}

inline std::string str(uint64_t number) { return std::to_string(number); }

/// Checks one index; only the first fault is kept.
class IndexChecker {
public:
  explicit IndexChecker(const Index &index) : index_(index) {}

  Status run();

private:
  struct Extent {
    uint64_t begin, end;
    std::string owner;
  };

  void fault(const std::string &message);
  /// The first device that runs the image being checked; nothing where there
  /// is only one device, or none yet.
  std::string nameDevice() const;
  void checkName(std::set<std::string> &seen, const flatbuffers::String *name,
                 const std::string &kind);
  void checkMesh();
  /// Settings by which the runtime allocates or counts.
  void checkSettings();
  void checkImage(const Image &image);
  void checkTotals();
  /// The same variables, sharded alike, and the same programs as the first
  /// image, in the same order: the runtime addresses them by index.
  void checkLikeness(const Image &first);
  static std::string describe(const Image &image);
  void checkDevices();

  // MemoryChecks.cpp: every place is in the arena, with room for its values.
  uint64_t reservedBytes() const {
    return image_->arena_bytes() + image_->host_bytes();
  }
  /// [offset, offset + bytes) is in the arena: on the device, or in host
  /// memory.
  bool checkExtent(uint64_t offset, uint64_t bytes, const std::string &what);
  /// The place is in the arena in every repetition.
  void checkPlace(const Place *place, uint64_t bytes, uint64_t repeat,
                  const std::string &what);
  void checkTensor(ElementType type, uint64_t rows,
                   const flatbuffers::Vector<int64_t> &shape, uint64_t bytes,
                   const std::string &what);
  void checkBytes(ElementType type, uint64_t elements, bool overflows,
                  uint64_t bytes, const std::string &what);
  void checkAligned(uint64_t offset, ElementType type, const std::string &what);
  /// Axes of the mesh, none of them in `used`, to which they are added.
  bool checkAxes(const Axes *axes, std::set<uint32_t> &used,
                 const std::string &what);
  /// Elements of a local shard, padding included.
  uint64_t countLocal(const Variable &variable, const std::string &what);
  void checkVariables();
  /// Integers hold the initial value: a cast of another is undefined.
  void checkInit(const Variable &variable, const std::string &what);
  void checkInputs(const Program &program, const std::string &prefix);
  void checkCoordinates();
  void checkScalars();
  void checkRedZones();
  void checkDisjoint(std::vector<Extent> extents);

  // CommandChecks.cpp: kernels and commands fit each other and the mesh.
  void checkKernel(const Kernel &kernel);
  /// The bytes of all buffers of a launch, or more where they are not known.
  uint64_t checkBuffers(const Kernel &kernel);
  void checkProgram(const Program &program);
  /// A phase repeats for micro-batches, each of a sample at least: those of
  /// its own device or, where it idles, of the device that has the most.
  uint64_t limitRepetitions(const Program &program) const;
  void checkSteps(const Program &program, const std::string &prefix);
  static std::string nameCommand(uint32_t number, const Command &command);
  /// Every collective is waited for before its ticket is used again and before
  /// the program ends.
  void checkTickets(const Program &program, const std::string &prefix);
  void checkCommand(const Command &command, uint64_t repeat,
                    const std::string &what);
  void checkLaunch(const Launch &launch, uint64_t repeat,
                   const std::string &what);
  static std::string nameSpace(bool isOnHost);
  void checkCollective(const Collective &collective, uint64_t bytes,
                       uint64_t repeat, const std::string &what);
  void checkSlice(const Slice &slice, uint64_t repeat, const std::string &what);
  bool checkPiece(const Piece *piece, ElementType type, uint64_t members,
                  bool isSourceWhole, bool isTargetWhole, uint64_t repeat,
                  const std::string &what);
  /// Members copy from source to target while others read them: the two are
  /// apart in every repetition, or the same place where that is permitted.
  void checkApart(const Piece &piece, uint64_t sourceBytes,
                  uint64_t targetBytes, bool maybeSame, uint64_t repeat,
                  const std::string &what);

  const Index &index_;
  const Mesh mesh_{index_};
  const Image *image_ = nullptr; // The one being checked.
  uint32_t imageNumber_ = 0;
  Status status_;
  std::vector<Extent> variables_;
};

} // namespace kiln::artifact

#endif // KILN_RUNTIME_ARTIFACT_INDEXCHECKER_H
