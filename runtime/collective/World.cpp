// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/collective/World.h"
#include "runtime/collective/Group.h"

#include <csignal>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <sys/prctl.h>

namespace kiln {

std::string findMpiLibrary() {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path command = fs::read_symlink("/proc/self/exe", error);
  for (const char *place : {"../lib/libkiln_mpi.so", "libkiln_mpi.so"}) {
    fs::path path = (command.parent_path() / place).lexically_normal();
    if (fs::exists(path, error))
      return path.string();
  }
  return "";
}

Expected<std::unique_ptr<World>> World::open() {
  const char *size = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (!size || std::atoi(size) <= 1)
    return std::unique_ptr<World>();
  std::string path = findMpiLibrary();
  if (path.empty())
    return Status(Code::failed, "started by mpirun, but this kiln was built "
                                "without Open MPI; install libopenmpi-dev and "
                                "build again");
  // Global, because Open MPI opens components that look for its own symbols.
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    return Status(Code::failed, path + ": " + ::dlerror());
  auto *open =
      reinterpret_cast<OpenWorldFunction *>(::dlsym(library, openWorldSymbol));
  if (!open)
    return Status(Code::failed, path + ": " + ::dlerror());
  Expected<CollectiveSettings> settings = CollectiveSettings::fromEnvironment();
  if (!settings.ok())
    return settings.status();
  // mpirun is the parent on this machine. If it is killed outright, nothing
  // else would end its ranks.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string error;
  std::unique_ptr<World> world(open(settings->limit, error));
  if (!world)
    return Status(Code::failed, error);
  return world;
}

} // namespace kiln
