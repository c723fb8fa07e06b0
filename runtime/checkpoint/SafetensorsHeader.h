// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_RUNTIME_CHECKPOINT_SAFETENSORSHEADER_H
#define KILN_RUNTIME_CHECKPOINT_SAFETENSORSHEADER_H

#include "runtime/checkpoint/Safetensors.h"

namespace kiln {

struct SafetensorsHeader {
  std::vector<Safetensors::Entry> entries; // By name.
  std::map<std::string, std::string> metadata;
};

/// Reads the header's JSON. The tensors must tile `dataBytes` exactly. The
/// message of a failure does not name the file.
Expected<SafetensorsHeader> parseSafetensorsHeader(std::string_view text,
                                                   uint64_t dataBytes);

} // namespace kiln

#endif // KILN_RUNTIME_CHECKPOINT_SAFETENSORSHEADER_H
