// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "test/runtime/collective/SampleCollective.h"
#include "runtime/Mesh.h"

namespace kiln::test {

using namespace artifact;

std::vector<std::vector<uint32_t>> Subject::groups() const {
  IndexT index = emptyIndex(64);
  setMesh(index, mesh);
  flatbuffers::FlatBufferBuilder indexBuilder, axesBuilder;
  indexBuilder.Finish(Index::Pack(indexBuilder, &index));
  axesBuilder.Finish(axesBuilder.CreateVector(axes));
  Mesh made(*flatbuffers::GetRoot<Index>(indexBuilder.GetBufferPointer()));
  std::vector<std::vector<uint32_t>> groups;
  for (uint32_t device = 0; device < made.devices(); ++device)
    groups.push_back(made.members(
        device, flatbuffers::GetRoot<Axes>(axesBuilder.GetBufferPointer())));
  return groups;
}

std::vector<Subject> allSubjects() {
  std::vector<Subject> subjects;
  for (auto [data, tensor] : {std::pair(2u, 2u), std::pair(3u, 2u),
                              std::pair(1u, 4u), std::pair(2u, 4u)})
    for (const std::vector<uint32_t> &axes :
         std::vector<std::vector<uint32_t>>{{0}, {1}, {0, 1}, {1, 0}})
      for (CollectiveKind kind :
           {CollectiveKind::all_reduce, CollectiveKind::all_gather,
            CollectiveKind::reduce_scatter})
        subjects.push_back({{{"data", data}, {"tensor", tensor}},
                            axes,
                            kind,
                            {{1, 7, 1}, {3, 5, 2}, {2, 8, 3}, {1, 1, 4}}});
  for (bool isInPlace : {false, true})
    subjects.push_back({{{"data", 4}},
                        {0},
                        CollectiveKind::all_reduce,
                        {{1, 5000, 1}, {1, 3, 1}},
                        isInPlace});
  return subjects;
}

double wholeNumber(uint32_t device, size_t piece, uint64_t element) {
  return static_cast<double>((device + 1) * 1000 + piece * 100 + element);
}

} // namespace kiln::test
