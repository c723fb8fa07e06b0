// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/plan/ShareBatch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kiln {

namespace {

/// Replicas whose proportion of `units` is below one unit. They get one each
/// and the remaining replicas share the rest, which can put the next slowest
/// below one too: each one removed lowers the units per weight of the
/// remaining. The search goes from the slowest up and stops at the first at or
/// above one.
std::vector<size_t> findSlowest(int64_t units,
                                const std::vector<double> &weights) {
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return weights[a] != weights[b] ? weights[a] < weights[b] : a < b;
  });
  // Suffix sums over each replica and all faster ones. Differences of sums
  // would cancel the weights of slow replicas.
  std::vector<double> sums(order.size() + 1, 0);
  for (size_t i = order.size(); i-- > 0;)
    sums[i] = sums[i + 1] + weights[order[i]];
  size_t settled = 0;
  while (settled < order.size() &&
         static_cast<double>(units - static_cast<int64_t>(settled)) *
                 weights[order[settled]] <
             sums[settled])
    ++settled;
  order.resize(settled);
  return order;
}

/// Shares out `units` by weight, at least one to each; there are enough.
std::vector<int64_t> apportion(int64_t units, std::vector<double> weights) {
  std::vector<int64_t> shares(weights.size(), 0);
  int64_t left = units;
  for (size_t slow : findSlowest(units, weights)) {
    shares[slow] = 1;
    weights[slow] = 0;
    --left;
  }
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<size_t> order;
  std::vector<double> remainders(weights.size());
  int64_t over = left;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0)
      continue;
    double ideal = static_cast<double>(left) * weights[i] / sum;
    shares[i] = std::max<int64_t>(1, std::llround(std::floor(ideal)));
    remainders[i] = ideal - std::floor(ideal);
    over -= shares[i];
    order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return remainders[a] != remainders[b] ? remainders[a] > remainders[b]
                                          : a < b;
  });
  for (size_t i = 0; over > 0; i = (i + 1) % order.size(), --over)
    ++shares[order[i]];
  return shares;
}

} // namespace

std::optional<std::vector<int64_t>>
shareBatch(int64_t batch, int64_t replicas, const std::vector<double> &speeds,
           int64_t group, std::string &error) {
  if (batch % group != 0) {
    error = std::to_string(batch) + " samples are not whole groups of " +
            std::to_string(group);
    return std::nullopt;
  }
  int64_t units = batch / group;
  if (units < replicas) {
    error = std::to_string(batch) + " samples";
    if (group > 1)
      error += ", " + std::to_string(units) + " groups of " +
               std::to_string(group) + " that batch norm takes together,";
    error += " are too few for " + std::to_string(replicas) + " replicas";
    return std::nullopt;
  }
  // Divided by the greatest, so that no sum overflows.
  std::vector<double> weights =
      speeds.empty() ? std::vector<double>(replicas, 1.0) : speeds;
  double greatest = *std::max_element(weights.begin(), weights.end());
  for (double &weight : weights)
    weight /= greatest;
  std::vector<int64_t> shares = apportion(units, weights);
  for (int64_t &share : shares)
    share *= group;
  return shares;
}

std::string describeBrokenGroups(int64_t batch, int64_t group, int64_t limit) {
  int64_t below = batch / group * group, above = below + group;
  std::string text = std::to_string(batch) +
                     " is not a multiple of model.statistics_group = " +
                     std::to_string(group) +
                     ", whose samples batch norm takes together; try ";
  if (below > 0)
    text += std::to_string(below);
  if (above <= limit)
    text += (below > 0 ? " or " : "") + std::to_string(above);
  return text;
}

} // namespace kiln
