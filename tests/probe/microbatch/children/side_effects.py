"""Has probe/microbatch/side_effects.py look at steps of torch, and prints what it says of each as a line of JSON."""

import collections
import json
import random

import numpy
import torch

from stallguard.probe import libraries
from stallguard.probe.microbatch import side_effects

for name in ("torch", "numpy", "random"):
    libraries.read(name)
LOSSES, GENERATOR = [], torch.Generator()
SUMS = {"train": collections.defaultdict(list)}
MEAN = numpy.zeros(3)


class Meter:
    def __init__(self):
        self.total = 0.0


class Model(torch.nn.Module):
    calls = 0
    shared = []  # noqa: RUF012

    def __init__(self):
        super().__init__()
        self.layer, self.meter, self.last = torch.nn.Linear(3, 1), Meter(), torch.zeros(1)
        self.drop, self.norm = torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3)


model = Model()
STEPS = {
    "nothing": lambda batch: None,
    "an attribute": lambda batch: setattr(model, "calls", model.calls + 1),
    "a list of the class": lambda batch: model.shared.append(1),
    "a global list": lambda batch: LOSSES.append(0.5),
    "a nested list": lambda batch: SUMS["train"]["loss"].append(0.5),
    "a global array": lambda batch: MEAN.__iadd__(1),
    "an object": lambda batch: setattr(model.meter, "total", 1.0),
    "a tensor in place": lambda batch: model.last.add_(1),
    "a buffer": lambda batch: model.norm(batch["x"]),
    "rows in place": lambda batch: batch["x"].mul_(2),
    "a row taken out": lambda batch: batch.pop("y"),
    "python": lambda batch: random.random(),
    "numpy": lambda batch: numpy.random.rand(),  # noqa: NPY002
    "its own generator": lambda batch: torch.rand(1, generator=GENERATOR),
    "dropout": lambda batch: model.drop(batch["x"]),
    "dropout that is put back": lambda batch: model.drop(batch["x"]),
}
found = {}
for name, step in STEPS.items():
    data = {"x": torch.ones(4, 3), "y": torch.ones(4)}
    model.layer.weight.grad = slope = torch.ones(1, 3)

    def trained(batch, step=step):
        step(batch)
        assert len(batch["x"]) == side_effects.ROWS
        model.layer(batch["x"]).sum().backward()

    before = torch.get_rng_state(), random.getstate()
    said = side_effects.seen([], model, data, trained, "torch" if "put back" in name else "")
    same = torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()
    whole = bool((data["x"] == 1).all()) and model.layer.weight.grad is slope and bool((slope == 1).all())
    kept = not float(model.norm.running_mean.sum()) and not LOSSES and model.calls == 0
    found[name] = [said, same and whole and kept]
print(json.dumps(found))
