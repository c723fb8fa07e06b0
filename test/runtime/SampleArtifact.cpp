// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/runtime/SampleArtifact.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>

namespace kiln::test {

using namespace artifact;

TemporaryFile::TemporaryFile() {
  char path[] = "/tmp/kiln-test-XXXXXX";
  int file = ::mkstemp(path);
  if (file < 0)
    std::abort();
  ::close(file);
  path_ = path;
}

TemporaryFile::TemporaryFile(const std::string &content) : TemporaryFile() {
  writeFile(path_, content);
}

TemporaryFile::TemporaryFile(std::span<const std::byte> content)
    : TemporaryFile(std::string(reinterpret_cast<const char *>(content.data()),
                                content.size())) {}

TemporaryFile::~TemporaryFile() { ::unlink(path_.c_str()); }

std::string TemporaryFile::read() const { return readFile(path_); }

TemporaryFolder::TemporaryFolder() {
  char path[] = "/tmp/kiln-test-XXXXXX";
  if (!::mkdtemp(path))
    std::abort();
  path_ = path;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void writeFile(const std::string &path, const std::string &content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string sampleText(int length) {
  std::string text;
  for (int i = 0; i < length; ++i)
    text += static_cast<char>('a' + i * i % 26);
  return text;
}

std::vector<std::byte> compileKernels(const std::string &source) {
  TemporaryFile code(source), object;
  std::string command = std::string(KILN_C_COMPILER) +
                        " -x c -O1 -fPIC -shared -fno-math-errno -o " +
                        object.path() + " " + code.path();
  if (std::system(command.c_str()) != 0)
    std::abort();
  std::string content = object.read();
  const auto *first = reinterpret_cast<const std::byte *>(content.data());
  return {first, first + content.size()};
}

static uint64_t countBytes(ElementType type,
                           const std::vector<int64_t> &shape) {
  uint64_t bytes = elementBytes(type);
  for (int64_t size : shape)
    bytes *= static_cast<uint64_t>(size);
  return bytes;
}

IndexT emptyIndex(uint64_t arenaBytes, unsigned threads) {
  IndexT index;
  index.compiler = "test";
  index.settings = std::make_unique<SettingsT>();
  index.settings->config = "{}";
  index.model = "test";
  index.device = "cpu";
  index.threads = threads;
  index.targets.push_back(std::make_unique<TargetT>());
  index.targets[0]->backend = "cpu";
  index.targets[0]->processor = "x86-64";
  index.targets[0]->features = "+sse2";
  index.targets[0]->sections = {"kernels.cpu"};
  index.devices.push_back(std::make_unique<DeviceT>());
  index.images.push_back(std::make_unique<ImageT>());
  image(index).arena_bytes = arenaBytes;
  image(index).live_bytes = arenaBytes;
  image(index).memory.push_back(std::make_unique<MemoryKindT>());
  image(index).memory.back()->name = "all";
  image(index).memory.back()->bytes = arenaBytes;
  return index;
}

uint32_t addKernel(IndexT &index,
                   std::vector<std::pair<std::string, uint64_t>> stages) {
  auto kernel = std::make_unique<KernelT>();
  kernel->name = stages.empty() ? "none" : stages.front().first;
  for (auto &[symbol, items] : stages) {
    auto stage = std::make_unique<KernelStageT>();
    stage->symbol = symbol;
    stage->items = items;
    kernel->stages.push_back(std::move(stage));
  }
  index.kernels.push_back(std::move(kernel));
  return static_cast<uint32_t>(index.kernels.size() - 1);
}

ProgramT &addProgram(IndexT &index, const std::string &name, uint32_t repeat) {
  auto program = std::make_unique<ProgramT>();
  program->name = name;
  program->phases.push_back(std::make_unique<PhaseT>());
  program->phases.back()->name = "main";
  program->phases.back()->repeat = repeat;
  image(index).programs.push_back(std::move(program));
  return *image(index).programs.back();
}

template <typename Action>
static void addCommand(ProgramT &program, Action action) {
  auto command = std::make_unique<CommandT>();
  command->action.Set(std::move(action));
  program.phases.back()->commands.push_back(std::move(command));
}

void addLaunch(ProgramT &program, uint32_t kernel, std::vector<Place> places) {
  LaunchT launch;
  launch.kernel = kernel;
  launch.places = std::move(places);
  addCommand(program, std::move(launch));
}

void addCopy(ProgramT &program, Place target, Place source, uint64_t bytes) {
  CopyT copy;
  copy.target = std::make_unique<Place>(target);
  copy.source = std::make_unique<Place>(source);
  copy.bytes = bytes;
  addCommand(program, std::move(copy));
}

void setMesh(IndexT &index,
             std::vector<std::pair<std::string, uint32_t>> axes) {
  index.mesh.clear();
  index.devices.clear();
  uint32_t devices = 1;
  for (const auto &[name, size] : axes) {
    index.mesh.push_back(std::make_unique<MeshAxisT>());
    index.mesh.back()->name = name;
    index.mesh.back()->size = size;
    devices *= size;
  }
  for (uint32_t i = 0; i < devices; ++i)
    index.devices.push_back(std::make_unique<DeviceT>());
}

std::vector<std::unique_ptr<SplitT>>
makeSplits(std::vector<std::vector<uint32_t>> axes) {
  std::vector<std::unique_ptr<SplitT>> splits;
  for (std::vector<uint32_t> &each : axes) {
    splits.push_back(std::make_unique<SplitT>());
    splits.back()->axes = std::move(each);
  }
  return splits;
}

void addCollective(ProgramT &program, CollectiveKind kind,
                   std::vector<uint32_t> axes, std::vector<Piece> pieces,
                   uint32_t ticket, uint64_t movedBytes, ElementType type,
                   Combine combine) {
  CollectiveT collective;
  collective.kind = kind;
  collective.combine = combine;
  collective.element_type = type;
  collective.axes = std::move(axes);
  collective.pieces = std::move(pieces);
  collective.ticket = ticket;
  addCommand(program, std::move(collective));
  program.phases.back()->commands.back()->bytes = movedBytes;
}

void addWait(ProgramT &program, uint32_t ticket) {
  WaitT wait;
  wait.ticket = ticket;
  addCommand(program, std::move(wait));
}

void addSlice(ProgramT &program, std::vector<uint32_t> axes, Piece piece) {
  SliceT slice;
  slice.axes = std::move(axes);
  slice.piece = std::make_unique<Piece>(piece);
  addCommand(program, std::move(slice));
}

void addVariable(IndexT &index, const std::string &name, ElementType type,
                 std::vector<int64_t> shape, uint64_t offset, InitKind kind,
                 double a, double b) {
  auto variable = std::make_unique<VariableT>();
  variable->name = name;
  variable->element_type = type;
  variable->bytes = countBytes(type, shape);
  variable->shape = std::move(shape);
  variable->offset = offset;
  variable->init = std::make_unique<InitT>();
  variable->init->kind = kind;
  variable->init->a = a;
  variable->init->b = b;
  image(index).variables.push_back(std::move(variable));
}

void addInput(ProgramT &program, const std::string &name, ElementType type,
              uint64_t samples, std::vector<int64_t> sampleShape,
              uint64_t offset, uint64_t stagingOffset) {
  auto input = std::make_unique<InputT>();
  input->name = name;
  input->element_type = type;
  input->samples = samples;
  input->bytes = samples * countBytes(type, sampleShape);
  input->sample_shape = std::move(sampleShape);
  input->offset = offset;
  input->staging_offset = stagingOffset;
  program.inputs.push_back(std::move(input));
}

void addOutput(ProgramT &program, const std::string &name, ElementType type,
               std::vector<int64_t> shape, uint64_t offset) {
  auto output = std::make_unique<OutputT>();
  output->name = name;
  output->element_type = type;
  output->bytes = countBytes(type, shape);
  output->shape = std::move(shape);
  output->offset = offset;
  program.outputs.push_back(std::move(output));
}

std::vector<std::byte> pack(const IndexT &index,
                            const std::vector<std::byte> &kernels) {
  flatbuffers::FlatBufferBuilder builder;
  FinishIndexBuffer(builder, CreateIndex(builder, &index));
  std::span<const std::byte> bytes =
      std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
  std::vector<Section> sections = {{std::string(indexSectionName), bytes},
                                   {"kernels.cpu", kernels}};
  return packContainer(sections);
}

Expected<Artifact> loadIndex(const IndexT &index,
                             const std::vector<std::byte> &kernels) {
  Expected<Container> container =
      Container::parse(pack(index, kernels), "sample");
  if (!container.ok())
    return container.status();
  return Artifact::fromContainer(std::move(*container));
}

static void require(const Status &status) {
  if (status.ok())
    return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::abort();
}

Session openSession(const IndexT &index, const std::vector<std::byte> &kernels,
                    const SessionOptions &options) {
  Expected<Artifact> artifact = loadIndex(index, kernels);
  require(artifact.status());
  Expected<Session> session =
      Session::fromArtifact(std::move(*artifact), options);
  require(session.status());
  require(session->reserve());
  return std::move(*session);
}

std::string sampleKernels() {
  return R"(
#include <stdint.h>
enum { samples = 4, sequence = 8 };
// Partial sums of the labels of a micro-batch, then their total added to `sum`.
void sample_partial(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  const int32_t *labels = b[0]; float *partial = b[1];
  for (int64_t i = begin; i < end; ++i) {
    partial[i] = 0;
    for (int64_t j = 0; j < sequence; ++j) partial[i] += labels[i * sequence + j];
  }
}
void sample_total(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  const float *partial = b[1]; float *sum = b[2];
  for (int64_t i = 0; i < samples; ++i) sum[0] += partial[i];
}
void sample_update(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  const float *sum = b[0]; float *weight = b[1], *loss = b[2];
  float lacks = sum[0] / (2 * samples * sequence) - weight[0];
  loss[0] = lacks * lacks;
  weight[0] += 0.25f * lacks;
}
void sample_follow(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  const float *sum = b[0]; float *table = b[1];
  for (int64_t i = begin; i < end; ++i) table[i] += 1e-6f * sum[0] * (table[i] - 1);
}
void sample_evaluate(void *const *b, int64_t begin, int64_t end, int64_t worker) {
  const int32_t *labels = b[0]; float *outputs = b[1];
  float total = 0, count = 0, correct = 0;
  for (int64_t i = 0; i < ((int32_t *)b[2])[0] * sequence; ++i)
    if (labels[i] >= 0) total += labels[i], count += 1, correct += labels[i] == 'a';
  outputs[0] = total; outputs[1] = count; outputs[2] = 2 * count; outputs[3] = 2 * count;
  outputs[4] = correct; outputs[5] = count;
}
)";
}

IndexT sampleTraining(const std::string &dataPath, uint64_t globalBatch,
                      uint64_t sequence) {
  uint64_t inputBytes = globalBatch * sequence * 4;
  IndexT index = emptyIndex(4096 + 4 * inputBytes);
  addVariable(index, "weight", ElementType::f32, {}, 0, InitKind::ones);
  uint32_t sum = addKernel(
      index, {{"sample_partial", globalBatch / 2}, {"sample_total", 1}});
  uint32_t update = addKernel(index, {{"sample_update", 1}});
  ProgramT &train = addProgram(index, "train");
  addInput(train, "tokens", ElementType::i32, globalBatch,
           {static_cast<int64_t>(sequence)}, 4096, 4096 + inputBytes);
  addInput(train, "labels", ElementType::i32, globalBatch,
           {static_cast<int64_t>(sequence)}, 4096 + 2 * inputBytes,
           4096 + 3 * inputBytes);
  addOutput(train, "loss", ElementType::f32, {}, 64);
  addCopy(train, Place(128, 0), Place(192, 0), 4); // Zero.
  train.phases.push_back(std::make_unique<PhaseT>());
  train.phases.back()->name = "accumulate";
  train.phases.back()->repeat = 2;
  addLaunch(train, sum,
            {Place(4096 + 2 * inputBytes, inputBytes / 2), Place(256, 0),
             Place(128, 0)});
  train.phases.push_back(std::make_unique<PhaseT>());
  train.phases.back()->name = "update";
  train.phases.back()->repeat = 1;
  addLaunch(train, update, {Place(128, 0), Place(0, 0), Place(64, 0)});
  index.settings->data = std::make_unique<DataT>();
  index.settings->data->kind = "text";
  index.settings->data->path = dataPath;
  index.settings->data->tokenizer = "bytes";
  index.settings->data->shuffle = true;
  index.settings->data->sequence = sequence;
  index.settings->data->vocabulary = 256;
  index.settings->training = std::make_unique<TrainingT>();
  index.settings->training->global_batch = globalBatch;
  index.settings->training->steps = 10;
  index.settings->training->seed = 7;
  index.settings->training->log_every = 5;
  return index;
}

IndexT shardedTraining(const std::string &dataPath, uint32_t replicas) {
  constexpr uint64_t samples = 4, sequence = 8,
                     inputBytes = samples * sequence * 4;
  IndexT index = sampleTraining(dataPath, samples, sequence);
  index.settings->training->global_batch = samples * replicas;
  setMesh(index, {{"data", replicas}});
  for (uint32_t i = 0; i < replicas; ++i)
    index.devices[i]->first_sample = i * samples;
  uint64_t part = (15 + replicas - 1) / replicas;
  addVariable(index, "table", ElementType::f32, {5, 3}, 512, InitKind::normal,
              0, 1);
  VariableT &table = *image(index).variables.back();
  table.bytes = 4 * part;
  table.flat = std::make_unique<SplitT>();
  table.flat->axes = {0};
  for (auto &variable : image(index).variables)
    variable->role = "parameter";
  image(index).programs.clear();
  index.kernels.clear();
  uint32_t sum =
      addKernel(index, {{"sample_partial", samples}, {"sample_total", 1}});
  uint32_t update = addKernel(index, {{"sample_update", 1}});
  uint32_t follow = addKernel(index, {{"sample_follow", part}});
  ProgramT &train = addProgram(index, "train");
  addInput(train, "tokens", ElementType::i32, samples, {sequence}, 4096,
           4096 + inputBytes);
  addInput(train, "labels", ElementType::i32, samples, {sequence},
           4096 + 2 * inputBytes, 4096 + 3 * inputBytes);
  addOutput(train, "loss", ElementType::f32, {}, 64);
  addCopy(train, Place(128, 0), Place(192, 0), 4); // Zero.
  addLaunch(train, sum,
            {Place(4096 + 2 * inputBytes, 0), Place(256, 0), Place(128, 0)});
  addCollective(train, CollectiveKind::all_reduce, {0},
                {Piece(Place(128, 0), Place(384, 0), 1, 1, 1)}, 0,
                8 * (replicas - 1));
  train.phases.back()->commands.back()->label = "all_reduce data labels";
  addWait(train, 0);
  addLaunch(train, update, {Place(384, 0), Place(0, 0), Place(64, 0)});
  addLaunch(train, follow, {Place(384, 0), Place(512, 0)});
  index.settings->checkpoint = std::make_unique<CheckpointPolicyT>();
  index.settings->checkpoint->every = 5;
  index.settings->checkpoint->keep = 3;
  return index;
}

void addEvaluation(IndexT &index, const std::string &path, uint64_t samples,
                   uint64_t every) {
  index.settings->evaluation = std::make_unique<EvaluationT>();
  index.settings->evaluation->path = path;
  index.settings->evaluation->every = every;
  uint64_t offset = image(index).arena_bytes;
  image(index).arena_bytes += 4096;
  image(index).live_bytes = image(index).memory[0]->bytes =
      image(index).arena_bytes;
  // The kernel has no other way to learn how many samples there are.
  addVariable(index, "evaluate.samples", ElementType::i32, {}, offset,
              InitKind::constant, static_cast<double>(samples));
  ProgramT &evaluate = addProgram(index, "evaluate");
  auto sequence = static_cast<int64_t>(index.settings->data->sequence);
  for (auto [name, place] :
       {std::pair("tokens", offset + 1024), std::pair("labels", offset + 2048)})
    addInput(evaluate, name, ElementType::i32, samples, {sequence}, place,
             place);
  const char *names[] = {"total.0", "count.0", "total.1",
                         "count.1", "correct", "answered"};
  for (uint64_t i = 0; i < std::size(names); ++i)
    addOutput(evaluate, names[i], ElementType::f32, {}, offset + 64 + 4 * i);
  addLaunch(evaluate, addKernel(index, {{"sample_evaluate", 1}}),
            {Place(offset + 2048, 0), Place(offset + 64, 0), Place(offset, 0)});
}

} // namespace kiln::test
