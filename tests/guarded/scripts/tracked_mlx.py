# ruff: noqa: NPY002  the global generators are what is tested
"""A loop of MLX with shuffle, dropout, augmentation and a schedule; `compiled=1`: with a compiled step."""

import hashlib
import random
import sys
from functools import partial

import mlx.core as mx
import numpy as np
import tracked
from mlx import nn, optimizers
from mlx.utils import tree_flatten

import stallguard

options = dict(word.split("=") for word in sys.argv[3:])
mx.random.seed(1)
np.random.seed(2)
random.seed(3)
X = np.random.randn(96, 8).astype("float32")


class Net(nn.Module):
    """A small network with statistics, dropout and a list of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(8, 16), nn.BatchNorm(16), nn.Dropout(0.3)]
        self.head = nn.Linear(16, 3)

    def __call__(self, x: mx.array) -> mx.array:
        for layer in self.layers:
            x = layer(nn.gelu(x))
        return self.head(x)


def batches_of_an_epoch():
    """Yield the batches in an order that is drawn, with noise that is drawn."""
    order = np.random.permutation(96)
    for start in range(0, 96, 8):
        rows = order[start : start + 8]
        yield mx.array(X[rows]) + 0.1 * mx.random.normal((8, 8)), mx.array(rows % 3)


model = Net()
schedule = optimizers.cosine_decay(1e-2, 60)
kinds = [optimizers.Adam(schedule), optimizers.SGD(schedule, momentum=0.9)]
optimizer = kinds[0] if "compiled" in options else optimizers.MultiOptimizer(kinds, [lambda name, _: "head" in name])
gradient = nn.value_and_grad(model, lambda model, x, y: nn.losses.cross_entropy(model(x), y, reduction="mean"))


def step(x: mx.array, y: mx.array) -> mx.array:
    """Train a batch."""
    loss, gradients = gradient(model, x, y)
    optimizer.update(model, gradients)
    return loss


if "compiled" in options:
    optimizer.init(model.trainable_parameters())
    captured = [model.state, optimizer.state, mx.random.state]
    step = partial(mx.compile, inputs=captured, outputs=captured)(step)
log = {"sum": 0.0, "epochs": []}
for epoch, batches in stallguard.track(model, optimizer, log, batches_of_an_epoch, epochs=3):
    tracked.watch_saves() if epoch == 0 or tracked.attempt else None
    model.train()
    log["sum"] = 0.0
    for number, (x, y) in batches:
        loss = step(x, y)
        tracked.writes(epoch, number)
        tracked.passes("step")
        mx.eval(loss, model.parameters(), optimizer.state)
        log["sum"] += loss.item()
    model.eval()
    seen = nn.losses.cross_entropy(model(mx.array(X)), mx.arange(96) % 3, reduction="mean").item()
    tracked.passes("validation")
    log["epochs"].append((epoch, log["sum"], seen, random.random(), np.random.rand(), mx.random.uniform().item()))

found = sorted(tree_flatten(model.parameters()) + tree_flatten(optimizer.state))
digest = hashlib.sha256(
    b"".join(name.encode() + bytes(memoryview(one.reshape(-1).view(mx.uint8))) for name, one in found)
)
print(digest.hexdigest(), log["epochs"], tracked.written.read_text().split())
