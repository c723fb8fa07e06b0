// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_ARTIFACT_ARTIFACTCHECKS_H
#define KILN_RUNTIME_ARTIFACT_ARTIFACTCHECKS_H

#include "runtime/Status.h"
#include "runtime/artifact/Artifact_generated.h"

namespace kiln {

/// Checks facts beyond the flatbuffer's own verifier, so that the executor may
/// trust every number. The message names the first fault.
Status checkMeaning(const artifact::Index &index);

} // namespace kiln

#endif // KILN_RUNTIME_ARTIFACT_ARTIFACTCHECKS_H
