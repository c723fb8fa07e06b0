// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/CanonicalText.h"
#include "compiler/config/Spelling.h"
#include "tools/kiln/CommandFiles.h"
#include "tools/kiln/Commands.h"
#include "tools/kiln/Overrides.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <new>
#include <poll.h>
#include <span>
#include <type_traits>
#include <unistd.h>

namespace kiln {

/// Messages quote names from configs and artifacts, which may hold any bytes.
/// Their lines stay lines.
static std::string printableLines(std::string_view message) {
  std::string text;
  while (true) {
    size_t end = message.find('\n');
    text += printableText(message.substr(0, end));
    if (end == message.npos)
      return text;
    text += '\n';
    message.remove_prefix(end + 1);
  }
}

void printError(const std::string &message) {
  fprintf(stderr, "kiln: error: %s\n", printableLines(message).c_str());
}

namespace {

/// The message of CLI11's own check spells out the greatest double, and what it
/// takes for octal, this reads as decimal, like keys of a config.
template <typename T, T maximum = std::numeric_limits<T>::max()>
std::string requirePositive(std::string &text) {
  T value{};
  const char *end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value > 0 && value <= maximum) {
    if constexpr (std::is_integral_v<T>)
      text = std::to_string(value);
    return "";
  }
  std::string limit = maximum < std::numeric_limits<T>::max()
                          ? " up to " + std::to_string(maximum)
                          : "";
  return "found '" + text + "', wanted a positive " +
         (std::is_integral_v<T> ? "integer" : "number") + limit;
}
// As training.steps: more would not survive tools that read it as JSON.
const CLI::Validator stepCount(requirePositive<uint64_t, uint64_t{1} << 53>,
                               "POSITIVE");
const CLI::Validator processCount(requirePositive<uint64_t, 65536>, "POSITIVE");
const CLI::Validator positiveNumber(requirePositive<double>, "POSITIVE");
const CLI::Validator nonEmpty(
    [](const std::string &text) {
      return std::string(
          text.empty() ? "found an empty argument, wanted a value" : "");
    },
    "");

/// The verbs with their options and the given values.
class CommandLine {
public:
  CommandLine() {
    // Unknown words are collected, so that each can be reported with a
    // suggestion.
    app.allow_extras();
    app.set_version_flag("--version", "kiln " KILN_VERSION);
    // One verb at most: the `verify` of `checkpoint verify` is not another.
    app.require_subcommand(0, 1);
    addTrain();
    addCompile();
    addRun();
    addVerify();
    addRest();
    // Empty is what has not been given.
    for (CLI::App *verb : app.get_subcommands(nullptr))
      for (CLI::Option *option : verb->get_options())
        if (option->get_items_expected_max() > 0)
          option->check(nonEmpty);
  }

  int run(int argc, char **argv) {
    if (std::string name = findWithoutValue({argv, argv + argc});
        !name.empty()) {
      printError(name + ": found an empty argument, wanted a value");
      return exitUsage;
    }
    try {
      app.parse(argc, argv);
    } catch (const CLI::CallForHelp &) {
      printHelp();
      isHelp = true;
      return 0;
    } catch (const CLI::CallForVersion &version) {
      puts(version.what());
      return 0;
    } catch (const CLI::ParseError &error) {
      printError(error.what());
      return exitUsage;
    }
    if (reportStrangers())
      return exitUsage;
    return dispatch();
  }

  /// Whether standard output is the result: a log may be lost, since files have
  /// what a run or a compilation has made.
  bool printsResult() const {
    return isHelp || runOptions.isProfiled ||
           !(train->parsed() || runVerb->parsed() || compileVerb->parsed());
  }

private:
  /// The option of `--name=`, for which CLI11 takes the next word as a value;
  /// empty for none.
  static std::string findWithoutValue(std::span<char *const> arguments) {
    for (std::string_view word : arguments) {
      if (word == "--")
        break;
      if (word.starts_with("--") && word.find('=') + 1 == word.size())
        return std::string(word.substr(0, word.size() - 1));
    }
    return "";
  }

  CLI::App *addVerb(const char *name, const char *summary) {
    CLI::App *verb = app.add_subcommand(name, summary);
    verb->allow_extras();
    return verb;
  }

  void addConfig(CLI::App *verb) {
    verb->add_option("CONFIG", compile.config, "config file")->required();
    verb->add_option("key=value", compile.overrides,
                     "values that replace those of the config");
    verb->add_option("--override", replacements,
                     "the same, also of keys that are given already")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->allow_extra_args(false)
        ->group(""); // For commands that train under plans of their own.
    verb->add_flag("--reference", compile.isReference,
                   "the unoptimised program that tests compare with");
    verb->add_flag("--no-cache", ignoresCache,
                   "neither look into the cache nor add to it");
    verb->add_option("--dump-phases-to", compile.dumpFolder,
                     "folder for the IR after each stage");
  }

  void addRunOptions(CLI::App *verb) {
    verb->add_flag("--profile", runOptions.isProfiled,
                   "time every kernel and print a table");
    verb->add_option("--peak-gflops", runOptions.peakGflops,
                     "f32 peak that the profile compares with; else measured")
        ->check(positiveNumber);
    verb->add_option("--peak-gbs", runOptions.peakGbs,
                     "memory bandwidth that the profile compares with; else "
                     "measured")
        ->check(positiveNumber);
    verb->add_option("-n,--processes", runOptions.processes,
                     "run in this many processes of this machine, by mpirun")
        ->transform(processCount);
    CLI::Option *trace = verb->add_option(
        "--trace", runOptions.trace.path,
        "file for a trace of all devices, for Perfetto and Chrome");
    verb->add_option("--trace-steps", traceSteps,
                     "the steps to trace, FIRST:LAST; one may be missing")
        ->needs(trace);
    verb->add_option("--losses", runOptions.losses,
                     "file that gets one line per step");
    verb->add_option("--steps", steps, "training.steps: how long to train")
        ->transform(stepCount);
    verb->add_option("--stop-after", runOptions.lastStep,
                     "end after this step, under the schedule of all")
        ->transform(stepCount)
        ->group(""); // For commands that compare the first steps of plans.
    CLI::Option *resume = verb->add_option(
        "--resume", runOptions.resume,
        "auto (the newest intact checkpoint of the run folder), none, or the "
        "path of a checkpoint or of a run [auto if the config has a checkpoint "
        "section, else none]");
    verb->add_flag("--fresh", isFresh,
                   "start from step 0, as --resume=none; an earlier run is set "
                   "aside")
        ->excludes(resume);
    CLI::Option *folder = verb->add_option(
        "--run-folder", runFolder,
        "where metrics and checkpoints go; else runs/ and the name of the "
        "config or artifact");
    verb->add_flag("--no-run-folder", keepsNothing,
                   "keep neither metrics nor trained weights")
        ->excludes(folder);
  }

  void addTrain() {
    train = addVerb("train", "compile if needed, then run");
    addConfig(train);
    addRunOptions(train);
  }

  void addCompile() {
    compileVerb = addVerb("compile", "compile a config to an artifact");
    addConfig(compileVerb);
    compileVerb->add_option("-o,--output", compile.output, "artifact to write")
        ->required();
  }

  void addRun() {
    runVerb = addVerb("run", "run an artifact");
    runVerb->add_option("ARTIFACT", runOptions.artifact, "file to run")
        ->required();
    runVerb->add_option("key=value", runOptions.overrides,
                        "values that replace those of the artifact's config; "
                        "kiln help config marks the keys with *");
    runVerb
        ->add_option("--name", runOptions.name, "the artifact's, in messages")
        ->group(""); // For commands that run an artifact of their own.
    addRunOptions(runVerb);
  }

  void addVerify() {
    verify = addVerb("verify", "train under many plans and compare the losses");
    addConfig(verify);
    verify->add_option("--plans", plans,
                       "all, or how many, chosen to differ in most ways [12]");
    verify->add_option("--steps", steps, "steps of each plan [5]")
        ->transform(stepCount);
  }

  void addRest() {
    inspect = addVerb("inspect", "show what an artifact holds");
    inspect->add_option("ARTIFACT", runOptions.artifact, "file to show")
        ->required();
    inspect->add_flag("--json", isJson, "print JSON");
    inspect->add_flag("--kernels", isListingKernels,
                      "list the kernels with their tuning parameters");
    cache = addVerb("cache", "list, measure or clear the compile cache");
    cache->add_option("ACTION", word, "list, size or clear");
    checkpoint = addVerb("checkpoint", "look after the checkpoints of runs");
    checkpoint->add_option("ACTION", word, "list, verify, diff or export");
    checkpoint->add_option("PATH", paths, "checkpoints, or folders of runs");
    checkpoint->add_option("-o,--output", compile.output,
                           "file for the exported weights");
    checkpoint->add_option("--dtype", dtype,
                           "f32, bf16 or f16: type of exported weights");
    doctor = addVerb("doctor", "check this machine");
    help = addVerb("help", "explain a topic");
    help->add_option("TOPIC", word, "config, env or exit-codes");
  }

  void printHelp() {
    if (app.get_subcommands().empty())
      fputs(mainHelp().c_str(), stdout);
    else
      fputs(app.get_subcommands().front()->help("kiln").c_str(), stdout);
  }

  /// Every name that an unknown word may have been meant for.
  std::vector<std::string> knownWords(const std::string &stranger) {
    std::vector<CLI::App *> chosen = app.get_subcommands();
    std::vector<std::string> words;
    if (chosen.empty() && stranger.front() != '-') {
      for (CLI::App *verb : app.get_subcommands(nullptr))
        words.push_back(verb->get_name());
      return words;
    }
    CLI::App *verb = chosen.empty() ? &app : chosen.front();
    for (const CLI::Option *option : verb->get_options())
      for (const std::string &name : option->get_lnames())
        words.push_back("--" + name);
    return words;
  }

  bool reportStrangers() {
    std::vector<std::string> strangers = app.remaining(true);
    // CLI11 leaves the mark after which no word is an option.
    if (auto mark = std::find(strangers.begin(), strangers.end(), "--");
        mark != strangers.end())
      strangers.erase(mark);
    bool hasVerb = !app.get_subcommands().empty();
    for (const std::string &stranger : strangers) {
      if (stranger.empty()) {
        printError("found an empty argument");
        continue;
      }
      bool isFlag = stranger.front() == '-';
      // Words after an unknown verb cannot be judged.
      if (!hasVerb && !isFlag && &stranger != &strangers.front())
        break;
      std::string word = stranger.substr(0, stranger.find('='));
      printError(std::string(isFlag    ? "unknown option '"
                             : hasVerb ? "unexpected argument '"
                                       : "unknown command '") +
                 stranger + "'" +
                 didYouMean(nearestWord(word, knownWords(stranger))));
    }
    return !strangers.empty();
  }

  /// Steps counted from 1: `10:12`, `10:`, `:12`, or `10` alone.
  static std::optional<StepRange> parseSteps(std::string_view text) {
    StepRange range{.first = 1};
    size_t colon = text.find(':');
    if (text == ":")
      return std::nullopt;
    bool isOne = colon == text.npos;
    std::string_view parts[] = {text.substr(0, colon),
                                isOne ? text : text.substr(colon + 1)};
    for (auto [part, number] : {std::pair(parts[0], &range.first),
                                std::pair(parts[1], &range.last)}) {
      const char *end = part.data() + part.size();
      auto [stop, error] = std::from_chars(part.data(), end, *number);
      if (part.empty() ? isOne : error != std::errc() || stop != end)
        return std::nullopt;
    }
    return 1 <= range.first && range.first <= range.last ? std::optional(range)
                                                         : std::nullopt;
  }

  /// Completes the options from each other. Returns an exit code.
  int resolveOptions() {
    if (isFresh)
      runOptions.resume = "none";
    if (!traceSteps.empty()) {
      std::optional<StepRange> range = parseSteps(traceSteps);
      if (!range) {
        printError("--trace-steps: found '" + traceSteps +
                   "', wanted FIRST:LAST, such as 10:12, counted from 1");
        return exitUsage;
      }
      runOptions.trace.steps = *range;
    }
    std::vector<std::string> &overrides =
        runVerb->parsed() ? runOptions.overrides : compile.overrides;
    bool isLength = steps != 0 && !verify->parsed();
    if (std::string conflicts = findConflicts(overrides, isLength);
        !conflicts.empty()) {
      fputs(conflicts.c_str(), stderr);
      return exitUsage;
    }
    if (isLength)
      overrides.push_back("training.steps=" + std::to_string(steps));
    compile.overrides.insert(compile.overrides.end(), replacements.begin(),
                             replacements.end());
    compile.usesCache = !ignoresCache;
    if (!keepsNothing)
      runOptions.runFolder =
          runFolder.empty()
              ? "runs/" + std::filesystem::path(train->parsed()
                                                    ? compile.config
                                                    : runOptions.artifact)
                              .stem()
                              .string()
              : runFolder;
    return 0;
  }

  int dispatch() {
    // No verb may print into the files of a run.
    if (Status status = CommandFiles().check(); !status.ok()) {
      printError(status.message());
      return status.exitCode();
    }
    if (int code = resolveOptions())
      return code;
    if (train->parsed())
      return runTrainCommand(compile, runOptions);
    if (compileVerb->parsed())
      return runCompileCommand(compile);
    if (verify->parsed())
      return runVerifyCommand(compile, plans, steps ? steps : 5);
    if (runVerb->parsed())
      return runRunCommand(runOptions);
    if (inspect->parsed())
      return runInspectCommand(runOptions.artifact, isJson, isListingKernels);
    if (cache->parsed())
      return runCacheCommand(word.empty() ? "list" : word);
    if (checkpoint->parsed())
      return runCheckpointCommand(word.empty() ? "list" : word, paths,
                                  compile.output, dtype);
    if (doctor->parsed())
      return runDoctorCommand();
    if (help->parsed())
      return runHelpCommand(word);
    fputs(mainHelp().c_str(), stderr);
    return exitUsage;
  }

  CLI::App app{"kiln"};
  CLI::App *train, *compileVerb, *runVerb, *verify, *inspect, *cache,
      *checkpoint, *doctor, *help;
  CompileArguments compile;
  RunOptions runOptions;
  std::string word, runFolder, plans = "12", traceSteps, dtype;
  std::vector<std::string> paths, replacements;
  bool keepsNothing = false, isHelp = false;
  uint64_t steps = 0;
  bool isJson = false, isListingKernels = false;
  bool ignoresCache = false, isFresh = false;
};

} // namespace
} // namespace kiln

/// A file that is opened later must not get the number of a standard stream
/// that was closed: log and errors would be written into it. Opened the wrong
/// way round, so that using the stream is an error still.
static void holdStandardStreams() {
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0)
      (void)open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/// Whether standard output is a pipe whose reader has gone, such as head, which
/// has seen what it wanted.
static bool hasReaderLeft() {
  pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR);
}

int main(int argc, char **argv) {
  holdStandardStreams();
  // A reader of the output that goes must not cost a run, an artifact or a
  // verification.
  std::signal(SIGPIPE, SIG_IGN);
  // A write past a file-size limit must be an I/O error like any other.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    kiln::CommandLine line;
    int code = line.run(argc, argv);
    bool isLost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
    bool isUnwanted = hasReaderLeft();
    // Some file systems report a full disk only when a file is closed.
    isLost |= std::fclose(stdout) != 0;
    if (code != 0 || !isLost || isUnwanted || !line.printsResult())
      return code;
    kiln::printError("standard output: cannot write; the result is incomplete");
    return static_cast<int>(kiln::Code::io);
  } catch (const std::bad_alloc &) {
    fputs("kiln: error: out of memory\n", stderr); // Without any of it.
    return static_cast<int>(kiln::Code::noPlan);
  } catch (const std::exception &error) {
    kiln::printError(error.what());
    return 1;
  }
}
