// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "models/Models.h"

#include <cmath>

using namespace mlir;

namespace kiln {

namespace {

/// Writes the blocks of a ResNet; images are [batch, height, width, channels].
class ResnetWriter {
public:
  ResnetWriter(ModelBuilder &m, const ModelConfig &config)
      : m(m), config(config) {}

  /// A convolution and its norm. Weights start so that the variance of
  /// gradients is kept (He et al., fan out).
  Value convolve(const std::string &convolution, const std::string &norm,
                 Value x, int64_t out, int64_t window, int64_t stride,
                 Parallel parallel = {}) {
    double deviation = std::sqrt(2.0 / double(out * window * window));
    Value y = m.convolution(convolution, x, out, window, stride,
                            {InitKind::normal, 0, deviation}, parallel);
    return m.batchNorm(norm, y, config.statisticsGroup, config.momentum,
                       parallel.vector());
  }

  /// Two 3x3 convolutions beside a shortcut.
  Value basicBlock(const std::string &name, Value x, int64_t width,
                   int64_t stride) {
    Value y = m.relu(convolve(name + ".conv1", name + ".bn1", x, width, 3,
                              stride, Parallel::columns()));
    y = convolve(name + ".conv2", name + ".bn2", y, width, 3, 1,
                 Parallel::rows());
    return m.relu(m.c.add(y, shortcut(name, x, width, stride)));
  }

  /// 1x1, 3x3 and 1x1 convolutions beside a shortcut; four times as wide at the
  /// end. The stride is in the middle, as in torchvision.
  Value bottleneck(const std::string &name, Value x, int64_t width,
                   int64_t stride) {
    Value y = m.relu(convolve(name + ".conv1", name + ".bn1", x, width, 1, 1,
                              Parallel::columns()));
    y = m.relu(convolve(name + ".conv2", name + ".bn2", y, width, 3, stride,
                        Parallel::rows()));
    y = convolve(name + ".conv3", name + ".bn3", y, 4 * width, 1, 1);
    return m.relu(m.c.add(y, shortcut(name, x, 4 * width, stride)));
  }

private:
  Value shortcut(const std::string &name, Value x, int64_t width,
                 int64_t stride) {
    if (stride == 1 && tensorType(x).getShape().back() == width)
      return x;
    return convolve(name + ".downsample.0", name + ".downsample.1", x, width, 1,
                    stride);
  }

  ModelBuilder &m;
  const ModelConfig &config;
};

/// Number of blocks of each of the four stages.
ArrayRef<int64_t> countBlocks(int64_t depth) {
  static constexpr int64_t k18[] = {2, 2, 2, 2}, k50[] = {3, 4, 6, 3},
                           k101[] = {3, 4, 23, 3};
  return depth == 18 ? k18 : depth == 50 ? k50 : k101;
}

} // namespace

/// ResNet with the usual stem, on square images. Names, layouts and initial
/// values are torchvision's.
void resnet(ModelBuilder &m, const ModelConfig &config) {
  Value x = m.input("image", {config.image, config.image, config.channels});
  Value label = m.integers("label", {});
  ResnetWriter writer(m, config);
  x = m.relu(writer.convolve("conv1", "bn1", x, 64, 7, 2));
  x = m.maxPool(x, 3, 2, 1);
  int64_t layer = 0;
  for (auto [stage, blocks] : llvm::enumerate(countBlocks(config.depth)))
    for (int64_t block = 0; block < blocks; ++block) {
      auto scope = m.layer(layer++);
      std::string name =
          "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      int64_t width = int64_t(64) << stage;
      int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      x = config.depth == 18 ? writer.basicBlock(name, x, width, stride)
                             : writer.bottleneck(name, x, width, stride);
    }
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  double places = double(shape[1] * shape[2]);
  int64_t width = shape[3];
  x = m.c.div(m.c.sum("bhwc->bc", x), places);
  double bound = 1 / std::sqrt(double(width));
  Start uniform = {InitKind::uniform, -bound, bound};
  Value logits =
      m.linear("fc", x, config.classes, uniform, uniform, LinearLayout::OutIn);
  m.addCrossEntropy(logits, label);
  m.countCorrect(logits, label);
}

/// As in torchvision, which also counts the batches of each norm.
PublicNames resnetNames(const ModelConfig &) {
  PublicNames names;
  names.ignored = {"num_batches_tracked"};
  return names;
}

} // namespace kiln
