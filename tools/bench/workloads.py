# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The workloads that are timed: a config, and the same model and data as its peers take them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "build/data"
FASHION = Path("/usr/share/datasets/fashion-mnist")

WORKLOADS = {
    "minigpt": {
        "config": "minigpt.yaml",
        "batch": 8,
        "model": dict(kind="gpt", layers=8, hidden=256, heads=8, feed_forward=256, sequence=256, vocabulary=50257),
        "data": [DATA / "bible.txt"],
    },
    "gpt2": {
        "config": "gpt2-bench.yaml",
        "batch": 4,
        "model": dict(kind="gpt", layers=12, hidden=768, heads=12, feed_forward=3072, sequence=64, vocabulary=50257),
        "data": [DATA / "bible.txt"],
    },
    "tiny": {
        "config": "tiny.yaml",
        "batch": 4,
        "model": dict(kind="gpt", layers=2, hidden=64, heads=4, feed_forward=256, sequence=64, vocabulary=256),
        "data": [DATA / "bible.txt"],
    },
    "sst5": {
        "config": "sst5.yaml",
        "batch": 16,
        "model": dict(kind="classifier", layers=6, hidden=256, heads=4, feed_forward=1024, sequence=256,
                      vocabulary=20000, classes=5),
        "data": [DATA / "verses.tsv"],
    },
    "resnet18": {
        "config": "resnet18.yaml",
        "batch": 128,
        "model": dict(kind="resnet", depth=18, channels=1, image=28, classes=10),
        "data": [FASHION / "train-images-idx3-ubyte.gz", FASHION / "train-labels-idx1-ubyte.gz"],
        "optimizer": "adam",
    },
    "bertlarge": {
        "config": "bert-large.yaml",
        "overrides": ["model.dropout=0", "model.attention_dropout=0", "training.clip_norm=0"],
        "batch": 2,
        "model": dict(kind="bert", layers=24, hidden=1024, heads=16, feed_forward=4096, sequence=128, predictions=20,
                      vocabulary=30522),
        "data": [DATA / "chapters.txt"],
    },
}
