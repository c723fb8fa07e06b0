// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef KILN_COMPILER_BACKEND_TUNING_H
#define KILN_COMPILER_BACKEND_TUNING_H

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace kiln {

/// Parameters of one kernel that decide how fast its code is and never what it
/// computes: tiles, items, shares of caches. Whatever fixes an order of
/// summation belongs to the kernel's identity and is a constant of its family.
/// Empty for a family's defaults.
using TuningRecord = llvm::SmallVector<std::pair<std::string, int64_t>>;

/// "tile_rows=6 tile_vectors=2".
std::string printTuning(const TuningRecord &record);

mlir::DictionaryAttr toAttribute(mlir::MLIRContext *context,
                                 const TuningRecord &record);
TuningRecord toTuning(mlir::DictionaryAttr attribute);

/// A family's parameters are a struct with its defaults and a function
/// `visit(self, field)` that calls field(name, member) for each of them.
template <typename Tuning> TuningRecord toRecord(const Tuning &tuning) {
  TuningRecord record;
  Tuning::visit(tuning, [&](llvm::StringRef name, int64_t value) {
    record.push_back({name.str(), value});
  });
  return record;
}

/// Overwrites the parameters that the record names. Returns the name of one
/// that the family does not have.
template <typename Tuning>
std::optional<std::string> applyRecord(const TuningRecord &record,
                                       Tuning &tuning) {
  for (const auto &[wanted, value] : record) {
    bool isKnown = false;
    Tuning::visit(tuning, [&](llvm::StringRef name, int64_t &member) {
      if (name != wanted)
        return;
      member = value;
      isKnown = true;
    });
    if (!isKnown)
      return wanted;
  }
  return std::nullopt;
}

} // namespace kiln

#endif // KILN_COMPILER_BACKEND_TUNING_H
