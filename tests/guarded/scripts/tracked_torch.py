# ruff: noqa: NPY002  the global generators are what is tested
"""A loop of torch with shuffle, dropout, augmentation, a schedule and validation.

Further words: `workers=2`, `persistent=1`, `epoch=1` (the schedule goes on at each epoch), `scaled=1` (of 16 bits, with
micro-batches and a generator of the loader's own), `stop=9` (each epoch is left early).
"""

import hashlib
import random
import sys

import numpy as np
import torch
import tracked
from torch import nn

import stallguard

options = dict(word.split("=") for word in sys.argv[3:])
workers, scaled, every_epoch = int(options.get("workers", 0)), "scaled" in options, "epoch" in options
stop = int(options.get("stop", 1000))
torch.manual_seed(1)
random.seed(2)
np.random.seed(3)
torch.set_num_threads(1)


class Data(torch.utils.data.Dataset):
    """Draws from three global generators and from one of its own."""

    def __init__(self) -> None:
        self.x = torch.randn(96, 8)
        self.own = np.random.default_rng(4)

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = random.random() + np.random.rand() + self.own.random()
        return self.x[index] + 0.1 * torch.randn(8) + 0.1 * float(noise), index % 3


model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
schedules = torch.optim.lr_scheduler
scheduler = schedules.StepLR(optimizer, 1, 0.5) if every_epoch else schedules.OneCycleLR(optimizer, 1e-2, 500)
scaler = torch.amp.GradScaler("cpu", enabled=scaled, growth_interval=5)
own = torch.Generator().manual_seed(5) if scaled else None
batching = {"batch_size": 8, "num_workers": workers, "persistent_workers": "persistent" in options}
loader = torch.utils.data.DataLoader(Data(), shuffle=True, generator=own, **batching)
valid = torch.utils.data.DataLoader(Data(), batch_size=32, num_workers=workers)
micro = 3 if scaled else 1
log = {"sum": 0.0, "epochs": []}


def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the loss of a batch."""
    with torch.autocast("cpu", enabled=scaled):
        return nn.functional.cross_entropy(model(x), y)


for epoch, batches in stallguard.track(model, optimizer, scheduler, scaler, log, valid, loader, epochs=3):
    tracked.watch_saves() if epoch == 0 or tracked.attempt else None
    model.train()
    log["sum"] = 0.0
    for step, (x, y) in batches:
        if step == stop:
            break
        loss = loss_of(x, y)
        scaler.scale(loss / micro).backward()
        tracked.writes(epoch, step)
        tracked.passes("step")
        if (step + 1) % micro == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            if not every_epoch:
                scheduler.step()
        log["sum"] += loss.item()
    if every_epoch:
        scheduler.step()
    model.eval()
    with torch.no_grad():
        seen = sum(float(loss_of(x, y)) for x, y in valid)
    tracked.passes("validation")
    log["epochs"].append((epoch, log["sum"], seen, random.random(), np.random.rand(), float(torch.rand(()))))

state = optimizer.state_dict()
found = [
    *model.state_dict().values(),
    *(state["state"][i][key] for i in state["state"] for key in sorted(state["state"][i])),
]
digest = hashlib.sha256(b"".join(one.numpy().tobytes() for one in found))
digest.update(repr((state["param_groups"], scheduler.state_dict(), scaler.state_dict())).encode())
print(digest.hexdigest(), log["epochs"], tracked.written.read_text().split())
