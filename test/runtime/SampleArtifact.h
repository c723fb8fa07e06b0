// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Artifacts made by hand, with kernels written in C.
#ifndef KILN_TEST_RUNTIME_SAMPLEARTIFACT_H
#define KILN_TEST_RUNTIME_SAMPLEARTIFACT_H

#include "runtime/session/Session.h"

#include <string>
#include <vector>

namespace kiln::test {

/// A file that is removed with the object.
class TemporaryFile {
public:
  TemporaryFile();
  explicit TemporaryFile(const std::string &content);
  explicit TemporaryFile(std::span<const std::byte> content);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile &) = delete;

  const std::string &path() const { return path_; }
  std::string read() const;

private:
  std::string path_;
};

/// A folder that is removed with its contents.
class TemporaryFolder {
public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder &) = delete;

  const std::string &path() const { return path_; }
  std::string operator/(const std::string &name) const {
    return path_ + "/" + name;
  }

private:
  std::string path_;
};

/// The bytes of a file.
std::string readFile(const std::string &path);
void writeFile(const std::string &path, const std::string &content);

/// Letters to train on.
std::string sampleText(int length);

/// Compiles C to a shared object. Ends the process if that fails.
std::vector<std::byte> compileKernels(const std::string &source);

/// An index for `threads` workers with an arena, and nothing else.
artifact::IndexT emptyIndex(uint64_t arenaBytes, unsigned threads = 2);

/// The image of all devices of a sample, unless a test adds more.
inline artifact::ImageT &image(artifact::IndexT &index) {
  return *index.images.front();
}

/// Adds a kernel with stages (symbol, items) and returns its index.
uint32_t addKernel(artifact::IndexT &index,
                   std::vector<std::pair<std::string, uint64_t>> stages);

/// Adds a program with one phase.
artifact::ProgramT &addProgram(artifact::IndexT &index, const std::string &name,
                               uint32_t repeat = 1);

void addLaunch(artifact::ProgramT &program, uint32_t kernel,
               std::vector<artifact::Place> places);
void addCopy(artifact::ProgramT &program, artifact::Place target,
             artifact::Place source, uint64_t bytes);
/// Gives the index a mesh and its devices, which all have the first image.
void setMesh(artifact::IndexT &index,
             std::vector<std::pair<std::string, uint32_t>> axes);
/// One list of axes per dimension.
std::vector<std::unique_ptr<artifact::SplitT>>
makeSplits(std::vector<std::vector<uint32_t>> axes);
/// Of f32, unless another type is given.
void addCollective(artifact::ProgramT &program, artifact::CollectiveKind kind,
                   std::vector<uint32_t> axes,
                   std::vector<artifact::Piece> pieces, uint32_t ticket,
                   uint64_t movedBytes,
                   artifact::ElementType type = artifact::ElementType::f32,
                   artifact::Combine combine = artifact::Combine::sum);
void addWait(artifact::ProgramT &program, uint32_t ticket);
void addSlice(artifact::ProgramT &program, std::vector<uint32_t> axes,
              artifact::Piece piece);
void addVariable(artifact::IndexT &index, const std::string &name,
                 artifact::ElementType type, std::vector<int64_t> shape,
                 uint64_t offset, artifact::InitKind kind, double a = 0,
                 double b = 0);
void addInput(artifact::ProgramT &program, const std::string &name,
              artifact::ElementType type, uint64_t samples,
              std::vector<int64_t> sampleShape, uint64_t offset,
              uint64_t stagingOffset);
void addOutput(artifact::ProgramT &program, const std::string &name,
               artifact::ElementType type, std::vector<int64_t> shape,
               uint64_t offset);

/// The bytes of the container.
std::vector<std::byte> pack(const artifact::IndexT &index,
                            const std::vector<std::byte> &kernels = {});
Expected<Artifact> loadIndex(const artifact::IndexT &index,
                             const std::vector<std::byte> &kernels = {});
/// Loaded and reserved. Ends the process if that fails.
Session openSession(const artifact::IndexT &index,
                    const std::vector<std::byte> &kernels = {},
                    const SessionOptions &options = {});

/// Kernels for the model below.
std::string sampleKernels();
/// Adds a program that evaluates on the text at a path, by batches of
/// `samples` (at most 4): the loss is the mean of all labels and of 1, an
/// answer is correct if its label is 'a'. `every` is as in the config.
void addEvaluation(artifact::IndexT &index, const std::string &path,
                   uint64_t samples, uint64_t every);
/// A program that trains on tokens: `weight` moves towards the mean of the
/// labels, in two micro-batches, and the loss is the squared difference.
artifact::IndexT sampleTraining(const std::string &dataPath,
                                uint64_t globalBatch, uint64_t sequence);

/// The same on `replicas` devices, each with 4 samples of the batch and its
/// shard of a variable `table` of 5 x 3, which follows the sum of all labels.
/// There are checkpoints, and the first replica reports.
artifact::IndexT shardedTraining(const std::string &dataPath,
                                 uint32_t replicas);

} // namespace kiln::test

#endif // KILN_TEST_RUNTIME_SAMPLEARTIFACT_H
