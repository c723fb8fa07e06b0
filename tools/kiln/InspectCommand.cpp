// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Config.h"
#include "compiler/config/ReadValue.h"
#include "compiler/config/Schema.h"
#include "runtime/Mesh.h"
#include "runtime/artifact/Artifact.h"
#include "tools/kiln/CommandFiles.h"
#include "tools/kiln/Commands.h"
#include "tools/kiln/ModelNames.h"
#include "tools/kiln/PeakMemory.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

namespace kiln {

namespace {

using Json = nlohmann::ordered_json;

/// One row per kind of work: its count and cost in a step.
struct WorkRow {
  uint64_t count = 0;
  uint64_t flops = 0;
  uint64_t bytes = 0;
};

/// The name of a kernel or kind of command, and the part of the model in any
/// layer.
using WorkName = std::pair<std::string, std::string>;

std::map<WorkName, WorkRow> collectWork(const artifact::Program &program,
                                        const artifact::Index &index) {
  std::map<WorkName, WorkRow> rows;
  for (const artifact::Phase *phase : *program.phases())
    for (const artifact::Command *command : *phase->commands()) {
      const flatbuffers::String *origin = command->origin();
      WorkRow &row = rows[{nameOf(*command, index),
                           nameInAnyLayer(origin ? origin->str() : "")}];
      row.count += phase->repeat();
      row.flops += command->flops() * phase->repeat();
      row.bytes += command->bytes() * phase->repeat();
    }
  return rows;
}

std::string printShape(const flatbuffers::Vector<int64_t> &shape) {
  std::string text;
  for (int64_t size : shape)
    text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "scalar" : text;
}

/// Nothing if this version cannot read the config.
std::optional<Config> configOf(const artifact::Index &index) {
  Diagnostics diagnostics;
  return parseConfig(index.settings()->config()->str(), "config", {},
                     diagnostics);
}

/// Keys of the config that ask for a plan, with the values as written.
std::vector<std::pair<std::string, std::string>>
listRequests(const artifact::Index &index) {
  std::optional<Config> config = configOf(index);
  std::vector<std::pair<std::string, std::string>> requests;
  if (!config)
    return requests;
  for (const Key &key : schema())
    if (key.isRequest())
      requests.emplace_back(key.name(), printValue(key, *config));
  return requests;
}

Json describePlan(const Artifact &artifact) {
  const artifact::Index &index = artifact.index();
  Json plan;
  plan["device"] = index.device()->str();
  plan["devices"] = index.devices()->size();
  plan["mesh"] = Json::object();
  for (const artifact::MeshAxis *axis : *index.mesh())
    plan["mesh"][axis->name()->str()] = axis->size();
  plan["processor"] = index.targets()->Get(0)->processor()->str();
  plan["threads"] = index.threads();
  if (const artifact::Training *training = index.settings()->training()) {
    plan["global_batch"] = training->global_batch();
    plan["steps"] = training->steps();
    plan["epochs"] = training->epochs();
    plan["seed"] = training->seed();
  }
  if (const artifact::Plan *decided = index.plan()) {
    plan["micro_batch"] = decided->micro_batch();
    plan["accumulation"] = decided->accumulation();
    plan["zero"] = decided->zero();
    plan["offload"] = decided->offload()->str();
    plan["recompute"] = decided->recompute()->str();
    plan["sequence_parallel"] = decided->sequence_parallel();
    if (decided->speeds())
      plan["speeds"] = std::vector<double>(decided->speeds()->begin(),
                                           decided->speeds()->end());
  }
  plan["flops_per_step"] = index.flops_per_step();
  return plan;
}

/// Each collective: how often a step runs it, and the bytes that the members
/// of one group then receive from each other.
Json describeCollectives(const artifact::Index &index,
                         const artifact::Program &program) {
  Json list = Json::array();
  for (const artifact::Phase *phase : *program.phases())
    for (uint32_t number = 0; number < phase->commands()->size(); ++number) {
      const artifact::Command *command = phase->commands()->Get(number);
      const artifact::Collective *collective = command->action_as_Collective();
      if (!collective)
        continue;
      Json axes = Json::array();
      for (uint32_t axis : *collective->axes())
        axes.push_back(index.mesh()->Get(axis)->name()->str());
      list.push_back(
          {{"name", nameCollective(*phase, number, index)},
           {"kind", artifact::EnumNameCollectiveKind(collective->kind())},
           {"element_type",
            artifact::EnumNameElementType(collective->element_type())},
           {"axes", axes},
           {"members", Mesh(index).count(collective->axes())},
           {"count", phase->repeat()},
           {"bytes", command->bytes() * phase->repeat()}});
    }
  return list;
}

Json describePrograms(const artifact::Index &index,
                      const artifact::Image &image) {
  Json programs = Json::array();
  for (const artifact::Program *program : *image.programs()) {
    Json phases = Json::array();
    for (const artifact::Phase *phase : *program->phases())
      phases.push_back({{"name", phase->name()->str()},
                        {"repeat", phase->repeat()},
                        {"commands", phase->commands()->size()}});
    Json kernels = Json::array();
    for (const auto &[name, row] : collectWork(*program, index))
      kernels.push_back({{"name", name.first},
                         {"origin", name.second},
                         {"count", row.count},
                         {"flops", row.flops},
                         {"bytes", row.bytes}});
    programs.push_back({{"name", program->name()->str()},
                        {"phases", phases},
                        {"kernels", kernels},
                        {"collectives", describeCollectives(index, *program)}});
  }
  return programs;
}

Json describeSplits(const artifact::Index &index,
                    const artifact::Variable &variable) {
  auto describe = [&](const artifact::Split *split) {
    Json axes = Json::array();
    for (uint32_t axis : *split->axes())
      axes.push_back(index.mesh()->Get(axis)->name()->str());
    return axes;
  };
  Json splits = Json::object();
  if (variable.view())
    splits["view"] =
        std::vector<int64_t>(variable.view()->begin(), variable.view()->end());
  if (variable.splits()) {
    splits["dimensions"] = Json::array();
    for (const artifact::Split *split : *variable.splits())
      splits["dimensions"].push_back(describe(split));
  }
  if (variable.flat())
    splits["flat"] = describe(variable.flat());
  return splits;
}

Json describeVariables(const artifact::Index &index,
                       const artifact::Image &image) {
  Json variables = Json::array();
  for (const artifact::Variable *variable : *image.variables()) {
    Json shape = Json::array();
    for (int64_t size : *variable->shape())
      shape.push_back(size);
    variables.push_back(
        {{"name", variable->name()->str()},
         {"role", variable->role() ? variable->role()->str() : ""},
         {"type", artifact::EnumNameElementType(variable->element_type())},
         {"shape", shape},
         {"offset", variable->offset()},
         {"bytes", variable->bytes()}});
    if (Json splits = describeSplits(index, *variable); !splits.empty())
      variables.back()["split"] = splits;
  }
  return variables;
}

/// The image of devices with one share of the batch.
Json describeImage(const artifact::Index &index, const artifact::Image &image) {
  Json json;
  json["arena_bytes"] = image.arena_bytes();
  json["host_bytes"] = image.host_bytes();
  json["live_bytes"] = image.live_bytes();
  json["memory"] = Json::array();
  for (const artifact::MemoryKind *kind : *image.memory())
    json["memory"].push_back(
        {{"name", kind->name()->str()}, {"bytes", kind->bytes()}});
  json["peak"] = describePeak(image);
  json["programs"] = describePrograms(index, image);
  json["variables"] = describeVariables(index, image);
  return json;
}

uint64_t countCodeBytes(const Artifact &artifact) {
  uint64_t bytes = 0;
  for (const artifact::Target *target : *artifact.index().targets())
    for (const flatbuffers::String *section : *target->sections())
      bytes += artifact.section(section->string_view()).size();
  return bytes;
}

/// Every kernel with the family that serves it, its stages and parameters.
void printKernels(const artifact::Index &index) {
  for (const artifact::Kernel *kernel : *index.kernels()) {
    const artifact::Target &target = *index.targets()->Get(kernel->target());
    printf("%s\n  %s %s", kernel->name()->c_str(), target.backend()->c_str(),
           kernel->family() ? kernel->family()->c_str() : "");
    if (kernel->tuning() && kernel->tuning()->size() != 0)
      printf(": %s", kernel->tuning()->c_str());
    printf("\n");
    for (const artifact::KernelStage *stage : *kernel->stages()) {
      printf("  stage %s, %llu items", stage->symbol()->c_str(),
             static_cast<unsigned long long>(stage->items()));
      if (stage->rounds() != 1)
        printf(", %u rounds", stage->rounds());
      printf("\n");
    }
  }
}

Json describeArtifact(const Artifact &artifact) {
  const artifact::Index &index = artifact.index();
  Json json;
  json["schema"] = 2;
  json["compiler"] = index.compiler()->str();
  json["model"] = index.model()->str();
  json["request"] = Json::object();
  for (const auto &[key, value] : listRequests(index))
    json["request"][key] = value;
  json["plan"] = describePlan(artifact);
  json["kernel_count"] = index.kernels()->size();
  json["kernel_code_bytes"] = countCodeBytes(artifact);
  json["kernels"] = Json::array();
  for (const artifact::Kernel *kernel : *index.kernels()) {
    Json entry;
    entry["name"] = kernel->name()->str();
    entry["backend"] = index.targets()->Get(kernel->target())->backend()->str();
    entry["family"] = kernel->family() ? kernel->family()->str() : "";
    entry["tuning"] = kernel->tuning() ? kernel->tuning()->str() : "";
    json["kernels"].push_back(std::move(entry));
  }
  json["images"] = Json::array();
  for (const artifact::Image *image : *index.images())
    json["images"].push_back(describeImage(index, *image));
  json["devices"] = Json::array();
  for (const artifact::Device *device : *index.devices())
    json["devices"].push_back(
        {{"image", device->image()}, {"first_sample", device->first_sample()}});
  json["config"] = index.settings()->config()->str();
  return json;
}

void printRequests(const artifact::Index &index) {
  std::string text;
  for (const auto &[key, value] : listRequests(index))
    text += (text.empty() ? "" : ", ") + key + " " + value;
  if (!text.empty())
    printf("request   %s\n", text.c_str());
}

/// As the config has it.
void printPrecision(const artifact::Index &index) {
  if (std::optional<Config> config = configOf(index))
    printf("precision %s\n", config->training.precision.print().c_str());
}

void printPlan(const Artifact &artifact) {
  const artifact::Index &index = artifact.index();
  printf("model     %s, compiled by %s\n", index.model()->c_str(),
         index.compiler()->c_str());
  printf("target    %s x %u, %s, %u threads\n", index.device()->c_str(),
         index.devices()->size(), index.targets()->Get(0)->processor()->c_str(),
         index.threads());
  if (index.mesh()->size() != 0) {
    printf("mesh     ");
    for (const artifact::MeshAxis *axis : *index.mesh())
      printf(" %s %u", axis->name()->c_str(), axis->size());
    printf("\n");
  }
  if (const artifact::Training *training = index.settings()->training())
    printf("batch     %llu samples\n",
           static_cast<unsigned long long>(training->global_batch()));
  printPrecision(index);
  printRequests(index);
  if (const artifact::Plan *plan = index.plan())
    printf("plan      micro-batch %llu, accumulation %u, zero %u, offload %s, "
           "recompute %s\n",
           static_cast<unsigned long long>(plan->micro_batch()),
           plan->accumulation(), plan->zero(), plan->offload()->c_str(),
           plan->recompute()->c_str());
  printf("step      %.4g GFLOP\n", double(index.flops_per_step()) * 1e-9);
  printf("kernels   %u, %s of code\n", index.kernels()->size(),
         printBytes(countCodeBytes(artifact)).c_str());
}

void printBytesRow(const char *name, uint64_t bytes) {
  printf("  %-36s %14llu  %s\n", name, static_cast<unsigned long long>(bytes),
         printBytes(bytes).c_str());
}

void printMemory(const artifact::Image &image) {
  printf("\nmemory per device\n");
  for (const artifact::MemoryKind *kind : *image.memory())
    printBytesRow(kind->name()->c_str(), kind->bytes());
  printBytesRow("peak (reserved)", image.arena_bytes());
  if (image.host_bytes())
    printBytesRow("in the host's memory", image.host_bytes());
  printBytesRow("greatest live sum", image.live_bytes());
}

void printPrograms(const artifact::Index &index, const artifact::Image &image) {
  for (const artifact::Program *program : *image.programs()) {
    printf("\nprogram %s\n", program->name()->c_str());
    for (const artifact::Phase *phase : *program->phases())
      printf("  %-24s %u commands, %u times\n", phase->name()->c_str(),
             phase->commands()->size(), phase->repeat());
    printf("  %-40s %7s %10s %10s  %s\n", "kernel", "count", "MFLOP", "MB",
           "of the model");
    auto work = collectWork(*program, index);
    std::vector<std::pair<WorkName, WorkRow>> rows(work.begin(), work.end());
    std::sort(rows.begin(), rows.end(), [](const auto &a, const auto &b) {
      return std::tie(b.second.flops, a.first) <
             std::tie(a.second.flops, b.first);
    });
    for (const auto &[name, row] : rows)
      printf("  %-40s %7llu %10.2f %10.2f%s%s\n", name.first.c_str(),
             static_cast<unsigned long long>(row.count),
             double(row.flops) * 1e-6, double(row.bytes) * 1e-6,
             name.second.empty() ? "" : "  ", name.second.c_str());
  }
}

void printVariables(const artifact::Image &image) {
  printf("\nvariables\n");
  uint64_t parameters = 0;
  for (const artifact::Variable *variable : *image.variables()) {
    std::string role = variable->role() ? variable->role()->str() : "";
    printf("  %-40s %-10s %-4s %-16s %s\n", variable->name()->c_str(),
           role.c_str(),
           artifact::EnumNameElementType(variable->element_type()),
           printShape(*variable->shape()).c_str(),
           printBytes(variable->bytes()).c_str());
    uint64_t elements = 1;
    for (int64_t size : *variable->shape())
      elements *= static_cast<uint64_t>(size);
    if (role == "parameter")
      parameters += elements;
  }
  printf("  %llu parameters\n", static_cast<unsigned long long>(parameters));
}

} // namespace

int runInspectCommand(const std::string &path, bool isJson,
                      bool isListingKernels) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return inspectCheckpoint(path, isJson);
  CommandFiles files;
  files.addInput("artifact", path);
  if (Status status = files.check(); !status.ok()) {
    printError(status.message());
    return status.exitCode();
  }
  Expected<Artifact> artifact = Artifact::load(path);
  if (!artifact.ok()) {
    printError(artifact.status().message());
    return artifact.status().exitCode();
  }
  if (isJson) {
    // Names come from configs and model files; bad UTF-8 must not throw here.
    printf("%s\n", describeArtifact(*artifact)
                       .dump(2, ' ', false, Json::error_handler_t::replace)
                       .c_str());
    return 0;
  }
  if (isListingKernels) {
    printKernels(artifact->index());
    return 0;
  }
  printPlan(*artifact);
  const auto &images = *artifact->index().images();
  for (uint32_t i = 0; i < images.size(); ++i) {
    if (images.size() > 1)
      printf("\nimage %u of %u: devices that differ in their share of the "
             "batch\n",
             i + 1, images.size());
    printMemory(*images.Get(i));
    printPeak(*images.Get(i));
    printPrograms(artifact->index(), *images.Get(i));
  }
  printVariables(artifact->image());
  return 0;
}

} // namespace kiln
