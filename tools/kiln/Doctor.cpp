// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Cache.h"
#include "compiler/config/CacheKey.h"
#include "compiler/config/ReadValue.h"
#include "tools/kiln/Commands.h"
#include "tools/kiln/CompilerProcess.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace kiln {

namespace {

/// One line of the report; a failure is something that Kiln cannot do without.
void print(const char *verdict, const char *subject, const std::string &text) {
  printf("%-5s %-10s %s\n", verdict, subject, text.c_str());
}

std::string availableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  uint64_t kibibytes = 0, total = 0, available = 0;
  while (file >> name >> kibibytes >> unit) {
    if (name == "MemTotal:")
      total = kibibytes;
    if (name == "MemAvailable:")
      available = kibibytes;
    // Further down are lines without a unit.
    if (available)
      break;
  }
  return printBytes(available << 10) + " of " + printBytes(total << 10) +
         " available";
}

void checkProcessor() {
  std::string processor = hostProcessor();
  size_t end = processor.find('\n');
  std::string flags = " " + processor.substr(end + 1) + " ";
  std::string found;
  for (const char *feature :
       {"avx2", "fma", "avx512f", "avx512_bf16", "amx_tile"})
    if (flags.find(" " + std::string(feature) + " ") != flags.npos)
      found += " " + std::string(feature);
  size_t start = processor.find_first_not_of(' ');
  print("ok", "processor", processor.substr(start, end - start) + "," + found);
  print("ok", "cores", std::to_string(availableCores()) + " available");
}

bool checkCompiler() {
  std::string library = findCompilerLibrary();
  if (library.empty()) {
    print("FAIL", "compiler", "libKilnCompiler.so is not beside the command");
    return false;
  }
  fflush(stdout);
  bool opens = canOpenCompiler(library);
  print(opens ? "ok" : "FAIL", "compiler", library);
  return opens;
}

void checkCache() {
  std::string folder = Cache::defaultFolder();
  struct stat status;
  if (folder.empty())
    print("warn", "cache", "none: HOME is not set");
  else if (stat(folder.c_str(), &status) != 0)
    print("ok", "cache", folder + " (empty)");
  else if (status.st_uid != geteuid() || (status.st_mode & 022))
    print("warn", "cache",
          folder + " can be written by others; it is not used");
  else if (access(folder.c_str(), W_OK) != 0)
    print("warn", "cache", folder + " cannot be written");
  else
    print("ok", "cache",
          folder + ", " +
              std::to_string(Cache(folder, printWarning).list().size()) +
              " entries");
}

void checkMpi() {
  std::string library = findMpiLibrary();
  print(library.empty() ? "warn" : "ok", "mpi",
        library.empty() ? "none: this kiln was built without Open MPI, so it "
                          "runs in one process"
                        : library);
}

void checkDisk() {
  struct statvfs status;
  std::error_code error;
  std::string folder = std::filesystem::current_path(error).string();
  if (error || statvfs(folder.c_str(), &status) != 0)
    print("warn", "disk", "the working directory is gone");
  else
    print("ok", "disk",
          printBytes(uint64_t(status.f_bavail) * status.f_frsize) +
              " free in " + folder);
}

} // namespace

int runDoctorCommand() {
  utsname system;
  uname(&system);
  print("ok", "kiln", KILN_VERSION);
  print("ok", "system",
        std::string(system.sysname) + " " + system.release + " " +
            system.machine);
  checkProcessor();
  print("ok", "memory", availableMemory());
  bool isGood = checkCompiler();
  checkMpi();
  checkCache();
  checkDisk();
  return isGood ? 0 : 1;
}

} // namespace kiln
