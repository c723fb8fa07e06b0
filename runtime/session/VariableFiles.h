// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Moves tensors between the variables of a session and files.
#ifndef KILN_RUNTIME_SESSION_VARIABLEFILES_H
#define KILN_RUNTIME_SESSION_VARIABLEFILES_H

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/session/Session.h"

namespace kiln {

/// Whether a variable is part of the model, as opposed to its training.
bool isWeight(const artifact::Variable &variable);

/// The names under which public libraries know each weight.
std::map<std::string, std::vector<std::string>>
publicNamesOf(const artifact::Index &index);

/// The variables' values at the time of writing, which fails with `notFinite`
/// on one that is not. The session must outlive the sources.
struct VariableSources {
  std::vector<TensorSource> weights, others;
};
VariableSources collectVariables(const Session &session);

/// Gives every variable its value from a checkpoint; `inputRejected` with a
/// list of all differences if it is of another model, and then nothing has
/// changed.
/// `notFinite` with the first element that is not, as writing them does.
Status checkVariables(const Session &session);

Status restoreVariables(const Checkpoint &checkpoint, Session &session);

/// Whether the weights of an index have their values in a file with public
/// names; `inputRejected` with a list of all missing, extra or differently
/// shaped tensors.
Status checkWeights(const Safetensors &file, const artifact::Index &index);

/// Gives every weight its value from a file with public names, in any floating
/// type; `inputRejected` with a list of all missing, extra or differently
/// shaped tensors, and then nothing has changed.
Status readWeights(const Safetensors &file, Session &session);

} // namespace kiln

#endif // KILN_RUNTIME_SESSION_VARIABLEFILES_H
