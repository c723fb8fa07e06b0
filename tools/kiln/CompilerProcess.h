// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_TOOLS_KILN_COMPILER_PROCESS_H
#define KILN_TOOLS_KILN_COMPILER_PROCESS_H

#include "tools/kiln/InputFiles.h"

#include <functional>
#include <string>

namespace kiln {

/// While one lives, SIGINT, SIGTERM and SIGHUP end the running child, if any,
/// and are noted; the owner of the guard then ends, and removes its files.
class SignalGuard {
public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard &) = delete;

  /// The last signal; 0 for none.
  static int received();
};

/// Runs a function in a child, which ends with this process. Returns the status
/// from waitpid, or -1 if there was no child. A guarded signal is passed on to
/// a child that has something to remove, otherwise the child is ended at once.
enum class ChildState { none, toRemove };
int runInChild(const std::function<int()> &function,
               ChildState state = ChildState::none);

/// Path of libKilnCompiler.so: $KILN_COMPILER_LIBRARY, or beside the command;
/// empty when there is none.
std::string findCompilerLibrary();

/// Compiles in a child process, so that neither LLVM nor its crashes come into
/// this one. A signal that stops the command stops the child too. Returns the
/// child's exit code, 128 + n after a signal from the user, and exitInternal
/// when the child crashed. The model must fit the files, unless they are null.
int compileInChild(const std::string &library, const CompileArguments &options,
                   const std::string &output,
                   const InputFiles *files = nullptr);

/// Whether a child can open the library; prints why not.
bool canOpenCompiler(const std::string &library);

} // namespace kiln

#endif
