// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_DRY_CHECKHAZARDS_H
#define KILN_RUNTIME_DEVICE_DRY_CHECKHAZARDS_H

#include "runtime/Status.h"
#include "runtime/artifact/Artifact.h"

namespace kiln::dry {

/// Checks that no command touches memory of a collective in flight: until it is
/// waited for, its sources are not written, and its targets neither read nor
/// written. Collectives run in order, so they are not checked against each
/// other. `device` runs the image, and is named in messages.
Status checkHazards(const Artifact &artifact, const artifact::Program &program,
                    uint32_t device);

} // namespace kiln::dry

#endif // KILN_RUNTIME_DEVICE_DRY_CHECKHAZARDS_H
