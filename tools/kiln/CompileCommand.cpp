// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Cache.h"
#include "compiler/config/CacheKey.h"
#include "compiler/config/Config.h"
#include "runtime/TemporaryFiles.h"
#include "runtime/artifact/Artifact.h"
#include "runtime/checkpoint/OutputFile.h"
#include "runtime/session/RunFolder.h"
#include "tools/kiln/ArtifactSettings.h"
#include "tools/kiln/CommandFiles.h"
#include "tools/kiln/CompilerProcess.h"
#include "tools/kiln/Ranks.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace kiln {

namespace fs = std::filesystem;

namespace {

int reportIo(const std::string &path, int error) {
  printError(path + ": " + std::strerror(error));
  return static_cast<int>(Code::io);
}

/// One compilation from config to a file that can be run.
class Compilation {
public:
  explicit Compilation(const CompileArguments &options)
      : options(options), cache(Cache::defaultFolder(), printWarning) {}

  /// Reads the config, checks the files that it names and those of a run of
  /// it, and looks into the cache. Returns an exit code.
  int prepare(const RunOptions *run = nullptr);

  /// Whether `prepare` found the artifact in the cache.
  bool isCached() const { return !hit.empty(); }

  /// Opens the files of a run, which the model must fit. Returns an exit code.
  int openFiles(const RunOptions &run);

  /// Compiles and offers the artifact to the cache, unless it came from there.
  int compile();

  /// Peak bytes and time, as the last lines on stdout.
  int report() const;

  /// Path of the artifact, as long as this object lives.
  std::string artifact() const {
    return hit.empty() || hasOtherSettings ? compiled.path() : hit;
  }

private:
  /// Whether a run needs its folder: metrics alone can be missed.
  bool savesState() const {
    return config->checkpoint.presence != Presence::None &&
           config->devices.kind != DeviceKind::Dry;
  }
  Status checkFiles(const RunOptions *run) const;
  Status checkEntry(const std::string &path) const;
  int takeEntry();
  void saveReproducer() const;

  const CompileArguments &options;
  std::chrono::steady_clock::time_point start =
      std::chrono::steady_clock::now();
  Cache cache;
  MemoryFile compiled{"kiln-artifact"};
  std::optional<Config> config;
  std::optional<InputFiles> files;
  std::string library, key, hit;
  bool hasOtherSettings = false; // Than the cached artifact.
};

/// Before anything is written.
Status Compilation::checkFiles(const RunOptions *run) const {
  CommandFiles files;
  files.addInput("config", options.config);
  if (config)
    files.addInputs(config->files());
  files.addOutput("-o", options.output);
  files.addDumps(options.dumpFolder);
  bool savesCheckpoints =
      config && config->checkpoint.presence == Presence::Given;
  if (run && config)
    files.addRun(*run, {.count = std::max(run->processes, 1u)},
                 mayGoOn(*run, savesCheckpoints));
  return files.check();
}

int Compilation::prepare(const RunOptions *run) {
  // An error in the config must not be printed into it.
  if (Status status = checkFiles(nullptr); !status.ok()) {
    printError(status.message());
    return status.exitCode();
  }
  Diagnostics diagnostics;
  config = loadConfig(options.config, options.overrides, diagnostics);
  if (!config) {
    fputs(diagnostics.text().c_str(), stderr);
    return exitUsage;
  }
  Status status = checkFiles(run);
  if (status.ok() && run && savesState() && !run->runFolder.empty())
    status = RunFolder::checkPlace(run->runFolder);
  if (status.ok() && run)
    status = checkResume(run->resume);
  if (status.ok() && run && run->processes != 0)
    status = checkSessionFolder();
  if (!status.ok()) {
    printError(status.message());
    return status.exitCode();
  }
  library = findCompilerLibrary();
  if (library.empty()) {
    printError("cannot find libKilnCompiler.so beside the command; set "
               "KILN_COMPILER_LIBRARY to its path");
    return 1;
  }
  std::string error;
  std::optional<std::string> hash =
      compileKey(*config, {library, options.isReference}, error);
  if (!hash) {
    printError(error);
    return static_cast<int>(Code::inputRejected);
  }
  key = *hash;
  printf("Compile hash is: %s\n", key.c_str());
  cache.removeRemains();
  // To dump the IR after each pass, the passes must run.
  if (options.usesCache && options.dumpFolder.empty())
    hit = cache.lookUp(
        key, [&](const std::string &path) { return checkEntry(path); });
  if (!hit.empty())
    printf("Cache hit: %s\n", hit.c_str());
  fflush(stdout);
  return hit.empty() ? 0 : takeEntry();
}

/// The entry is the program of the first config that was compiled to it.
int Compilation::takeEntry() {
  Expected<Artifact> entry = Artifact::load(hit);
  if (!entry.ok()) {
    printError(entry.status().message());
    return entry.status().exitCode();
  }
  hasOtherSettings =
      entry->settings().config()->string_view() != config->print();
  if (!hasOtherSettings)
    return 0;
  int error = compiled.isOpen()
                  ? compiled.write(packWithSettings(*entry, *config))
                  : ENOMEM;
  return error ? reportIo(options.config +
                              ": the artifact cannot be held in memory",
                          error)
               : 0;
}

int Compilation::openFiles(const RunOptions &run) {
  Expected<InputFiles> opened = InputFiles::open(*config, run);
  if (opened.ok())
    files.emplace(std::move(*opened));
  else
    printError(opened.status().message());
  return opened.status().exitCode();
}

/// A file may have been copied to the name of another one's hash.
Status Compilation::checkEntry(const std::string &path) const {
  Expected<Artifact> artifact = Artifact::load(path);
  if (artifact.ok() &&
      artifact->index().program()->string_view() != config->printProgram())
    return Status(Code::inputRejected, path + ": holds another program");
  return artifact.status();
}

int Compilation::compile() {
  if (!hit.empty())
    return 0;
  if (!compiled.isOpen()) {
    printError("the system refuses a file in memory for the artifact");
    return static_cast<int>(Code::failed);
  }
  std::error_code error;
  if (!options.dumpFolder.empty() &&
      !fs::is_directory(options.dumpFolder, error) &&
      !fs::create_directories(options.dumpFolder, error)) {
    printError(options.dumpFolder + ": " + error.message());
    return static_cast<int>(Code::io);
  }
  CompileArguments arguments = options;
  // One warning, not one from each of two processes.
  arguments.usesCache = options.usesCache && cache.isUsable();
  int code = compileInChild(library, arguments, compiled.path(),
                            files ? &*files : nullptr);
  files.reset();
  if (code == 0 && fs::file_size(compiled.path(), error) == 0) {
    printError("the compiler wrote no artifact");
    code = exitInternal;
  }
  if (code == exitInternal)
    saveReproducer();
  if (code == 0 && arguments.usesCache)
    cache.publish(key, compiled.path());
  return code;
}

void Compilation::saveReproducer() const {
  std::error_code error;
  std::string path = "crash/" + key + ".yaml";
  fs::create_directories("crash", error);
  if (fs::equivalent(path, options.config, error)) {
    fprintf(stderr, "kiln: internal compiler error, as before; %s shows it\n",
            path.c_str());
    return;
  }
  std::ofstream file(path);
  file << "# Reproduces an internal error of the compiler: kiln compile "
       << path << " -o /dev/null" << (options.isReference ? " --reference" : "")
       << "\n"
       << config->print();
  file.close();
  if (file)
    fprintf(stderr,
            "kiln: internal compiler error; the config is saved in %s\n",
            path.c_str());
  else
    printError("internal compiler error; " + path + " could not be written");
}

int Compilation::report() const {
  Expected<Artifact> loaded = Artifact::load(artifact(), options.config);
  if (!loaded.ok()) {
    printError("the compiler wrote an artifact that does not load: " +
               loaded.status().message());
    saveReproducer();
    return exitInternal;
  }
  double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  // The images differ in their share of the batch.
  uint64_t peak = 0, host = 0;
  for (const artifact::Image *image : *loaded->index().images()) {
    peak = std::max(peak, image->arena_bytes());
    host = std::max(host, image->host_bytes());
  }
  printf("Peak memory: %llu bytes (%s) per device",
         static_cast<unsigned long long>(peak), printBytes(peak).c_str());
  if (host != 0)
    printf(", and %llu bytes (%s) of the host's for each",
           static_cast<unsigned long long>(host), printBytes(host).c_str());
  printf("\n");
  printf("Compile time: %.2f s\n", seconds);
  fflush(stdout);
  return 0;
}

} // namespace

/// Finds before compiling that the output cannot be written.
static int checkArtifact(const std::string &output) {
  std::error_code error;
  fs::path parent = followLinks(output).parent_path();
  if (fs::is_directory(output, error))
    return reportIo(output, EISDIR);
  // Only a device is written where it is: a file is replaced.
  bool isDevice = fs::exists(output, error) && !fs::is_regular_file(output);
  if (isDevice)
    if (Status status = checkReplaced("-o " + output, output); !status.ok()) {
      printError(status.message());
      return status.exitCode();
    }
  int isDenied = isDevice ? access(output.c_str(), W_OK)
                          : access(parent.c_str(), W_OK | X_OK);
  return isDenied ? reportIo(output, errno) : 0;
}

int runCompileCommand(const CompileArguments &options) {
  Compilation compilation(options);
  if (int code = compilation.prepare())
    return code;
  if (int code = checkArtifact(options.output))
    return code;
  SignalGuard guard; // Before there is a file to clean up.
  if (int code = compilation.compile())
    return code;
  if (int code = compilation.report())
    return code;
  if (int signal = SignalGuard::received())
    return 128 + signal;
  if (int error = copyAtomically(compilation.artifact(),
                                 followLinks(options.output).string()))
    return reportIo(options.output, error);
  return 0;
}

/// The session for a config, or none if other processes run it.
static std::optional<Session> compileAndLoad(Compilation &compilation,
                                             const RunOptions &run, int &code) {
  SignalGuard guard;
  if ((code = compilation.compile()) || (code = compilation.report()))
    return std::nullopt;
  if (run.processes != 0) {
    code = runRanks(compilation.artifact(), run);
    return std::nullopt;
  }
  std::optional<Session> session =
      loadSession(compilation.artifact(), run, /*world=*/nullptr, code);
  if (int signal = SignalGuard::received()) {
    code = 128 + signal;
    return std::nullopt;
  }
  return session;
}

int runTrainCommand(const CompileArguments &options, RunOptions run) {
  if (World::isOneOfMany()) {
    printError("mpirun has started several of kiln train, each of which would "
               "train alone; wanted kiln train -n N, or kiln compile and "
               "then mpirun kiln run");
    return exitUsage;
  }
  Compilation compilation(options);
  run.inputs["config"] = options.config;
  if (int code = compilation.prepare(&run))
    return code;
  // The run itself checks them, soon enough if there is nothing to compile.
  if (!compilation.isCached())
    if (int code = compilation.openFiles(run))
      return code;
  int code = 0;
  run.name = options.config;
  std::optional<Session> session = compileAndLoad(compilation, run, code);
  return session ? runSession(*session, run) : code;
}

} // namespace kiln
