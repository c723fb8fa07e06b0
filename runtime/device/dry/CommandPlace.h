// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_DRY_COMMANDPLACE_H
#define KILN_RUNTIME_DEVICE_DRY_COMMANDPLACE_H

#include "runtime/Status.h"
#include "runtime/artifact/Artifact.h"

namespace kiln::dry {

/// Position of a command, for messages.
struct CommandPlace {
  const artifact::Index *index;
  const artifact::Program *program;
  const artifact::Phase *phase;
  uint32_t number;

  const artifact::Command &command() const {
    return *phase->commands()->Get(number);
  }
  /// "device 3, program 'train', phase 'step', command 12 (all_gather w)".
  std::string describe(uint32_t device) const {
    return "device " + std::to_string(device) + ", program '" +
           program->name()->str() + "', phase '" + phase->name()->str() +
           "', command " + std::to_string(number) + " (" +
           nameOf(command(), *index) + ")";
  }
  Status violation(uint32_t device, const std::string &message) const {
    return Status(Code::internal, describe(device) + ": " + message);
  }
};

} // namespace kiln::dry

#endif // KILN_RUNTIME_DEVICE_DRY_COMMANDPLACE_H
