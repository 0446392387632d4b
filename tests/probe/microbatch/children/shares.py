"""Divides batches of torch by probe/microbatch/shares.py, and prints what comes of it as a line of JSON."""

import json
import random
from collections import UserDict
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch.nn import functional

from stallguard.probe.beats import Beats
from stallguard.probe.context import Context
from stallguard.probe.microbatch import announcements, shares
from stallguard.probe.outbox import Outbox, begin, private
from stallguard.probe.patches import Patches

notes = []


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


class Divides:
    """A trainer with a model and a loss of its own; `step` computes gradients as libraries do."""

    def __init__(self, model, loss):
        self.model, self.loss, self.steps, self.seen = model, loss, 0, []

    def step(self, part):
        self.steps += 1
        self.seen.append(self.steps)
        loss = self.loss(self.model, part)
        loss.backward()
        return loss.detach()


def divide(trainer, data, slices=4, obstacle=""):
    """Return the slices of `data`, or the reason why there are none."""
    beats = Beats(begin(private(), 1, 1, 1))
    context = Context(beats, Outbox(1, 1), Patches(notes.append), {})
    context.settings = SimpleNamespace(slices=slices, rows=0, fewer_rows="")
    context.note = lambda kind, text, **_: notes.append((kind, text))
    made = shares.Shares(SimpleNamespace(context=context, announcer=announcements.Announcer(context)))
    parts = made.divide(trainer, trainer.model, data, trainer.step, obstacle=obstacle, half=False)
    return [(part.share, part.rows) for part in parts] or notes.pop()[1]


def squares(model, part):
    return ((model(part["x"]) - part["y"]) ** 2).mean()


def batch(rows=7):
    return {"x": torch.randn(rows, 4), "y": torch.randn(rows, 1)}


def main():
    torch.manual_seed(0)
    found = {}
    model = torch.nn.Linear(4, 1)
    x, y = torch.randn(7, 4), torch.randn(7, 1)
    pair = lambda model, part: functional.mse_loss(model(part[0]), part[1])  # noqa: E731
    found["rows"] = divide(Divides(model, squares), batch())
    found["more slices than rows"] = divide(Divides(model, squares), batch(3), slices=8)
    found["a pair"] = divide(Divides(model, pair), [x, y])
    found["a named pair"] = divide(Divides(model, pair), Pair(x, y))
    found["what is like a dict"] = divide(Divides(model, squares), UserDict(batch()))
    found["with texts and a switch"] = divide(Divides(model, squares), {**batch(), "t": list("abcdefg"), "on": True})
    found["a sum"] = divide(Divides(model, lambda model, part: squares(model, part) * len(part["x"])), batch())
    targets = torch.randint(0, 3, (7, 5))
    targets[:, 3:] = -100
    targets[0, 1:] = -100
    tokens = {"x": torch.randn(7, 5, 4), "labels": targets}
    classes = torch.nn.Linear(4, 3)
    mean = lambda model, part: functional.cross_entropy(model(part["x"]).flatten(0, 1), part["labels"].flatten())  # noqa: E731
    found["targets"] = divide(Divides(classes, mean), tokens)

    found["another number of rows"] = divide(Divides(model, squares), {**batch(), "edges": torch.zeros(9, 2)})
    found["a single number"] = divide(Divides(model, squares), {**batch(), "scale": torch.tensor(2.0)})
    found["sparse"] = divide(Divides(model, squares), {**batch(), "s": torch.eye(7).to_sparse()})
    found["an object"] = divide(Divides(model, squares), {**batch(), "graph": object()})
    found["not a number"] = divide(Divides(model, lambda model, part: squares(model, part) / 0.0 * 0.0), batch())
    found["no gradient"] = divide(Divides(model, lambda model, part: squares(model, part) * 0.0), batch())
    found["an error"] = divide(Divides(model, lambda model, part: squares(model, part["z"])), batch())
    found["an obstacle"] = divide(Divides(model, squares), batch(), obstacle="of the trainer")

    def short(model, part):
        if len(part["x"]) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return squares(model, part)

    found["no memory for two"] = divide(Divides(model, short), batch())
    drawing = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True)
    found["attention"] = divide(
        Divides(drawing, lambda model, part: (model(part["x"]) ** 3).mean()), {"x": torch.randn(7, 5, 4)}
    )
    found["said of attention"] = notes[-1][1]
    recurrent = torch.nn.LSTM(4, 4, num_layers=2, dropout=0.5, batch_first=True)
    found["recurrent"] = divide(
        Divides(recurrent, lambda model, part: (model(part["x"])[0] ** 2).mean()), {"x": torch.randn(7, 5, 4)}
    )
    found["said of a recurrent layer"] = notes[-1][1]
    noise = lambda model, part: (squares(model, part) * torch.rand(1).exponential_()).sum()  # noqa: E731
    found["draws that stay"] = divide(Divides(model, noise), batch())

    counter = torch.nn.Linear(4, 1)
    counter.register_buffer("seen", torch.zeros(()))

    def counts(model, part):
        model.seen += 1
        random.random(), torch.rand(1)
        return squares(model, part)

    trainer = Divides(counter, counts)
    kept = counter.weight.grad = torch.ones_like(counter.weight)
    data = batch()
    before, pythons = torch.get_rng_state(), random.getstate()
    found["a counter"] = divide(trainer, data)
    found["put back"] = [
        float(counter.seen) == 0.0, counter.weight.grad is kept, bool((kept == 1.0).all()), counter.bias.grad is None,
        trainer.steps == 0, trainer.seen == [], bool(torch.equal(torch.get_rng_state(), before)),
        random.getstate() == pythons,
    ]  # fmt: skip
    print(json.dumps(found))


main()
