// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Config.h"
#include "compiler/config/Spelling.h"
#include "runtime/checkpoint/CheckpointStore.h"
#include "runtime/checkpoint/CompareTensors.h"
#include "runtime/checkpoint/OutputFile.h"
#include "runtime/checkpoint/WeightVocabulary.h"
#include "tools/kiln/CommandFiles.h"
#include "tools/kiln/Commands.h"

#include <algorithm>
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

using Entries = CheckpointStore::Entries;

/// The checkpoints that a path stands for: itself, or those of a run.
Expected<Entries> findCheckpoints(const std::string &path) {
  if (isCheckpoint(path))
    return Entries{{0, path}};
  return CheckpointStore::ofRun(path).list();
}

/// The same with those that the run has set aside.
Expected<Entries> findAllCheckpoints(const std::string &path) {
  Expected<Entries> found = findCheckpoints(path);
  if (!found.ok() || isCheckpoint(path))
    return found;
  Expected<Entries> aside = CheckpointStore::ofRun(path).listSetAside();
  if (!aside.ok())
    return aside;
  for (CheckpointStore::Entry &entry : *aside)
    found->push_back(std::move(entry));
  return found;
}

/// Of all runs in a folder, by name. Those that cannot be read are reported,
/// and `status` is of the last.
template <typename Find>
Entries findInRuns(const std::string &path, Find find, Status &status) {
  std::vector<std::string> runs;
  std::error_code error;
  for (fs::directory_iterator run(path, error), end; !error && run != end;
       run.increment(error))
    runs.push_back(run->path().string());
  std::sort(runs.begin(), runs.end());
  Entries all;
  for (const std::string &run : runs) {
    Expected<Entries> found = find(run);
    if (!found.ok()) {
      printError(found.status().message());
      status = found.status();
      continue;
    }
    for (CheckpointStore::Entry &entry : *found)
      all.push_back(std::move(entry));
  }
  return all;
}

/// Prints a checkpoint's line and returns its exit code.
int listOne(const std::string &path) {
  Expected<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint.ok()) {
    printf("%-48s %s: %s\n", path.c_str(),
           checkpoint.status().code() == Code::io ? "unreadable" : "damaged",
           checkpoint.status().message().c_str());
    return checkpoint.status().exitCode();
  }
  printf("%-48s step %-10llu %-12s whole\n", path.c_str(),
         static_cast<unsigned long long>(checkpoint->manifest().step),
         printBytes(checkpoint->bytes()).c_str());
  return 0;
}

/// Lists the checkpoints of a path. Those set aside are none that a run needs:
/// they are shown, and not verified.
int listPath(const std::string &path, bool isNamed, bool isVerified) {
  auto find = isVerified ? findCheckpoints : findAllCheckpoints;
  Expected<Entries> own = find(path);
  if (!own.ok())
    return fail(own.status());
  Entries found = std::move(*own);
  Status unread;
  // Without checkpoints of its own it may be the folder of all runs.
  if (found.empty())
    found = findInRuns(path, find, unread);
  std::error_code error;
  bool isMissing =
      isNamed ? !fs::is_directory(path, error)
              : fs::exists(path, error) && !fs::is_directory(path, error);
  if (found.empty() && !unread.ok())
    return unread.exitCode();
  if (found.empty() && (isMissing || isVerified))
    return fail(failWithoutCheckpoint(path));
  if (found.empty())
    printf("no checkpoint in %s\n", path.c_str());
  int code = unread.exitCode();
  for (const CheckpointStore::Entry &entry : found)
    if (int damage = listOne(entry.path); damage && isVerified)
      code = damage;
  return code;
}

/// The same for each path; for all runs if there is none.
int list(const std::vector<std::string> &paths, bool isVerified) {
  if (paths.empty())
    return listPath("runs", /*isNamed=*/false, isVerified);
  int code = 0;
  for (const std::string &path : paths)
    if (int failure = listPath(path, /*isNamed=*/true, isVerified))
      code = failure;
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

/// The files that the checkpoint's config names. One that this kiln cannot read
/// names none.
std::map<std::string, std::string> filesOf(const Checkpoint &checkpoint) {
  Diagnostics unheard;
  std::optional<Config> config =
      parseConfig(checkpoint.manifest().config, "", {}, unheard);
  return config ? config->files() : std::map<std::string, std::string>();
}

/// Whether the vocabulary may be written beside exported weights: it belongs to
/// others if these are not there.
Status checkVocabularyFile(const std::string &weights,
                           const std::string &vocabulary) {
  std::string path = vocabularyPathOf(weights);
  auto refuse = [&](const std::string &reason) {
    return Status(Code::usage, "vocabulary " + path + " of -o " + weights +
                                   ": " + reason + "; give another file");
  };
  std::error_code error;
  fs::file_type type = fs::symlink_status(path, error).type();
  if (type == fs::file_type::not_found)
    return Status();
  if (type != fs::file_type::regular)
    return refuse("found no regular file, which alone can be replaced");
  return fs::exists(weights, error) || sha256OfFile(path) == sha256(vocabulary)
             ? Status()
             : refuse("holds the words of other weights, which would be lost");
}

/// Before anything is written.
Status checkExport(const Checkpoint &checkpoint, const std::string &output) {
  CommandFiles files;
  files.addInputFolder("checkpoint", checkpoint.folder());
  files.addInputs(filesOf(checkpoint));
  files.addOutput("-o", output);
  bool hasVocabulary = !checkpoint.vocabulary().empty();
  if (hasVocabulary)
    files.addOutput("vocabulary", vocabularyPathOf(output), "-o " + output);
  std::error_code error;
  if (fs::exists(output, error) && !fs::is_regular_file(output, error))
    return Status(Code::usage,
                  "-o " + output +
                      ": found no regular file, which alone can be replaced");
  Status status = files.check();
  if (status.ok())
    status = checkOutput(output, output);
  return status.ok() && hasVocabulary
             ? checkVocabularyFile(output, checkpoint.vocabulary())
             : status;
}

/// Nothing for a word that names no type of exported weights.
std::optional<artifact::ElementType> findType(const std::string &word) {
  for (artifact::ElementType type :
       {artifact::ElementType::f32, artifact::ElementType::bf16,
        artifact::ElementType::f16})
    if (word == artifact::EnumNameElementType(type))
      return type;
  return std::nullopt;
}

int exportTo(const std::string &path, const std::string &output,
             const std::string &dtype) {
  std::optional<artifact::ElementType> type = findType(dtype);
  if (!type && !dtype.empty())
    return reportUsage("--dtype " + dtype + ": wanted f32, bf16 or f16" +
                       didYouMean(nearestWord(dtype, {"f32", "bf16", "f16"})));
  Expected<Checkpoint> checkpoint = openCheckpoint(path);
  if (!checkpoint.ok())
    return fail(checkpoint.status());
  if (Status status = checkExport(*checkpoint, output); !status.ok())
    return fail(status);
  if (Status status = checkpoint->exportWeights(output, type); !status.ok())
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
  Expected<Entries> found = findCheckpoints(path);
  if (!found.ok())
    return found.status();
  return found->empty() ? failWithoutCheckpoint(path)
                        : Checkpoint::open(found->back().path);
}

int runCheckpointCommand(const std::string &action,
                         const std::vector<std::string> &paths,
                         const std::string &output, const std::string &dtype) {
  for (auto [option, value] :
       {std::pair("-o", &output), std::pair("--dtype", &dtype)})
    if (!value->empty() && action != "export")
      return reportUsage(option + (" " + *value) + ": " + action +
                         " writes no file; wanted export, or no " + option);
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
               ? exportTo(paths[0], output, dtype)
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
