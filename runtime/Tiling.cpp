// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/Tiling.h"

namespace kiln {

Tiling::Tiling(const Mesh &mesh, const artifact::Variable &variable)
    : mesh_(mesh),
      flatAxes_(variable.flat() ? variable.flat()->axes() : nullptr) {
  const auto &view = viewOf(variable);
  uint64_t local = 1;
  for (uint32_t i = 0; i < view.size(); ++i) {
    const Axes *axes = variable.splits() && variable.splits()->size()
                           ? variable.splits()->Get(i)->axes()
                           : nullptr;
    Cut cut{static_cast<uint64_t>(view.Get(i)), mesh.count(axes)};
    dimensions_.push_back({cut, axes});
    elements_ *= cut.size;
    local *= cut.part();
    parts_ *= cut.count;
  }
  while (!dimensions_.empty() && dimensions_.back().cut.count == 1) {
    inner_ *= dimensions_.back().cut.size;
    dimensions_.pop_back();
  }
  flat_ = {local, mesh.count(flatAxes_)};
  parts_ *= flat_.count;
}

uint32_t Tiling::partOf(uint32_t device) const {
  uint32_t part = 0;
  for (const Dimension &dimension : dimensions_)
    part = part * static_cast<uint32_t>(dimension.cut.count) +
           mesh_.part(device, dimension.axes);
  return part * static_cast<uint32_t>(flat_.count) +
         mesh_.part(device, flatAxes_);
}

uint32_t Tiling::firstDeviceOf(uint32_t part) const {
  auto flats = static_cast<uint32_t>(flat_.count);
  uint32_t device = mesh_.firstDevice(part % flats, flatAxes_);
  part /= flats;
  for (size_t i = dimensions_.size(); i-- > 0;) {
    auto count = static_cast<uint32_t>(dimensions_[i].cut.count);
    device += mesh_.firstDevice(part % count, dimensions_[i].axes);
    part /= count;
  }
  return device;
}

Tiling::Run Tiling::find(uint64_t element) const {
  Run run{0, 0, element, inner_ - element % inner_};
  uint64_t within = element % inner_, index = element / inner_;
  // From the last dimension to the first; the last sharded one bounds the run.
  uint64_t scale = inner_, partScale = 1, local = within;
  for (size_t i = dimensions_.size(); i-- > 0;) {
    const Cut &cut = dimensions_[i].cut;
    uint64_t at = index % cut.size, part = at / cut.part();
    index /= cut.size;
    local += (at % cut.part()) * scale;
    scale *= cut.part();
    run.part += static_cast<uint32_t>(part * partScale);
    partScale *= cut.count;
    if (i + 1 == dimensions_.size())
      run.count += (cut.begin(part + 1) - at - 1) * inner_;
  }
  uint64_t flatPart = local / flat_.part();
  run.local = local % flat_.part();
  run.part = run.part * static_cast<uint32_t>(flat_.count) +
             static_cast<uint32_t>(flatPart);
  run.count = std::min(run.count, flat_.part() - run.local);
  return run;
}

} // namespace kiln
