# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's accuracy with the settings of models/configs/resnet18.yaml: on the test images, after each of two
epochs. Takes minutes; the argument is the seed. Kiln's own is printed by `kiln train models/configs/resnet18.yaml`.
"""

import sys
from pathlib import Path

import torch
from torch import nn

import batches

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "test/golden"))
import references  # noqa: E402

FASHION = Path("/usr/share/datasets/fashion-mnist")
BATCH = 128


def load(part):
    images, labels = batches.read_images([FASHION / f"{part}-images-idx3-ubyte.gz",
                                          FASHION / f"{part}-labels-idx1-ubyte.gz"], 28)
    return torch.tensor(images).float() / 255, torch.tensor(labels)


def start_as_torchvision(module):
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def main():
    torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    model = references.Resnet({"depth": 18, "channels": 1, "classes": 10}).to(memory_format=torch.channels_last)
    model.apply(start_as_torchvision)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images, labels = load("train")
    test_images, test_labels = load("t10k")
    for epoch in (1, 2):
        model.train()
        for chosen in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            model({"image": images[chosen], "label": labels[chosen]}).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum((model.logits(x).argmax(1) == y).sum().item()
                        for x, y in zip(test_images.split(500), test_labels.split(500)))
        print(f"epoch {epoch}: test accuracy {right / len(test_labels):.4f}", flush=True)


if __name__ == "__main__":
    main()
