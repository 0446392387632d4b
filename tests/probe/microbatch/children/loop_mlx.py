"""Loops of MLX that stallguard.track runs: prints what each of the cases that are named ends with, as JSON."""

import json
import os
import random
import sys
from functools import partial

import mlx.core as mx
from mlx import nn, optimizers
from mlx.utils import tree_flatten, tree_map

import stallguard

probe = getattr(sys.modules.get("_stallguard_probe"), "probe", None)
notes = []
stop = os.environ.get("STOP", "").split()
if probe is not None:
    queue = probe.context.note
    probe.context.note = lambda kind, text, **facts: (notes.append([kind, text]), queue(kind, text, **facts))


class Net(nn.Module):
    def __init__(self, *between):
        super().__init__()
        self.layers = [nn.Linear(6, 16), nn.Tanh(), *between]
        self.head = nn.Linear(16, 1)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Loop:
    """A loop over 3 epochs of 22 rows in batches of 8: the last has 6."""

    loss, between, reduction, handed = "mean", (), "mean", ()
    optimizer = staticmethod(lambda: optimizers.SGD(optimizers.cosine_decay(0.05, 9), momentum=0.9))

    def __init__(self):
        mx.random.seed(1)
        random.seed(2)
        self.net = Net(*self.between)
        self.adjusts = self.optimizer()
        self.x, self.y = mx.random.normal((22, 6)), mx.random.normal((22, 1))
        self.gradient = nn.value_and_grad(self.net, self.loss_of)

    def loss_of(self, net, x, y):
        return nn.losses.mse_loss(net(x), y, reduction=self.reduction)

    def batches(self):
        order = random.sample(range(22), 22)
        for begin in range(0, 22, 8):
            rows = mx.array(order[begin : begin + 8])
            yield self.batch(self.x[rows], self.y[rows])

    def batch(self, x, y):
        return x, y

    def body(self, step, x, y):
        loss, slopes = self.gradient(self.net, x, y)
        self.adjusts.update(self.net, slopes)
        mx.eval(loss, self.net.parameters(), self.adjusts.state)

    def train(self):
        objects = (self.net, self.adjusts, *self.handed, self.batches)
        for epoch, batches in stallguard.track(*objects, epochs=3, loss=self.loss):
            for step, batch in batches:
                if [str(epoch), str(step)] == stop:
                    os._exit(9)
                self.body(step, *(batch.values() if isinstance(batch, dict) else batch))
        found = [one for _, one in sorted(tree_flatten(self.net.parameters()), key=lambda pair: pair[0])]
        return [value for one in found for value in one.flatten().tolist()]


class Adam(Loop):
    optimizer = staticmethod(lambda: optimizers.Adam(0.01))

    def batch(self, x, y):
        return {"x": x, "y": y}


class Several(Loop):
    optimizer = staticmethod(
        lambda: optimizers.MultiOptimizer(
            [optimizers.Adam(0.01), optimizers.SGD(0.05)], [lambda name, _: "head" in name]
        )
    )


class Sum(Loop):
    loss, reduction = "sum", "sum"


class Clipped(Loop):
    def body(self, step, x, y):
        loss, slopes = self.gradient(self.net, x, y)
        slopes, _ = optimizers.clip_grad_norm(slopes, 0.1)
        self.net.update(self.adjusts.apply_gradients(slopes, self.net.trainable_parameters()))
        mx.eval(loss, self.net.parameters(), self.adjusts.state)


class Dropped(Loop):
    between = (nn.Dropout(0.3),)


class NoWord(Loop):
    loss = ""


class Normalised(Loop):
    between = (nn.BatchNorm(16),)


class Compiled(Loop):
    def __init__(self):
        super().__init__()
        captured = [self.net.state, self.adjusts.state, mx.random.state]

        def step(x, y):
            loss, slopes = self.gradient(self.net, x, y)
            self.adjusts.update(self.net, slopes)
            return loss

        self.step = partial(mx.compile, inputs=captured, outputs=captured)(step)

    def body(self, step, x, y):
        mx.eval(self.step(x, y), self.net.parameters(), self.adjusts.state)


class CompiledGradient(Loop):
    def __init__(self):
        super().__init__()
        whole = self.gradient
        captured = [self.net.state]
        compiled = mx.compile(lambda x, y: whole(self.net, x, y), inputs=captured, outputs=captured)
        self.gradient = lambda _, x, y: compiled(x, y)


class OwnClip(Loop):
    def body(self, step, x, y):
        loss, slopes = self.gradient(self.net, x, y)
        self.adjusts.update(self.net, tree_map(lambda one: mx.clip(one, -0.05, 0.05), slopes))
        mx.eval(loss, self.net.parameters(), self.adjusts.state)


class OwnAverage(Loop):
    """An average of the weights that it keeps itself."""

    def __init__(self):
        super().__init__()
        self.mean = Net()
        self.handed = (self.mean,)

    def body(self, step, x, y):
        super().body(step, x, y)
        self.mean.update(
            tree_map(lambda mean, one: 0.9 * mean + 0.1 * one, self.mean.parameters(), self.net.parameters())
        )


class Accumulates(Loop):
    """Adds up gradients itself."""

    def __init__(self):
        super().__init__()
        self.sums = {}
        self.handed = (self.sums,)

    def body(self, step, x, y):
        _, slopes = self.gradient(self.net, x, y)
        self.sums["sum"] = tree_map(lambda one, other: one + other, self.sums["sum"], slopes) if self.sums else slopes
        mx.eval(self.sums)
        if step % 2:
            self.adjusts.update(self.net, self.sums.pop("sum"))
            mx.eval(self.net.parameters(), self.adjusts.state)


found = {}
cases = {name: kind for name, kind in list(vars().items()) if isinstance(kind, type) and issubclass(kind, Loop)}
for name in sys.argv[1:]:
    notes.clear()
    loop = cases[name]()
    values = loop.train()
    slices = None if probe is None else probe.context.get("slices")
    kinds = getattr(loop.adjusts, "optimizers", [loop.adjusts])
    steps, rate = [one.step.item() for one in kinds], kinds[0].learning_rate.item()
    found[name] = {"values": values, "steps": steps, "rate": rate, "notes": notes[:], "slices": slices}
print(json.dumps(found))
