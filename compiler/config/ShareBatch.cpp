// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/ShareBatch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kiln {

namespace {

/// Shares out `units` by weight, at least one to each; there are enough.
std::vector<int64_t> apportion(int64_t units, std::vector<double> weights) {
  std::vector<int64_t> shares(weights.size(), 0);
  // Who would get less than one gets one, and the others share the rest, which
  // may put the next one below.
  int64_t left = units;
  double sum = 0;
  for (bool isSettled = false; !isSettled;) {
    isSettled = true;
    sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (size_t i = 0; i < weights.size(); ++i)
      if (shares[i] == 0 && static_cast<double>(left) * weights[i] < sum) {
        shares[i] = 1;
        weights[i] = 0;
        --left;
        isSettled = false;
        break;
      }
  }
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
  // By the greatest, so that no sum overflows.
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

} // namespace kiln
