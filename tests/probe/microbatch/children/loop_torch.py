"""Loops of torch that stallguard.track runs: prints what each of the cases that are named ends with, as JSON."""

import json
import os
import sys
from collections import UserDict
from typing import NamedTuple

import torch
from torch import nn

import stallguard

torch.set_num_threads(1)
probe = getattr(sys.modules.get("_stallguard_probe"), "probe", None)
notes = []
stop = os.environ.get("STOP", "").split()
if probe is not None:
    queue = probe.context.note
    probe.context.note = lambda kind, text, **facts: (notes.append([kind, text]), queue(kind, text, **facts))


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


MAKERS = {
    "tuple": lambda x, y: (x, y),
    "list": lambda x, y: [x, y],
    "dict": lambda x, y: {"x": x, "y": y, "none": None},
    "user": lambda x, y: UserDict(x=x, y=y),
    "named": Pair,
}


def taken(batch):
    if isinstance(batch, (dict, UserDict)):
        return batch["x"], batch["y"]
    return batch[0], batch[1]


class Loop:
    """A loop over 3 epochs of 22 rows in batches of 8: the last has 6."""

    loss = "mean"
    optimizer = staticmethod(lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9))
    model = staticmethod(lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)))
    workers, kind, rows = 0, "tuple", 22
    handed = ()  # further objects

    def __init__(self):
        torch.manual_seed(1)
        self.net = self.model()
        self.adjusts = self.optimizer(self.net.parameters())
        self.steps = 0
        self.adjusts.register_step_post_hook(self.stepped)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.adjusts, 2, 0.9)
        data = torch.utils.data.TensorDataset(torch.randn(self.rows, 6), torch.randn(self.rows, 1))
        make = MAKERS[self.kind]
        self.loader = torch.utils.data.DataLoader(
            data, 8, shuffle=True, num_workers=self.workers,
            collate_fn=lambda rows: make(torch.stack([one for one, _ in rows]), torch.stack([one for _, one in rows])),
        )  # fmt: skip
        self.seen = set()

    def stepped(self, *_):
        self.steps += 1

    def loss_of(self, x, y):
        return ((self.net(x) - y) ** 2).mean()

    def body(self, step, x, y):
        self.adjusts.zero_grad()
        self.loss_of(x, y).backward()
        self.adjusts.step()
        self.schedule.step()

    def train(self):
        objects = (self.net, self.adjusts, self.schedule, *self.handed, self.loader)
        for epoch, batches in stallguard.track(*objects, epochs=3, loss=self.loss):
            for step, batch in batches:
                self.seen.add((epoch, step))
                self.body(step, *taken(batch))
                if [str(epoch), str(step)] == stop:
                    os._exit(9)
        return [value for one in self.net.state_dict().values() for value in one.double().flatten().tolist()]


class Adam(Loop):
    optimizer = staticmethod(lambda parameters: torch.optim.AdamW(parameters, 0.01))
    workers, kind = 2, "dict"


class Sum(Loop):
    loss, kind = "sum", "user"

    def loss_of(self, x, y):
        return ((self.net(x) - y) ** 2).sum() / 50


class ClearsAfter(Loop):
    kind = "named"

    def body(self, step, x, y):
        self.loss_of(x, y).backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.1)
        nn.utils.clip_grad_value_(self.net.parameters(), 0.05)
        self.adjusts.step()
        self.net.zero_grad()
        self.schedule.step()


class Accumulates(Loop):
    kind = "list"

    def body(self, step, x, y):
        (self.loss_of(x, y) / 2).backward()
        if step % 2:
            self.adjusts.step()
            self.adjusts.zero_grad()


class Scaled(Loop):
    def __init__(self):
        super().__init__()
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        self.handed = (self.scaler,)

    def body(self, step, x, y):
        self.adjusts.zero_grad()
        self.scaler.scale(self.loss_of(x, y)).backward()
        self.scaler.unscale_(self.adjusts)
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.1)
        self.scaler.step(self.adjusts)
        self.scaler.update()


class Averaged(Loop):
    def __init__(self):
        super().__init__()
        self.mean = torch.optim.swa_utils.AveragedModel(self.net)
        self.handed = (self.mean,)

    def body(self, step, x, y):
        super().body(step, x, y)
        self.mean.update_parameters(self.net)

    def train(self):
        super().train()
        return [value for one in self.mean.state_dict().values() for value in one.double().flatten().tolist()]


class TwoLosses(Loop):
    """Two calls of backward, one through a checkpoint of activations that computes gradients inside."""

    def body(self, step, x, y):
        self.adjusts.zero_grad()
        self.loss_of(x, y).backward()
        again = torch.utils.checkpoint.checkpoint(self.net, x.requires_grad_(), use_reentrant=True)
        (again - y).abs().mean().backward()
        self.adjusts.step()
        self.schedule.step()


class Dropped(Loop):
    model = staticmethod(lambda: nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.3), nn.Linear(16, 1)))


class NoWord(Loop):
    loss = ""


class Normalised(Loop):
    model = staticmethod(lambda: nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 1)))


class Spectral(Loop):
    model = staticmethod(
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 16)), nn.Linear(16, 1))
    )


class Closure(Loop):
    optimizer = staticmethod(lambda parameters: torch.optim.LBFGS(parameters, 0.1))

    def body(self, step, x, y):
        def closure():
            self.adjusts.zero_grad()
            loss = self.loss_of(x, y)
            loss.backward()
            return loss

        self.adjusts.step(closure)


class OwnClip(Loop):
    def body(self, step, x, y):
        self.adjusts.zero_grad()
        self.loss_of(x, y).backward()
        for one in self.net.parameters():
            one.grad.clamp_(-0.05, 0.05)
        self.adjusts.step()


class ClearsByHand(Loop):
    def body(self, step, x, y):
        for one in self.net.parameters():
            one.grad = None
        self.loss_of(x, y).backward()
        self.adjusts.step()


class OwnAverage(Loop):
    """An average of the weights that it keeps itself."""

    def __init__(self):
        super().__init__()
        self.mean = self.model()
        self.mean.load_state_dict(self.net.state_dict())
        self.handed = (self.mean,)

    def body(self, step, x, y):
        super().body(step, x, y)
        with torch.no_grad():
            for mean, one in zip(self.mean.parameters(), self.net.parameters(), strict=True):
                mean.lerp_(one, 0.1)


class TwoUpdates(Loop):
    def body(self, step, x, y):
        super().body(step, x, y)
        super().body(step, x, y)


class Plateau(Loop):
    def __init__(self):
        super().__init__()
        self.schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(self.adjusts, patience=1)

    def body(self, step, x, y):
        self.adjusts.zero_grad()
        loss = self.loss_of(x, y)
        loss.backward()
        self.adjusts.step()
        self.schedule.step(loss.item())


class Words(Loop):
    def train(self):
        make = self.loader.collate_fn
        self.loader.collate_fn = lambda rows: (*make(rows), [str(one) for one in range(len(rows))])
        return super().train()


class OneRow(Loop):
    rows = 1


class Ungraded(Loop):
    def body(self, step, x, y):
        self.adjusts.zero_grad()
        slopes = torch.autograd.grad(self.loss_of(x, y), list(self.net.parameters()))
        for one, slope in zip(self.net.parameters(), slopes, strict=True):
            one.grad = slope
        self.adjusts.step()


class Later(Loop):
    """Changes its gradients from the second epoch on."""

    def body(self, step, x, y):
        self.adjusts.zero_grad()
        self.loss_of(x, y).backward()
        if len(self.seen) > 3:
            self.net[0].bias.grad.clamp_(-0.01, 0.01)
        self.adjusts.step()


class Left(Loop):
    def body(self, step, x, y):
        super().body(step, x, y)
        self.left = True

    def train(self):
        for _, batches in stallguard.track(self.net, self.adjusts, self.loader, epochs=2, loss="mean"):
            for step, batch in batches:
                self.body(step, *taken(batch))
                if step == 1:
                    break
            self.schedule.step()
        return []


found = {}
cases = {name: kind for name, kind in list(vars().items()) if isinstance(kind, type) and issubclass(kind, Loop)}
for name in sys.argv[1:]:
    notes.clear()
    loop = cases[name]()
    slices = None
    values = loop.train()
    if probe is not None:
        slices = probe.context.get("slices")
    rate = loop.adjusts.param_groups[0]["lr"]
    found[name] = {"values": values, "steps": loop.steps, "rate": rate, "notes": notes[:], "slices": slices}
print(json.dumps(found))
