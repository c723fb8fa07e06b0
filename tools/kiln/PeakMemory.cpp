// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/kiln/PeakMemory.h"
#include "tools/kiln/Commands.h"
#include "tools/kiln/ModelNames.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace kiln {
namespace {

constexpr size_t mostRows = 12;

std::string describe(const artifact::LiveBuffer &live) {
  std::string text = live.kind()->str();
  if (live.pass())
    text += ", " + live.pass()->str();
  if (live.op())
    text += ", " + live.op()->str();
  if (live.name())
    text += " of " + nameInAnyLayer(live.name()->str());
  return text;
}

/// 0-3, 5
std::string listLayers(const std::set<int> &layers) {
  std::string text;
  for (auto it = layers.begin(); it != layers.end();) {
    int first = *it, last = first;
    for (++it; it != layers.end() && *it == last + 1; ++it)
      last = *it;
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (last > first)
      text += "-" + std::to_string(last);
  }
  return text;
}

struct Row {
  uint64_t bytes = 0, count = 0;
  std::set<int> layers;
};

} // namespace

void printPeak(const artifact::Image &image) {
  if (!image.peak() || image.peak()->size() == 0)
    return;
  std::map<std::string, Row> rows;
  for (const artifact::LiveBuffer *live : *image.peak()) {
    Row &row = rows[describe(*live)];
    row.bytes += live->bytes();
    ++row.count;
    if (live->layer() >= 0)
      row.layers.insert(live->layer());
  }
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto &a, const auto &b) {
    return a.second.bytes != b.second.bytes ? a.second.bytes > b.second.bytes
                                            : a.first < b.first;
  });
  printf("\nlive at the peak, beside state and inputs\n");
  uint64_t rest = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const auto &[text, row] = sorted[i];
    if (i >= mostRows) {
      rest += row.bytes;
      continue;
    }
    std::string layers = listLayers(row.layers);
    printf("  %10s  %llu x %s%s%s\n", printBytes(row.bytes).c_str(),
           static_cast<unsigned long long>(row.count), text.c_str(),
           layers.empty() ? "" : ", layer ", layers.c_str());
  }
  if (rest)
    printf("  %10s  %zu other kinds\n", printBytes(rest).c_str(),
           sorted.size() - mostRows);
}

nlohmann::ordered_json describePeak(const artifact::Image &image) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  if (image.peak())
    for (const artifact::LiveBuffer *live : *image.peak()) {
      nlohmann::ordered_json entry = {{"kind", live->kind()->str()},
                                      {"bytes", live->bytes()}};
      if (live->layer() >= 0)
        entry["layer"] = live->layer();
      for (auto [key, text] :
           {std::pair("op", live->op()), std::pair("name", live->name()),
            std::pair("pass", live->pass())})
        if (text)
          entry[key] = text->str();
      list.push_back(entry);
    }
  return list;
}

} // namespace kiln
