// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Several processes under mpirun: the same results as one, and the outcome when
// one is lost, hangs or is told to stop.
#include "runtime/session/Signals.h"
#include "test/runtime/SampleArtifact.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace kiln::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

/// How often each fault is made.
int rounds() { return std::getenv("KILN_TEST_LONG") ? 20 : 3; }

/// A command of the shell in a process group of its own, which does not outlive
/// this object: `kiln run -n` takes its ranks with it.
class Child {
public:
  explicit Child(const std::string &line) : process_(fork()) {
    if (process_ == 0) {
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(99);
    }
    setpgid(process_, process_); // In parent and child: either may come first.
  }
  ~Child() {
    if (process_ <= 0)
      return;
    kill(-process_, SIGKILL);
    finish();
  }
  Child(const Child &) = delete;

  void signal(int number) const { kill(process_, number); }

  /// Waits for its end and returns the exit code.
  int finish() {
    int status = 0;
    waitpid(std::exchange(process_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

private:
  pid_t process_;
};

class RanksTest : public testing::Test {
protected:
  RanksTest() {
    writeFile(folder / "text", sampleText(3000));
    write("sample", shardedTraining(folder / "text", 4));
    unsetenv("KILN_FAULT");
    unsetenv("KILN_COLLECTIVE_TIMEOUT");
  }

  void write(const std::string &name, const artifact::IndexT &index) {
    static const std::vector<std::byte> kernels =
        compileKernels(sampleKernels());
    std::vector<std::byte> bytes = pack(index, kernels);
    writeFile(folder / name,
              {reinterpret_cast<const char *>(bytes.data()), bytes.size()});
  }

  /// Starts a command in the folder; its output goes to `out` and `err`.
  Child start(const std::string &command) {
    return Child("cd " + folder.path() + " && exec " + command +
                 " >out 2>err </dev/null");
  }

  int run(const std::string &command) { return start(command).finish(); }

  /// Two processes, each with its own arguments, or more of the second kind.
  int runTwo(const std::string &first, const std::string &second,
             int others = 1) {
    std::string kiln = " '" KILN_COMMAND "' run --no-run-folder ";
    return runMpi("-n 1" + kiln + first + " : -n " + std::to_string(others) +
                  kiln + second);
  }

  /// Two processes in folders of their own.
  int runIn(const std::string &first, const std::string &second,
            const std::string &arguments) {
    std::string kiln = " '" KILN_COMMAND "' run --no-run-folder " + arguments;
    return runMpi("-n 1 -wdir " + (folder / first) + kiln + " : -n 1 -wdir " +
                  (folder / second) + kiln);
  }

  int runMpi(const std::string &arguments) {
    std::string root = geteuid() == 0 ? "--allow-run-as-root " : "";
    return run("mpirun -q --oversubscribe --bind-to none " + root + arguments);
  }

  std::string err() { return readFile(folder / "err"); }

  /// Processes that run an artifact of the folder, by rank; -1 for one without
  /// a rank.
  std::map<int, pid_t> findRanks() {
    std::map<int, pid_t> ranks;
    for (const auto &entry : fs::directory_iterator("/proc")) {
      std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos)
        continue;
      std::string words = readFile(entry.path() / "cmdline"),
                  settings = readFile(entry.path() / "environ");
      std::error_code error;
      if (fs::read_symlink(entry.path() / "cwd", error) != folder.path() ||
          words.find("sample") == std::string::npos)
        continue;
      size_t at = settings.find("OMPI_COMM_WORLD_RANK=");
      ranks[at == std::string::npos ? -1
                                    : std::atoi(settings.c_str() + at + 21)] =
          std::atoi(name.c_str());
    }
    return ranks;
  }

  void findRank(int rank, pid_t &process) {
    std::map<int, pid_t> ranks = findRanks();
    ASSERT_TRUE(ranks.contains(rank)) << "rank " << rank << " is gone\n"
                                      << err();
    process = ranks[rank];
  }

  static void findParent(pid_t process, pid_t &parent) {
    // The process, its name in parentheses, its state, its parent.
    std::ifstream("/proc/" + std::to_string(process) + "/stat")
            .ignore(4096, ')')
            .ignore(3) >>
        parent;
    ASSERT_GT(parent, 1);
  }

  void signalRank(int rank, int number) {
    pid_t process = 0;
    ASSERT_NO_FATAL_FAILURE(findRank(rank, process));
    kill(process, number);
  }

  void countResidentPages(int rank, uint64_t &pages) {
    pid_t process = 0;
    ASSERT_NO_FATAL_FAILURE(findRank(rank, process));
    std::ifstream file("/proc/" + std::to_string(process) + "/statm");
    uint64_t all = 0;
    ASSERT_TRUE(file >> all >> pages) << "rank " << rank << " is gone";
  }

  size_t countLosses() {
    std::string text = readFile(folder / "losses");
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  /// Returns when training has reached some step.
  void awaitStep(size_t step) {
    Clock::time_point end = Clock::now() + std::chrono::seconds(60);
    while (countLosses() < step && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_GE(countLosses(), step) << err();
  }

  /// A run without end, whose steps take a while.
  Child startLong(const std::string &more = "--no-run-folder",
                  int processes = 4, int delay = 2000) {
    fs::remove(folder / "losses");
    setenv("KILN_FAULT", ("link:delay_us=" + std::to_string(delay)).c_str(), 1);
    return start("'" KILN_COMMAND "' run -n " + std::to_string(processes) +
                 " sample --stop-after 1000000 --losses losses " + more);
  }

  /// Returns when a signal is no longer a repeat of one sent before.
  static void awaitAnotherRequest() {
    std::this_thread::sleep_for(sameRequest + std::chrono::milliseconds(100));
  }

  /// The ranks reported not to have come, by any rank.
  std::set<std::string> findBlame() {
    std::set<std::string> ranks;
    std::string text = err();
    const std::regex blame("timed out: (.*?) ha(s|ve) not come"),
        name("rank [0-9]+");
    for (std::sregex_iterator line(text.begin(), text.end(), blame), end;
         line != end; ++line) {
      std::string names = (*line)[1];
      for (std::sregex_iterator each(names.begin(), names.end(), name);
           each != end; ++each)
        ranks.insert(each->str());
    }
    return ranks;
  }

  void expectNobodyLeft() {
    Clock::time_point end = Clock::now() + std::chrono::seconds(5);
    while (!findRanks().empty() && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_THAT(findRanks(), testing::IsEmpty());
  }

  TemporaryFolder folder;
};

// Bit for bit: elements are combined in the order of the members, on every
// transport. Checkpoints are complete, whatever the sharding.
TEST_F(RanksTest, GiveTheSameLossesAndCheckpointsAsOneProcess) {
  ASSERT_EQ(run("'" KILN_COMMAND "' run sample --losses one --run-folder run1"),
            0)
      << err();
  for (const char *count : {"2", "4"}) {
    fs::remove_all(folder / "run2");
    ASSERT_EQ(run(std::string("'" KILN_COMMAND "' run -n ") + count +
                  " sample --losses many --run-folder run2"),
              0)
        << err();
    EXPECT_EQ(readFile(folder / "many"), readFile(folder / "one"));
    for (const char *step : {"step-000005", "step-000010"}) {
      std::string file =
          std::string("/checkpoints/") + step + "/model.safetensors";
      EXPECT_FALSE(readFile(folder / ("run1" + file)).empty());
      EXPECT_EQ(readFile(folder / ("run2" + file)),
                readFile(folder / ("run1" + file)));
    }
  }
}

// The artifact states the bytes that a collective moves; Open MPI's profiling
// interface counts those received.
TEST_F(RanksTest, MoveExactlyThePlannedBytes) {
  constexpr uint64_t elements = 300001, steps = 3;
  artifact::IndexT index = shardedTraining(folder / "text", 4);
  image(index).arena_bytes = image(index).live_bytes =
      image(index).memory[0]->bytes = 8 << 20;
  artifact::ProgramT &train = *image(index).programs[0];
  addCollective(train, artifact::CollectiveKind::reduce_scatter, {0},
                {artifact::Piece(artifact::Place(1 << 20, 0),
                                 artifact::Place(4 << 20, 0), 1, elements, 1)},
                0, 4 * 3 * elements);
  addWait(train, 0);
  write("sample", index);
  setenv("KILN_TEST_COUNTS", (folder / "counts").c_str(), 1);
  // The names of LD_PRELOAD end at a space, which that of the tree may have.
  fs::create_symlink(KILN_COUNT_MESSAGES, folder / "count.so");
  ASSERT_EQ(run("env LD_PRELOAD=" + (folder / "count.so") +
                " '" KILN_COMMAND
                "' run -n 4 sample --no-run-folder --stop-after " +
                std::to_string(steps)),
            0)
      << err();
  uint64_t planned = 0, received = 0, sent = 0;
  for (const auto &command : train.phases[0]->commands)
    if (command->action.AsCollective())
      planned += steps * command->bytes;
  for (const char *rank : {"0", "1", "2", "3"}) {
    std::ifstream lines(folder / ("counts." + std::string(rank)));
    uint64_t in = 0, out = 0;
    for (std::string name; lines >> in >> out && std::getline(lines, name);)
      if (name != " agreement of processes") {
        received += in;
        sent += out;
      }
  }
  EXPECT_EQ(received, planned);
  EXPECT_EQ(sent, planned);
}

// 100,000 collectives leak nothing.
TEST_F(RanksTest, DoNotGrowMemory) {
  constexpr size_t steps = 50;
  artifact::IndexT index = shardedTraining(folder / "text", 2);
  artifact::PhaseT &phase = *image(index).programs[0]->phases[0];
  phase.repeat = 4;
  flatbuffers::FlatBufferBuilder bytes;
  bytes.Finish(artifact::Phase::Pack(bytes, &phase));
  const auto *packed =
      flatbuffers::GetRoot<artifact::Phase>(bytes.GetBufferPointer());
  for (size_t collectives = 4; collectives < 100000 / steps; collectives += 4)
    image(index).programs[0]->phases.emplace_back(packed->UnPack());
  write("sample", index);
  Child command = start("'" KILN_COMMAND "' run -n 2 sample --no-run-folder "
                        "--losses losses --stop-after 1000000");
  uint64_t early = 0, late = 0;
  ASSERT_NO_FATAL_FAILURE(awaitStep(5));
  ASSERT_NO_FATAL_FAILURE(countResidentPages(1, early));
  ASSERT_NO_FATAL_FAILURE(awaitStep(5 + steps));
  ASSERT_NO_FATAL_FAILURE(countResidentPages(1, late));
  EXPECT_LE(late, early + 64);
  command.signal(SIGTERM);
  // So many sums of sums have overflowed.
  EXPECT_EQ(command.finish(), 8) << err();
}

TEST_F(RanksTest, GoOnFromACheckpointOfOneProcess) {
  ASSERT_EQ(run("'" KILN_COMMAND "' run sample --losses one --run-folder run1"),
            0);
  ASSERT_EQ(
      run("'" KILN_COMMAND "' run sample --stop-after 5 --run-folder run"), 0);
  ASSERT_EQ(
      run("'" KILN_COMMAND "' run -n 2 sample --losses rest --run-folder run"),
      0)
      << err();
  std::string all = readFile(folder / "one"), rest = readFile(folder / "rest");
  EXPECT_EQ(std::count(rest.begin(), rest.end(), '\n'), 5);
  EXPECT_TRUE(all.ends_with(rest)) << all << rest;
}

TEST_F(RanksTest, RefuseWhatDoesNotFitTogether) {
  EXPECT_EQ(run("'" KILN_COMMAND "' run -n 3 sample --no-run-folder"), 2);
  EXPECT_THAT(err(), HasSubstr("compiled for 4 devices, which 3 processes"));
  EXPECT_EQ(run("'" KILN_COMMAND "' run -n 2 missing --no-run-folder"), 4);
  EXPECT_THAT(err(), HasSubstr("missing"));
  // One process is given another artifact.
  artifact::IndexT other = shardedTraining(folder / "text", 4);
  other.settings->training->seed = 8;
  write("sample-other", other);
  EXPECT_EQ(runTwo("sample", "sample-other"), 4);
  EXPECT_THAT(err(), HasSubstr("rank 1 has another artifact"));
  // The rank that differs is named, not the one compared with the first.
  EXPECT_EQ(runTwo("sample-other", "sample", 3), 4);
  EXPECT_THAT(err(), AllOf(HasSubstr("rank 0 has another artifact"),
                           HasSubstr("than ranks 1, 2 and 3 (")));
}

// The differing lines of configs are printed, not hashes.
TEST_F(RanksTest, SayHowConfigsDiffer) {
  artifact::IndexT other = shardedTraining(folder / "text", 4);
  other.settings->config = "devices:\n  count: 4\n  zero: 3\n";
  write("sample-other", other);
  other.settings->config = "devices:\n  count: 4\n  zero: 1\n";
  write("sample", other);
  EXPECT_EQ(runTwo("sample", "sample-other"), 4);
  EXPECT_THAT(err(), HasSubstr("rank 1 has another config (zero: 3) than rank "
                               "0 (zero: 1)"));
}

// On other machines the same path may be another file of the same size.
TEST_F(RanksTest, CompareWhatIsInFiles) {
  setenv("KILN_COLLECTIVE_TIMEOUT", "20", 1);
  write("sample", shardedTraining("text", 4));
  std::string text = sampleText(3000), other = text;
  std::replace(other.begin(), other.end(), 'a', 'b');
  ASSERT_NE(text, other);
  for (const char *name : {"a", "b"}) {
    fs::create_directory(folder / name);
    writeFile(folder / name + "/text", text);
  }
  EXPECT_EQ(runIn("a", "b", "../sample --stop-after 2"), 0) << err();
  writeFile(folder / "b/text", other);
  EXPECT_EQ(runIn("a", "b", "../sample --stop-after 2"), 4);
  EXPECT_THAT(err(), HasSubstr("rank 1 has another file text ("));
  // Checkpoints of the same step with different contents.
  for (const char *name : {"a", "b"})
    ASSERT_EQ(run("env -C " + (folder / name) +
                  " '" KILN_COMMAND
                  "' run ../sample --stop-after 5 --run-folder run"),
              0)
        << err();
  writeFile(folder / "b/text", text);
  EXPECT_EQ(runIn("a", "b", "../sample --resume run/checkpoints/step-000005"),
            4);
  EXPECT_THAT(err(), HasSubstr("rank 1 has another checkpoint "
                               "run/checkpoints/step-000005 ("));
  EXPECT_EQ(runIn("a", "a", "../sample --resume run/checkpoints/step-000005"),
            0)
      << err();
}

// Ranks that go on would block on those that have ended.
TEST_F(RanksTest, RefuseAnotherCourse) {
  setenv("KILN_COLLECTIVE_TIMEOUT", "20", 1);
  EXPECT_EQ(runTwo("sample --stop-after 2", "sample --stop-after 5", 3), 2);
  EXPECT_THAT(err(),
              HasSubstr("rank 0 has another number of steps (2) than ranks 1, "
                        "2 and 3 (5)"));
  EXPECT_EQ(runTwo("sample", "sample --resume none"), 2);
  EXPECT_THAT(err(), HasSubstr("rank 1 has another --resume (none)"));
}

// Whatever keeps a rank from starting, no rank is blocked, and its reason is
// printed.
TEST_F(RanksTest, NameOneThatCannotStart) {
  setenv("KILN_COLLECTIVE_TIMEOUT", "20", 1);
  EXPECT_EQ(runTwo("sample", "sample --trace missing/trace"), 5);
  EXPECT_THAT(err(), AllOf(HasSubstr("rank 1: "), HasSubstr("missing/trace.1"),
                           Not(HasSubstr("timed out"))));
  EXPECT_EQ(runTwo("sample --trace missing/trace", "sample"), 5);
  EXPECT_THAT(err(),
              AllOf(HasSubstr("missing/trace"), Not(HasSubstr("timed out"))));
  EXPECT_EQ(runTwo("sample", "missing"), 4);
  EXPECT_THAT(err(), HasSubstr("rank 1: missing"));
}

// Whichever process gets the signal, all stop after the same step, and it is
// saved.
TEST_F(RanksTest, StopTogetherOnASignalToOne) {
  for (bool isRank : {true, false}) {
    Child command = startLong("--run-folder run --resume none");
    ASSERT_NO_FATAL_FAILURE(awaitStep(3));
    if (isRank)
      ASSERT_NO_FATAL_FAILURE(signalRank(2, SIGTERM));
    else
      command.signal(SIGTERM);
    EXPECT_EQ(command.finish(), 75) << err();
    EXPECT_THAT(err(), AllOf(HasSubstr("stopped by signal 15 (SIGTERM)"),
                             HasSubstr("a checkpoint is saved")));
    expectNobodyLeft();
  }
}

// As systemd and scancel do: the command, mpirun and the ranks get it at once.
// SIGINT ends mpirun, but a rank that has saved says so.
TEST_F(RanksTest, StopTogetherOnASignalToAll) {
  for (auto [number, delay] :
       {std::pair(SIGTERM, 50000), {SIGHUP, 2000}, {SIGINT, 2000}}) {
    fs::remove_all(folder / "run");
    // A step takes longer than mpirun gives ranks that it ends.
    Child command = startLong("--run-folder run", 2, delay);
    ASSERT_NO_FATAL_FAILURE(awaitStep(1));
    std::map<int, pid_t> ranks = findRanks();
    pid_t mpirun = 0;
    ASSERT_NO_FATAL_FAILURE(findParent(ranks[0], mpirun));
    command.signal(number);
    kill(mpirun, number);
    for (int rank : {0, 1})
      kill(ranks[rank], number);
    EXPECT_EQ(command.finish(), 75) << err();
    EXPECT_THAT(err(), HasSubstr("a checkpoint is saved"));
    expectNobodyLeft();
  }
}

// As one process does, whatever signal the command sends to the ranks.
TEST_F(RanksTest, ExitByTheSignalThatStoppedThem) {
  for (auto [isRank, number] :
       {std::pair(true, SIGTERM), std::pair(false, SIGINT),
        std::pair(false, SIGHUP)}) {
    Child command = startLong("--no-run-folder", 2);
    ASSERT_NO_FATAL_FAILURE(awaitStep(3));
    if (isRank)
      ASSERT_NO_FATAL_FAILURE(signalRank(1, number));
    else
      command.signal(number);
    EXPECT_EQ(command.finish(), 128 + number) << err();
    EXPECT_THAT(err(), AllOf(HasSubstr("stopped by signal " +
                                       std::to_string(number) + " "),
                             HasSubstr("after step"), Not(HasSubstr("lost"))));
    expectNobodyLeft();
  }
}

// Before mpirun runs, before ranks run, before training: a signal is never
// lost.
TEST_F(RanksTest, StopAtAnyMoment) {
  for (int moment = 0; moment < 12; ++moment) {
    fs::remove_all(folder / "run");
    Child command = startLong("--run-folder run", 2);
    // The first moments depend on the processes present, later ones on time.
    Clock::time_point end = Clock::now() + std::chrono::seconds(20);
    while (findRanks().size() < static_cast<size_t>(std::min(moment, 3)) &&
           Clock::now() < end)
      std::this_thread::yield();
    if (moment > 3)
      std::this_thread::sleep_for((moment - 3) * std::chrono::milliseconds(40));
    command.signal(SIGTERM);
    int code = command.finish();
    EXPECT_THAT(code, AnyOf(75, 128 + SIGTERM, -SIGTERM)) << err();
    EXPECT_EQ(err().find("a checkpoint is saved") != std::string::npos,
              code == 75)
        << err();
    if (code > 0) // Else it came before the command had begun.
      EXPECT_THAT(err(), HasSubstr("stopped by signal 15 (SIGTERM)"));
    expectNobodyLeft();
  }
}

// As GNU timeout sends it: to the command and to its process group.
TEST_F(RanksTest, TakeASignalThatRepeatsForOne) {
  Child command = startLong("--run-folder run", 2);
  ASSERT_NO_FATAL_FAILURE(awaitStep(3));
  for (int i = 0; i < 20; ++i) {
    command.signal(i % 2 ? SIGTERM : SIGHUP);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(command.finish(), 75) << err();
  EXPECT_THAT(err(), HasSubstr("a checkpoint is saved"));
  expectNobodyLeft();
}

// The second signal does not wait for the step.
TEST_F(RanksTest, EndAtOnceOnTheSecondSignal) {
  setenv("KILN_FAULT", "link:delay_us=900000000", 1); // No step ends.
  Child command = start("'" KILN_COMMAND "' run -n 2 sample --run-folder run");
  Clock::time_point end = Clock::now() + std::chrono::seconds(20);
  while (!fs::exists(folder / "run/checkpoints/step-000000/kiln.json") &&
         Clock::now() < end)
    std::this_thread::yield();
  awaitAnotherRequest(); // By now the step has begun.
  command.signal(SIGTERM);
  while (err().find("signal again") == std::string::npos && Clock::now() < end)
    std::this_thread::yield();
  command.signal(SIGTERM); // The same request.
  awaitAnotherRequest();
  command.signal(SIGINT);
  EXPECT_EQ(command.finish(), 128 + SIGINT) << err();
  EXPECT_THAT(err(), HasSubstr("stopped by signal 2 (SIGINT)"));
  expectNobodyLeft();
}

// It must not crash an mpirun that is already ending the ranks, either.
TEST_F(RanksTest, EndCleanlyOnASecondSignalThatComesLate) {
  for (int round = 0; round < 2; ++round) {
    // A step takes so long that the second signal is another request.
    Child command = startLong("--run-folder run --resume none", 4, 50000);
    ASSERT_NO_FATAL_FAILURE(awaitStep(1));
    command.signal(SIGINT);
    awaitAnotherRequest();
    Clock::time_point end = Clock::now() + std::chrono::seconds(20);
    while (err().find("a checkpoint is saved") == std::string::npos &&
           Clock::now() < end)
      std::this_thread::yield();
    std::this_thread::sleep_for((1 + round) * std::chrono::milliseconds(100));
    command.signal(SIGINT);
    EXPECT_EQ(command.finish(), 75) << err();
    EXPECT_THAT(err(), Not(AnyOf(HasSubstr("Segmentation"),
                                 HasSubstr("abort is already"))));
    expectNobodyLeft();
  }
}

TEST_F(RanksTest, AreAllStoppedWhenOneIsLost) {
  for (int round = 0; round < rounds(); ++round) {
    Child command = startLong();
    ASSERT_NO_FATAL_FAILURE(awaitStep(3));
    ASSERT_NO_FATAL_FAILURE(signalRank(round % 4, SIGKILL));
    Clock::time_point begin = Clock::now();
    EXPECT_EQ(command.finish(), 6) << err();
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
    EXPECT_THAT(err(),
                HasSubstr("a rank was lost: rank " + std::to_string(round % 4) +
                          " ended with signal 9 (SIGKILL)"));
    expectNobodyLeft();
  }
}

TEST_F(RanksTest, EndWithMpirun) {
  Child command = startLong("--no-run-folder", 2);
  ASSERT_NO_FATAL_FAILURE(awaitStep(3));
  pid_t rank = 0, mpirun = 0;
  ASSERT_NO_FATAL_FAILURE(findRank(0, rank));
  ASSERT_NO_FATAL_FAILURE(findParent(rank, mpirun));
  kill(mpirun, SIGKILL);
  EXPECT_EQ(command.finish(), 6) << err();
  EXPECT_THAT(err(), HasSubstr("mpirun was lost: it ended with signal 9"));
  expectNobodyLeft();
}

// Ranks blocked on one that hangs block each other too: the first to time out
// must blame the right one.
TEST_F(RanksTest, NameOneThatHangs) {
  setenv("KILN_COLLECTIVE_TIMEOUT", "3", 1);
  for (int round = 0; round < rounds(); ++round) {
    int processes = round % 2 ? 2 : 4, stopped = (round + 1) % processes;
    Child command = startLong("--no-run-folder", processes);
    ASSERT_NO_FATAL_FAILURE(awaitStep(3));
    ASSERT_NO_FATAL_FAILURE(signalRank(stopped, SIGSTOP));
    EXPECT_EQ(command.finish(), 7) << err();
    EXPECT_THAT(err(), AnyOf(HasSubstr("'all_reduce data labels ("),
                             HasSubstr("'agreement of processes'")));
    EXPECT_THAT(findBlame(),
                testing::ElementsAre("rank " + std::to_string(stopped)))
        << err();
    expectNobodyLeft();
  }
}

// MPI's start has no time limit.
TEST_F(RanksTest, NameOneThatHangsBeforeTheStart) {
  setenv("KILN_COLLECTIVE_TIMEOUT", "2", 1);
  for (int stopped : {1, 0}) {
    Child command = startLong("--no-run-folder", 2);
    Clock::time_point end = Clock::now() + std::chrono::seconds(20);
    while (!findRanks().contains(stopped) && Clock::now() < end)
      std::this_thread::yield();
    ASSERT_NO_FATAL_FAILURE(signalRank(stopped, SIGSTOP));
    EXPECT_EQ(command.finish(), 7) << err();
    EXPECT_THAT(findBlame(),
                testing::ElementsAre("rank " + std::to_string(stopped)))
        << err();
    expectNobodyLeft();
  }
}

TEST_F(RanksTest, NameAllThatHang) {
  setenv("KILN_COLLECTIVE_TIMEOUT", "3", 1);
  Child command = startLong();
  ASSERT_NO_FATAL_FAILURE(awaitStep(3));
  for (int rank : {1, 2})
    ASSERT_NO_FATAL_FAILURE(signalRank(rank, SIGSTOP));
  EXPECT_EQ(command.finish(), 7) << err();
  // Ranks that are not awaited are mentioned after those blamed.
  EXPECT_THAT(findBlame(), AllOf(testing::IsSubsetOf({"rank 1", "rank 2"}),
                                 Not(testing::IsEmpty())))
      << err();
  EXPECT_THAT(err(), AllOf(HasSubstr("rank 1"), HasSubstr("rank 2"),
                           Not(HasSubstr("all ranks answer"))));
  expectNobodyLeft();
}

TEST_F(RanksTest, LeaveNobodyBehindWhenTheCommandIsKilled) {
  Child command = startLong();
  ASSERT_NO_FATAL_FAILURE(awaitStep(3));
  command.signal(SIGKILL);
  EXPECT_EQ(command.finish(), -SIGKILL);
  expectNobodyLeft();
}

} // namespace
} // namespace kiln::test
