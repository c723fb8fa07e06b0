// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Spelling.h"
#include "runtime/checkpoint/CheckpointStore.h"
#include "runtime/checkpoint/CompareTensors.h"
#include "runtime/checkpoint/WeightVocabulary.h"
#include "tools/kiln/CommandFiles.h"
#include "tools/kiln/Commands.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace kiln {

namespace fs = std::filesystem;

namespace {

int fail(const Status &status) {
  printError(status.message());
  return status.exitCode();
}

int reportUsage(const std::string &message) {
  printError(message);
  return exitUsage;
}

/// The checkpoints that a path stands for: itself, or those of a run.
std::vector<CheckpointStore::Entry> findCheckpoints(const std::string &path) {
  if (isCheckpoint(path))
    return {{0, path}};
  return CheckpointStore::ofRun(path).list();
}

/// Prints a checkpoint's line and returns its exit code.
int listOne(const std::string &path) {
  Expected<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint.ok()) {
    printf("%-48s damaged: %s\n", path.c_str(),
           checkpoint.status().message().c_str());
    return checkpoint.status().exitCode();
  }
  printf("%-48s step %-10llu %-12s whole\n", path.c_str(),
         static_cast<unsigned long long>(checkpoint->manifest().step),
         printBytes(checkpoint->bytes()).c_str());
  return 0;
}

/// Lists the checkpoints of each path; of all runs for none.
int list(const std::vector<std::string> &paths, bool isVerified) {
  int code = 0;
  for (const std::string &path :
       paths.empty() ? std::vector<std::string>{"runs"} : paths) {
    std::vector<CheckpointStore::Entry> found = findCheckpoints(path);
    // Without checkpoints of its own it may be the folder of all runs.
    std::error_code error;
    if (found.empty())
      for (fs::directory_iterator run(path, error), end; !error && run != end;
           run.increment(error))
        for (const CheckpointStore::Entry &entry :
             findCheckpoints(run->path().string()))
          found.push_back(entry);
    bool isMissing = !paths.empty() && !fs::is_directory(path, error);
    if (found.empty() && (isMissing || isVerified))
      code = fail(failWithoutCheckpoint(path));
    else if (found.empty())
      printf("no checkpoint in %s\n", path.c_str());
    for (const CheckpointStore::Entry &entry : found)
      if (int damage = listOne(entry.path); damage && isVerified)
        code = damage;
  }
  return code;
}

int diff(const std::string &first, const std::string &second) {
  Expected<Checkpoint> a = openCheckpoint(first), b = openCheckpoint(second);
  for (const Expected<Checkpoint> *each : {&a, &b})
    if (!each->ok())
      return fail(each->status());
  if (a->manifest().step != b->manifest().step)
    printf("step %llu and step %llu\n",
           static_cast<unsigned long long>(a->manifest().step),
           static_cast<unsigned long long>(b->manifest().step));
  size_t unequal = 0;
  for (const auto &[name, tensor] : a->tensors()) {
    auto other = b->tensors().find(name);
    if (other == b->tensors().end()) {
      printf("%-48s only in %s\n", name.c_str(), first.c_str());
      ++unequal;
      continue;
    }
    Expected<TensorDifference> found = compareTensors(
        *tensor.file, *tensor.entry, *other->second.file, *other->second.entry);
    if (!found.ok())
      return fail(found.status());
    unequal += !found->isEqual;
    printf("%-48s %s\n", name.c_str(), found->describe().c_str());
  }
  for (const auto &[name, tensor] : b->tensors())
    if (!a->tensors().contains(name)) {
      printf("%-48s only in %s\n", name.c_str(), second.c_str());
      ++unequal;
    }
  printf("%s\n", unequal ? (std::to_string(unequal) + " tensors differ").c_str()
                         : "all tensors are equal");
  return unequal ? 1 : 0;
}

int exportTo(const std::string &path, const std::string &output) {
  Expected<Checkpoint> checkpoint = openCheckpoint(path);
  if (!checkpoint.ok())
    return fail(checkpoint.status());
  std::error_code error;
  if (fs::exists(output, error) && !fs::is_regular_file(output, error))
    return reportUsage("-o " + output +
                       ": found no regular file, which alone can be replaced");
  CommandFiles files;
  files.addInputFolder("checkpoint", checkpoint->folder());
  files.addOutput("-o", output);
  if (Status status = files.check(); !status.ok())
    return fail(status);
  if (Status status = checkpoint->exportWeights(output); !status.ok())
    return fail(status);
  printf("Weights of step %llu are in %s\n",
         static_cast<unsigned long long>(checkpoint->manifest().step),
         output.c_str());
  if (!checkpoint->vocabulary().empty())
    printf("Their vocabulary is in %s\n", vocabularyPathOf(output).c_str());
  return 0;
}

} // namespace

Expected<Checkpoint> openCheckpoint(const std::string &path) {
  std::vector<CheckpointStore::Entry> found = findCheckpoints(path);
  return found.empty() ? failWithoutCheckpoint(path)
                       : Checkpoint::open(found.back().path);
}

int runCheckpointCommand(const std::string &action,
                         const std::vector<std::string> &paths,
                         const std::string &output) {
  if (action == "list")
    return list(paths, false);
  if (action == "verify")
    return paths.empty() ? reportUsage("verify wants checkpoints or runs")
                         : list(paths, true);
  if (action == "diff")
    return paths.size() == 2 ? diff(paths[0], paths[1])
                             : reportUsage("diff wants two checkpoints");
  if (action == "export")
    return paths.size() == 1 && !output.empty()
               ? exportTo(paths[0], output)
               : reportUsage("export wants a checkpoint and -o FILE");
  return reportUsage(
      "unknown action '" + action + "', wanted list, verify, diff or export" +
      didYouMean(nearestWord(action, {"list", "verify", "diff", "export"})));
}

int inspectCheckpoint(const std::string &path, bool isJson) {
  Expected<Checkpoint> opened = openCheckpoint(path);
  if (!opened.ok())
    return fail(opened.status());
  const Manifest &manifest = opened->manifest();
  if (isJson) {
    nlohmann::ordered_json json =
        nlohmann::ordered_json::parse(manifest.print());
    json["tensors"] = nlohmann::ordered_json::object();
    for (const auto &[name, tensor] : opened->tensors())
      json["tensors"][name] = {{"dtype", tensor.entry->dtype},
                               {"shape", tensor.entry->shape}};
    printf("%s\n", json.dump(2).c_str());
    return 0;
  }
  printf("checkpoint  %s, written by %s\n", opened->folder().c_str(),
         manifest.writtenBy.c_str());
  printf("model       %s\n", manifest.model.c_str());
  printf("step        %llu, global batch %llu, seed %llu\n",
         static_cast<unsigned long long>(manifest.step),
         static_cast<unsigned long long>(manifest.globalBatch),
         static_cast<unsigned long long>(manifest.seed));
  for (const auto &[name, file] : manifest.files)
    printf("file        %s, %s\n", name.c_str(),
           printBytes(file.bytes).c_str());
  printf("\ntensors\n");
  for (const auto &[name, tensor] : opened->tensors())
    printf("  %-48s %s\n", name.c_str(), tensor.entry->describe().c_str());
  return 0;
}

} // namespace kiln
