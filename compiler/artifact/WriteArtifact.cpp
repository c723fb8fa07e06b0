// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/artifact/WriteArtifact.h"
#include "compiler/artifact/IndexTables.h"
#include "compiler/artifact/MemoryKinds.h"
#include "compiler/config/Schema.h"
#include "compiler/config/Settings.h"
#include "dialects/exec/Exec.h"
#include "dialects/kiln/Origin.h"
#include "dialects/kiln/Sharding.h"
#include "runtime/artifact/Container.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace kiln::shard;

namespace kiln {

namespace {

/// Fills the table of one image, in the order of its module, so that equal
/// modules give equal bytes. Adds kernels to the index.
class ImageWriter {
public:
  ImageWriter(ModuleOp module, const Backends &backends,
              artifact::IndexT &index, llvm::StringMap<unsigned> &kernelNumbers)
      : symbols(module), module(module), mesh(getMesh(module)),
        backends(backends), index(index), kernelNumbers(kernelNumbers) {}

  std::unique_ptr<artifact::ImageT> write();

private:
  void addVariables();
  void addCuts(VariableOp variable, artifact::VariableT &entry);
  void addKernels();
  void addPrograms();
  void addPhases(exec::ProgramOp program, artifact::ProgramT &entry);
  void addMemory();
  void addPeak(int64_t alignment);
  std::unique_ptr<artifact::SplitT> makeSplit(ArrayRef<unsigned> axes);
  std::vector<uint32_t> getAxes(ArrayAttr names) {
    Axes axes = *mesh.findAxes(names);
    return {axes.begin(), axes.end()};
  }
  std::unique_ptr<artifact::CommandT> makeCommand(Operation *command);
  exec::BufferOp getBuffer(Attribute name) {
    return symbols.lookup<exec::BufferOp>(
        cast<FlatSymbolRefAttr>(name).getValue());
  }
  uint64_t getOffset(Attribute name) { return *getBuffer(name).getOffset(); }
  uint64_t getInteger(StringRef name) {
    return module->getAttrOfType<IntegerAttr>(name).getInt();
  }
  /// Operand `number` of a command.
  template <typename Command>
  artifact::Place getPlace(Command command, unsigned number) {
    return artifact::Place(getOffset(command.getBuffers()[number]) +
                               command.getOffsets()[number],
                           command.getStrides()[number]);
  }

  template <typename Command>
  artifact::Piece getPiece(Command command, unsigned number) {
    return artifact::Piece(
        getPlace(command, 2 * number), getPlace(command, 2 * number + 1),
        command.getOuters()[number], command.getSizes()[number],
        command.getInners()[number]);
  }

  SymbolTable symbols;
  ModuleOp module;
  Mesh mesh;
  const Backends &backends;
  artifact::IndexT &index;
  llvm::StringMap<unsigned> &kernelNumbers;
  std::unique_ptr<artifact::ImageT> image =
      std::make_unique<artifact::ImageT>();
};

/// Fills the index table by table.
class IndexWriter {
public:
  IndexWriter(ArrayRef<ModuleOp> images, const ProgramCode &code,
              const Config &config, const Plan &plan, const Backends &backends)
      : images(images), code(code), config(config), plan(plan),
        backends(backends), shares(plan.shares(config)) {}

  flatbuffers::DetachedBuffer write();

private:
  void addDevices();
  void addSettings();
  void addPlan();

  ArrayRef<ModuleOp> images;
  const ProgramCode &code;
  const Config &config;
  const Plan &plan;
  const Backends &backends;
  std::vector<int64_t> shares; // Samples of the global batch, by replica.
  artifact::IndexT index;
};

} // namespace

static artifact::ElementType getElementType(Type type) {
  if (std::optional<artifact::ElementType> found = findElementType(type))
    return *found;
  llvm::report_fatal_error("an element type that no artifact has");
}

static std::vector<int64_t> toVector(ArrayRef<int64_t> shape) {
  return {shape.begin(), shape.end()};
}

std::unique_ptr<artifact::SplitT>
ImageWriter::makeSplit(ArrayRef<unsigned> axes) {
  auto split = std::make_unique<artifact::SplitT>();
  split->axes.assign(axes.begin(), axes.end());
  return split;
}

// The runtime splits dimensions evenly: blocks and units become dimensions of
// their own.
void ImageWriter::addCuts(VariableOp variable, artifact::VariableT &entry) {
  Sharding sharding = Sharding::of(variable, mesh);
  RankedTensorType whole = variable.getWholeType();
  for (auto [size, cut] : llvm::zip_equal(whole.getShape(), sharding.dims)) {
    auto add = [&](int64_t part, ArrayRef<unsigned> axes) {
      entry.view.push_back(part);
      entry.splits.push_back(makeSplit(axes));
    };
    if (cut.blocks > 1)
      add(cut.blocks, {});
    add(cut.countUnits(size), cut.axes);
    if (cut.unit > 1)
      add(cut.unit, {});
  }
  if (!sharding.flat.empty())
    entry.flat = makeSplit(sharding.flat);
}

void ImageWriter::addVariables() {
  for (auto variable : module.getOps<VariableOp>()) {
    uint64_t offset = *symbols
                           .lookup<exec::BufferOp>(
                               ("variable." + variable.getSymName()).str())
                           .getOffset();
    if (variable.getRole() == Role::coordinate) {
      auto coordinate = std::make_unique<artifact::CoordinateT>();
      StringRef axis = variable.getSymName().split('.').second;
      coordinate->axis = llvm::find(mesh.names, axis) - mesh.names.begin();
      coordinate->offset = offset;
      image->coordinates.push_back(std::move(coordinate));
    }
    if (variable.getRole() == Role::setting) {
      StringRef name = variable.getSymName().split('.').second;
      auto scalar = std::make_unique<artifact::ScalarT>();
      while (artifact::EnumNameScalarKind(scalar->kind) != name)
        scalar->kind = artifact::ScalarKind(uint8_t(scalar->kind) + 1);
      scalar->offset = offset;
      image->scalars.push_back(std::move(scalar));
    }
    if (variable.isTransient() || variable.isGiven() || variable.getCopyOf())
      continue;
    auto entry = std::make_unique<artifact::VariableT>();
    RankedTensorType type = variable.getWholeType();
    entry->name = variable.getSymName().str();
    entry->element_type = getElementType(type.getElementType());
    entry->shape = toVector(type.getShape());
    entry->offset = offset;
    entry->bytes = getByteSize(variable.getTensorType());
    if (variable.getWhole())
      addCuts(variable, *entry);
    entry->init = std::make_unique<artifact::InitT>();
    entry->init->kind = artifact::InitKind(variable.getInit());
    entry->init->a = variable.getA().convertToDouble();
    entry->init->b = variable.getB().convertToDouble();
    entry->role = stringifyRole(variable.getRole()).str();
    image->variables.push_back(std::move(entry));
  }
}

void ImageWriter::addKernels() {
  for (auto kernel : module.getOps<exec::KernelOp>()) {
    if (kernelNumbers.contains(kernel.getSymName()))
      continue; // Another image has it, too.
    auto entry = std::make_unique<artifact::KernelT>();
    entry->name = kernel.getSymName().str();
    entry->family = kernel.getFamily()->str();
    entry->tuning = printTuning(toTuning(*kernel.getTuning()));
    SmallVector<const Backend *> all = backends.getAll();
    entry->host = kernel.getSpace() == exec::MemorySpace::host;
    entry->target =
        llvm::find(all, &backends.get(kernel.getSpace())) - all.begin();
    for (const KernelStage &stage : getStages(kernel)) {
      auto written = std::make_unique<artifact::KernelStageT>();
      written->symbol = stage.symbol;
      written->items = stage.items;
      written->rounds = stage.rounds;
      entry->stages.push_back(std::move(written));
    }
    Block &body = kernel.getBody().front();
    for (Type type : body.getArgumentTypes())
      entry->buffers.push_back(getByteSize(type));
    entry->reads = entry->buffers.size();
    for (Type type : body.getTerminator()->getOperandTypes())
      entry->buffers.push_back(getByteSize(type));
    if (kernel.getScratchBytes() != 0)
      entry->buffers.push_back(kernel.getScratchBytes());
    kernelNumbers[kernel.getSymName()] = index.kernels.size();
    index.kernels.push_back(std::move(entry));
  }
}

std::unique_ptr<artifact::CommandT>
ImageWriter::makeCommand(Operation *operation) {
  auto command = std::make_unique<artifact::CommandT>();
  llvm::TypeSwitch<Operation *>(operation)
      .Case([&](exec::LaunchOp op) {
        artifact::LaunchT launch;
        launch.kernel = kernelNumbers.lookup(op.getKernel());
        for (unsigned number = 0; number < op.getBuffers().size(); ++number)
          launch.places.push_back(getPlace(op, number));
        command->action.Set(std::move(launch));
        command->origin = op.getOrigin().str();
        command->flops = op.getFlops();
        command->bytes = op.getBytes();
      })
      .Case([&](exec::CopyOp op) {
        artifact::CopyT copy;
        copy.source = std::make_unique<artifact::Place>(getPlace(op, 0));
        copy.target = std::make_unique<artifact::Place>(getPlace(op, 1));
        copy.bytes = op.getBytes();
        command->action.Set(std::move(copy));
        command->label = "copy";
        command->bytes = 2 * op.getBytes();
      })
      .Case([&](exec::CollectiveOp op) {
        artifact::CollectiveT collective;
        collective.kind = artifact::CollectiveKind(op.getKind());
        collective.combine =
            op.getIsMax() ? artifact::Combine::max : artifact::Combine::sum;
        collective.element_type = getElementType(op.getElement());
        collective.axes = getAxes(op.getAxes());
        for (unsigned number = 0; number < op.getSizes().size(); ++number)
          collective.pieces.push_back(getPiece(op, number));
        collective.ticket = op.getTicket();
        command->action.Set(std::move(collective));
        command->label = exec::stringifyCollectiveKind(op.getKind()).str();
        for (Attribute axis : op.getAxes())
          command->label += " " + cast<StringAttr>(axis).str();
        command->bytes = op.getBytes();
      })
      .Case([&](exec::WaitOp op) {
        artifact::WaitT wait;
        wait.ticket = op.getTicket();
        command->action.Set(std::move(wait));
        command->label = "wait";
      })
      .Case([&](exec::SliceOp op) {
        artifact::SliceT slice;
        slice.element_type = getElementType(op.getElement());
        slice.axes = getAxes(op.getAxes());
        slice.piece = std::make_unique<artifact::Piece>(getPiece(op, 0));
        command->action.Set(std::move(slice));
        command->label = "slice";
        command->bytes = 2 * getBuffer(op.getBuffers()[1]).getBytes();
      });
  return command;
}

void ImageWriter::addPhases(exec::ProgramOp program,
                            artifact::ProgramT &entry) {
  // The memory plan has a number for each command, in their order.
  auto getNumbers = [&](StringRef name) -> ArrayRef<int64_t> {
    auto numbers = program->getAttrOfType<DenseI64ArrayAttr>(name);
    return numbers ? numbers.asArrayRef() : ArrayRef<int64_t>();
  };
  ArrayRef<int64_t> live = getNumbers("exec.live_bytes"),
                    hostLive = getNumbers("exec.live_host_bytes");
  auto take = [](ArrayRef<int64_t> &numbers) -> uint64_t {
    return numbers.empty() ? 0 : numbers.consume_front();
  };
  for (auto phase : program.getBody().front().getOps<exec::PhaseOp>()) {
    auto made = std::make_unique<artifact::PhaseT>();
    made->name = phase.getName().str();
    made->repeat = phase.getRepeat();
    for (Operation &command : phase.getBody().front()) {
      made->commands.push_back(makeCommand(&command));
      made->commands.back()->live_bytes = take(live);
      made->commands.back()->live_host_bytes = take(hostLive);
    }
    entry.phases.push_back(std::move(made));
  }
}

void ImageWriter::addPrograms() {
  for (auto program : module.getOps<exec::ProgramOp>()) {
    auto entry = std::make_unique<artifact::ProgramT>();
    entry->name = program.getSymName().str();
    for (Attribute attribute : program.getInputs()) {
      auto fields = cast<ArrayAttr>(attribute);
      auto type = cast<RankedTensorType>(cast<TypeAttr>(fields[3]).getValue());
      auto input = std::make_unique<artifact::InputT>();
      input->name = cast<StringAttr>(fields[0]).str();
      input->element_type = getElementType(type.getElementType());
      // An input fed by samples has the batch as first dimension; a function's
      // argument is one sample.
      bool isFed = fields[1] != fields[2];
      input->samples = isFed ? type.getDimSize(0) : 1;
      input->sample_shape =
          toVector(isFed ? type.getShape().drop_front() : type.getShape());
      input->offset = getOffset(fields[1]);
      input->staging_offset = getOffset(fields[2]);
      input->bytes = getByteSize(type);
      entry->inputs.push_back(std::move(input));
    }
    for (Attribute attribute : program.getOutputs()) {
      auto fields = cast<ArrayAttr>(attribute);
      auto type = cast<RankedTensorType>(cast<TypeAttr>(fields[2]).getValue());
      auto output = std::make_unique<artifact::OutputT>();
      output->name = cast<StringAttr>(fields[0]).str();
      output->element_type = getElementType(type.getElementType());
      output->shape = toVector(type.getShape());
      output->offset = getOffset(fields[1]);
      output->bytes = getByteSize(type);
      entry->outputs.push_back(std::move(output));
    }
    addPhases(program, *entry);
    image->programs.push_back(std::move(entry));
  }
}

void ImageWriter::addPeak(int64_t alignment) {
  auto addText = [](std::string &to, Attribute text) {
    if (auto string = dyn_cast_or_null<StringAttr>(text))
      to = string.str();
  };
  for (Attribute name : module->getAttrOfType<ArrayAttr>("exec.peak")) {
    exec::BufferOp buffer = getBuffer(name);
    Location origin = buffer.getLoc();
    auto live = std::make_unique<artifact::LiveBufferT>();
    addText(live->op, getOrigin(origin, kOpAttribute));
    live->name = getModelName(origin);
    addText(live->name, getOrigin(origin, kGradientOfAttribute));
    addText(live->pass, getOrigin(origin, kPassAttribute));
    live->kind = exec::stringifyBufferKind(buffer.getKind()).str();
    if (auto layer = dyn_cast_or_null<IntegerAttr>(getLayer(origin)))
      live->layer = layer.getInt();
    live->bytes = llvm::alignTo(buffer.getBytes(), alignment);
    image->peak.push_back(std::move(live));
  }
}

void ImageWriter::addMemory() {
  image->arena_bytes = getInteger("exec.arena_bytes");
  image->live_bytes = getInteger("exec.live_bytes");
  if (module->hasAttr("exec.host_bytes"))
    image->host_bytes = getInteger("exec.host_bytes");
  if (auto zones = module->getAttrOfType<DenseI64ArrayAttr>("exec.red_zones"))
    for (int64_t i = 0; i < zones.size(); i += 2)
      image->red_zones.push_back(artifact::RedZone(zones[i], zones[i + 1]));
  addPeak(backends.get(exec::MemorySpace::device).getBufferAlignment());
  for (bool isHost : {false, true})
    for (const MemoryKind &kind : listMemory(module, backends, isHost)) {
      auto entry = std::make_unique<artifact::MemoryKindT>();
      entry->name = (kind.name + (isHost ? " (host)" : "")).str();
      entry->bytes = kind.bytes;
      image->memory.push_back(std::move(entry));
    }
}

void IndexWriter::addSettings() {
  index.compiler = "kiln 0.1.0";
  index.program = config.printProgram();
  index.settings = describeSettings(config);
  index.model = kindOfSection("model", config);
  index.device = kindOfSection("devices", config);
  index.threads = config.devices.threads;
  for (const ProgramCode::Target &target : code.targets) {
    auto entry = std::make_unique<artifact::TargetT>();
    entry->backend = target.backend;
    entry->processor = target.facts.processor;
    entry->features = target.facts.features;
    for (const CodeSection &section : target.sections)
      entry->sections.push_back(section.name);
    index.targets.push_back(std::move(entry));
  }
}

void IndexWriter::addPlan() {
  int64_t share = *llvm::max_element(shares);
  index.plan = std::make_unique<artifact::PlanT>();
  index.plan->zero = plan.zero;
  index.plan->offload = wordOf(plan.offload);
  index.plan->recompute = wordOf(plan.recompute);
  index.plan->sequence_parallel = plan.isSequenceParallel;
  index.plan->micro_batch = plan.microBatchSize(share);
  index.plan->accumulation = plan.accumulation(share);
  index.plan->speeds = plan.speeds;
}

std::unique_ptr<artifact::ImageT> ImageWriter::write() {
  addVariables();
  addKernels();
  addPrograms();
  addMemory();
  return std::move(image);
}

/// Flops of one device's training step.
static uint64_t countFlops(const artifact::ImageT &image) {
  uint64_t flops = 0;
  for (const auto &program : image.programs)
    if (program->name == "train")
      for (const auto &phase : program->phases)
        for (const auto &command : phase->commands)
          flops += command->flops * phase->repeat;
  return flops;
}

// Devices of a replica have the same image and the same samples.
void IndexWriter::addDevices() {
  Mesh mesh = getMesh(images.front());
  for (auto [name, size] : llvm::zip_equal(mesh.names, mesh.sizes)) {
    auto axis = std::make_unique<artifact::MeshAxisT>();
    axis->name = name;
    axis->size = size;
    index.mesh.push_back(std::move(axis));
  }
  llvm::StringMap<unsigned> kernelNumbers;
  llvm::DenseMap<int64_t, uint32_t> numbers; // Image index, by share.
  for (ModuleOp image : images) {
    numbers[image->getAttrOfType<IntegerAttr>(kShareAttribute).getInt()] =
        index.images.size();
    index.images.push_back(
        ImageWriter(image, backends, index, kernelNumbers).write());
  }
  uint64_t first = 0;
  for (int64_t share : shares) {
    for (int64_t place = 0; place < plan.mesh.tensor; ++place) {
      auto device = std::make_unique<artifact::DeviceT>();
      device->image = numbers.at(share);
      device->first_sample = first;
      index.flops_per_step += countFlops(*index.images[device->image]);
      index.devices.push_back(std::move(device));
    }
    first += share;
  }
}

flatbuffers::DetachedBuffer IndexWriter::write() {
  addDevices();
  addSettings();
  addPlan();
  index.public_names = describePublicNames(config.model);
  flatbuffers::FlatBufferBuilder builder;
  builder.ForceDefaults(false);
  artifact::FinishIndexBuffer(builder, artifact::Index::Pack(builder, &index));
  return builder.Release();
}

Status writeArtifact(ArrayRef<ModuleOp> images, const ProgramCode &code,
                     const Config &config, const Plan &plan,
                     const Backends &backends, const std::string &path,
                     const std::string &name) {
  flatbuffers::DetachedBuffer bytes =
      IndexWriter(images, code, config, plan, backends).write();
  std::vector<Section> sections = {
      {std::string(indexSectionName),
       std::as_bytes(std::span(bytes.data(), bytes.size()))}};
  for (const ProgramCode::Target &target : code.targets)
    for (const CodeSection &section : target.sections)
      sections.push_back(
          {section.name, std::as_bytes(std::span(section.bytes))});
  return writeContainer(path, sections, name);
}

} // namespace kiln
