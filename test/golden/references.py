# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The models of other libraries that Kiln's must agree with, as modules from a batch to its loss."""

import torch
import torch.nn.functional as F
from torch import nn

from rounding import cross_entropy


def gpt(model):
    from transformers import GPT2Config, GPT2LMHeadModel

    class Loss(GPT2LMHeadModel):
        def forward(self, batch):
            logits = super().forward(input_ids=batch["tokens"]).logits
            return cross_entropy(logits, batch, "labels")

    return Loss(GPT2Config(
        vocab_size=model["vocabulary"], n_positions=model["sequence"], n_embd=model["hidden"], n_layer=model["layers"],
        n_head=model["heads"], n_inner=model["feed_forward"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def bert(model):
    from transformers import BertConfig, BertForPreTraining

    class Loss(BertForPreTraining):
        def forward(self, batch):
            is_token = torch.arange(model["sequence"]) < batch["length"][:, None]
            found = super().forward(
                input_ids=batch["tokens"], token_type_ids=batch["segments"], attention_mask=is_token.long())
            return (cross_entropy(found.prediction_logits, batch, "labels")
                    + cross_entropy(found.seq_relationship_logits, batch, "next"))

    return Loss(BertConfig(
        vocab_size=model["vocabulary"], hidden_size=model["hidden"], num_hidden_layers=model["layers"],
        num_attention_heads=model["heads"], intermediate_size=model["feed_forward"],
        max_position_embeddings=model.get("max_positions", model["sequence"]), hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0))


class Classifier(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden = model["hidden"]
        self.embedding = nn.Embedding(model["vocabulary"], hidden)
        self.positions = nn.Embedding(model["sequence"], hidden)
        layer = nn.TransformerEncoderLayer(hidden, model["heads"], model["feed_forward"], dropout=0.0,
                                           activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, model["layers"], nn.LayerNorm(hidden), enable_nested_tensor=False)
        self.head = nn.Linear(hidden, model.get("classes", 10))

    def forward(self, batch):
        tokens, lengths = batch["tokens"], batch["length"][:, None]
        place = torch.arange(tokens.shape[1])
        is_padding = place >= lengths
        x = self.encoder(self.embedding(tokens) + self.positions(place), src_key_padding_mask=is_padding)
        mean = x.masked_fill(is_padding[:, :, None], 0).sum(1) / lengths
        return cross_entropy(self.head(mean), batch, "label")


class Basic(nn.Module):
    """Two convolutions of 3 x 3."""

    expansion = 1

    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x):
        return self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))


class Bottleneck(nn.Module):
    """One of 3 x 3, which has the stride, between two of 1 x 1."""

    expansion = 4

    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)

    def forward(self, x):
        x = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return self.bn3(self.conv3(x))


def residual(kind, channels, width, stride):
    """A block of one of the kinds, and its way past it."""

    class Residual(kind):
        def __init__(self):
            super().__init__(channels, width, stride)
            out = width * kind.expansion
            self.downsample = None
            if stride != 1 or channels != out:
                self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

        def forward(self, x):
            return F.relu(super().forward(x) + (self.downsample(x) if self.downsample else x))

    return Residual()


class Resnet(nn.Module):
    """torchvision's, by names and numbers: He et al., "Deep residual learning" (2015), stride in the 3 x 3."""

    DEPTHS = {18: (Basic, (2, 2, 2, 2)), 50: (Bottleneck, (3, 4, 6, 3)), 101: (Bottleneck, (3, 4, 23, 3))}

    def __init__(self, model):
        super().__init__()
        kind, blocks = self.DEPTHS[int(model["depth"])]
        self.conv1 = nn.Conv2d(model["channels"], 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        channels = 64
        for number, count in enumerate(blocks, 1):
            layers, width = [], 32 << number
            for block in range(count):
                layers.append(residual(kind, channels, width, 2 if number > 1 and block == 0 else 1))
                channels = width * kind.expansion
            setattr(self, f"layer{number}", nn.Sequential(*layers))
        self.fc = nn.Linear(channels, model.get("classes", 10))

    def logits(self, images):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(images))), 3, 2, 1)
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(x.mean((2, 3)))

    def forward(self, batch):
        return cross_entropy(self.logits(batch["image"]), batch, "label")


def build(model):
    """A module with the names and defaults of the public one."""
    return {"gpt": gpt, "bert": bert, "classifier": Classifier, "resnet": Resnet}[model["kind"]](model)
