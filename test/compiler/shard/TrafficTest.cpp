// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// No plan moves more bytes than it did: the partitioner's choices are greedy,
// so a change that helps one model can hurt another.
#include "test/compiler/shard/LoweredPlan.h"

#include <fstream>
#include <gtest/gtest.h>

namespace kiln::test {
namespace {

struct Family {
  const char *name, *text;
};

const Family families[] = {
    {"gpt", "model: {kind: gpt, layers: 3, hidden: 32, heads: 8, sequence: 24, "
            "vocabulary: 64, dropout: 0.1}\n"},
    {"bert", "model: {kind: bert, layers: 3, hidden: 32, heads: 8, sequence: "
             "24, vocabulary: 64, dropout: 0.1}\n"},
    {"classifier", "model: {kind: classifier, layers: 3, hidden: 32, heads: 8, "
                   "sequence: 24, vocabulary: 64}\n"},
    {"mlp", "model: {kind: mlp, inputs: 64, hidden: [48, 32, 24], classes: "
            "10}\n"},
    {"resnet", "model: {kind: resnet, depth: '18', image: 32, classes: 10, "
               "statistics_group: 4}\n"}};

TEST(Traffic, DoesNotGrow) {
  const std::string path =
      std::string(KILN_SOURCE_FOLDER) + "/test/golden/moved-bytes.txt";
  std::ifstream golden(path);
  std::map<std::string, uint64_t> known;
  std::string model, mesh, zero, recompute;
  for (uint64_t bytes; golden >> model >> mesh >> zero >> recompute >> bytes;)
    known[model + " " + mesh + " " + zero + " " + recompute] = bytes;
  const char *print = std::getenv("KILN_PRINT_TRAFFIC");
  for (const Family &family : families)
    for (auto [data, tensor] :
         {std::pair(2, 1), {1, 2}, {2, 2}, {4, 2}, {1, 8}})
      for (int stage = 0; stage < (data > 1 ? 4 : 1); ++stage)
        for (const char *again : {"none", "full"}) {
          std::string what = std::string(family.name) + " " +
                             std::to_string(data) + "x" +
                             std::to_string(tensor) + " zero" +
                             std::to_string(stage) + " " + again;
          LoweredPlan plan(
              std::string(family.text) +
                  "training: {steps: 1, global_batch: 16, micro_batch: 4, "
                  "clip_norm: 1}\ndata: {kind: none}\n",
              {"devices.count=" + std::to_string(data * tensor),
               "devices.mesh={data: " + std::to_string(data) +
                   ", tensor: " + std::to_string(tensor) + "}",
               "devices.zero=" + std::to_string(stage),
               std::string("devices.recompute=") + again});
          uint64_t bytes = plan.countMovedBytes();
          if (print)
            printf("%s %llu\n", what.c_str(),
                   static_cast<unsigned long long>(bytes));
          auto found = known.find(what);
          if (found == known.end())
            ADD_FAILURE() << what << " moves " << bytes
                          << " bytes and is not in " << path;
          else
            EXPECT_LE(bytes, found->second) << what;
        }
}

} // namespace
} // namespace kiln::test
