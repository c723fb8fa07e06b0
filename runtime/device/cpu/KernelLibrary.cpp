// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/device/cpu/KernelLibrary.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

namespace kiln::cpu {

static Status failIo(const char *action) {
  return Status(Code::io, std::string("cannot ") + action +
                              " memory for kernels: " + std::strerror(errno));
}

static Status fill(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return failIo("write");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  // After this no process can change the verified code, not even this one.
  if (::fcntl(file, F_ADD_SEALS,
              F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return failIo("seal");
  return Status();
}

Expected<KernelLibrary> KernelLibrary::load(std::span<const std::byte> bytes) {
  // A program of copies alone has no code of its own.
  if (bytes.empty())
    return KernelLibrary(-1, nullptr);
  int file = ::memfd_create("kiln-kernels", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0)
    return failIo("create");
  KernelLibrary library(file, nullptr);
  if (Status status = fill(file, bytes); !status.ok())
    return status;
  std::string path = "/proc/self/fd/" + std::to_string(file);
  library.handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library.handle_)
    return Status(Code::inputRejected,
                  std::string("kernels cannot be loaded: ") + ::dlerror());
  return library;
}

KernelLibrary::KernelLibrary(KernelLibrary &&other) noexcept
    : file_(std::exchange(other.file_, -1)),
      handle_(std::exchange(other.handle_, nullptr)) {}

KernelLibrary &KernelLibrary::operator=(KernelLibrary &&other) noexcept {
  std::swap(file_, other.file_);
  std::swap(handle_, other.handle_);
  return *this;
}

KernelLibrary::~KernelLibrary() {
  // The descriptor outlives the handle: dlopen finds loaded libraries by path,
  // and would take a later memfd with the same number for this one.
  if (handle_)
    ::dlclose(handle_);
  if (file_ >= 0)
    ::close(file_);
}

// dlsym also finds symbols of the libraries that this one needs, such as the C
// library, and data: neither is a kernel.
StageFunction KernelLibrary::find(const char *symbol) const {
  void *address = handle_ ? ::dlsym(handle_, symbol) : nullptr;
  if (!address)
    return nullptr;
  Dl_info info;
  const ElfW(Sym) *entry = nullptr;
  link_map *own = nullptr, *owner = nullptr;
  bool isFound =
      ::dladdr1(address, &info,
                const_cast<void **>(reinterpret_cast<const void **>(&entry)),
                RTLD_DL_SYMENT) != 0 &&
      ::dladdr1(address, &info, reinterpret_cast<void **>(&owner),
                RTLD_DL_LINKMAP) != 0 &&
      ::dlinfo(handle_, RTLD_DI_LINKMAP, &own) == 0;
  bool isKernel = isFound && owner == own && entry &&
                  info.dli_saddr == address &&
                  ELF64_ST_TYPE(entry->st_info) == STT_FUNC;
  return isKernel ? reinterpret_cast<StageFunction>(address) : nullptr;
}

} // namespace kiln::cpu
