"""A small fit of Lightning, as users write it: its data are shuffled, its model drops values out, it is validated.

    lightning_fit.py [package=lightning.pytorch] [accumulation=1] [rows=40] [epochs=-1] [steps=-1] [workers=0]
                     [manual=no|yes] [break=STEP] [stall=STEP]

Once it waits at step `stall` for a lock that is never released.  It prints digests of the weights and of the optimizer,
and the phases in which it was.
"""

import hashlib
import json
import logging
import sys
import threading
import warnings
from importlib import import_module
from pathlib import Path

import torch

GIVEN = {
    "package": "lightning.pytorch", "accumulation": "1", "rows": "40", "epochs": "-1", "steps": "-1", "workers": "0",
    "manual": "no", "break": "-1", "stall": "-1", **dict(word.split("=") for word in sys.argv[1:]),
}  # fmt: skip
lightning = import_module(GIVEN["package"])
warnings.filterwarnings("ignore")
logging.getLogger(GIVEN["package"]).setLevel(logging.ERROR)
torch.set_num_threads(1)
torch.manual_seed(5)
ROWS = int(GIVEN["rows"])
inputs = torch.randn(ROWS, 8)
targets = inputs[:, :1] ** 2
PROBE = getattr(sys.modules.get("_stallguard_probe"), "probe", None)
phases = {"first": set(), "training": set(), "validation": set(), "saving": set()}


def seen(what):
    if PROBE is not None:
        PROBE.beats.publish()
        phases[what].add(PROBE.beats.slots[8])


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = GIVEN["manual"] == "no"
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1)
        )

    def training_step(self, batch, index):
        seen("training" if self.global_step else "first")
        if self.global_step == int(GIVEN["stall"]) and not Path("stalled").exists():
            Path("stalled").touch()
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        x, y = batch
        loss = ((self.layers(x) - y) ** 2).mean()
        if self.global_step >= int(GIVEN["break"]) >= 0:
            loss = loss * float("nan")
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def validation_step(self, batch, index):
        seen("validation")
        self.log("missed", ((self.layers(batch[0]) - batch[1]) ** 2).mean())

    def on_save_checkpoint(self, checkpoint):
        seen("saving")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


def batches(shuffle):
    rows = torch.utils.data.TensorDataset(inputs, targets)
    return torch.utils.data.DataLoader(rows, 4, shuffle=shuffle, num_workers=int(GIVEN["workers"]))


def digest(tensors):
    return hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in tensors)).hexdigest()[:24]


model = Model()
trainer = lightning.Trainer(
    accelerator="cpu", devices=1, max_epochs=int(GIVEN["epochs"]), max_steps=int(GIVEN["steps"]), logger=False,
    accumulate_grad_batches=int(GIVEN["accumulation"]), enable_progress_bar=False, enable_model_summary=False,
    callbacks=[lightning.callbacks.ModelCheckpoint("kept", save_last=True)],
)  # fmt: skip
trainer.fit(model, batches(True), batches(False))
numbers = [one for state in trainer.optimizers[0].state_dict()["state"].values() for one in state.values()]
print(json.dumps({
    "step": trainer.global_step, "weights": digest(model.parameters()), "optimizer": digest(numbers),
    "random": torch.rand(1).item(), "callbacks": [type(one).__name__ for one in trainer.callbacks],
    **({"phases": {name: sorted(one) for name, one in phases.items()}} if PROBE is not None else {}),
}))  # fmt: skip
