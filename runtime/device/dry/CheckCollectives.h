// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_DEVICE_DRY_CHECKCOLLECTIVES_H
#define KILN_RUNTIME_DEVICE_DRY_CHECKCOLLECTIVES_H

#include "runtime/Status.h"
#include "runtime/artifact/Artifact.h"

#include <vector>

namespace kiln::dry {

/// Checks that a program, by its number, ends on all devices of the mesh: the
/// members of every group start the same collectives (kind, element type,
/// sizes) in the same order, and no device waits for one that waits for it.
/// Devices of one image need no comparison with each other: it runs the
/// collectives of the images against each other, not the commands.
Status checkCollectives(const Artifact &artifact, uint32_t program);

/// Bytes that each member of a collective receives from the others, by its
/// number in the group.
std::vector<uint64_t> countReceived(const artifact::Collective &collective,
                                    uint32_t members);

} // namespace kiln::dry

#endif // KILN_RUNTIME_DEVICE_DRY_CHECKCOLLECTIVES_H
