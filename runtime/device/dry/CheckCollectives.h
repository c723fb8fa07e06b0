// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_DRY_CHECKCOLLECTIVES_H
#define KILN_RUNTIME_DEVICE_DRY_CHECKCOLLECTIVES_H

#include "runtime/Status.h"
#include "runtime/artifact/Artifact.h"

#include <vector>

namespace kiln::dry {

/// Checks that a program, by its index, ends on all devices of the mesh: the
/// members of every group start the same collectives (kind, element type,
/// sizes) in the same order, and no devices deadlock. Devices of one
/// image need no comparison: it runs the collectives of the images against
/// each other, not the commands.
Status checkCollectives(const Artifact &artifact, uint32_t program);

/// Bytes that each member of a collective receives from other members, by
/// member index.
std::vector<uint64_t> countReceived(const artifact::Collective &collective,
                                    uint32_t members);

} // namespace kiln::dry

#endif // KILN_RUNTIME_DEVICE_DRY_CHECKCOLLECTIVES_H
