"""A fit of Lightning, as users write it, that keeps state in many places and prints what it came to.

    lightning_resumed.py [package=lightning.pytorch] [accumulation=1] [workers=0] [rows=32] [epochs=3] [steps=-1]
                         [validate=EPOCHS or FRACTION] [manual=no|yes] [pause=SECONDS] [persistent=no|yes] [fits=1]
                         [saves=no|yes] [path=FILE] [pieces=1] [stream=no|yes] [patience=0]

It prints the step that each process begins with, and at the end digests of weights, optimizer, schedule, logged means,
metrics, callbacks and random draws.  A file `die` in its directory has the number of the step (in all fits) after which
the process kills itself, `die-in-validation` that of the validation, `die-between` that of the epoch at whose end,
`term` and `hang` that of the step in which it gets SIGTERM, and in the second waits for ever,
`cut` that of the save (of stallguard) inside of which.  A file `width` has the number of the model's units.
"""

import hashlib
import json
import logging
import os
import random
import signal
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import torch

GIVEN = {
    "package": "lightning.pytorch", "accumulation": "1", "workers": "0", "rows": "32", "epochs": "3", "steps": "-1",
    "validate": "1.0", "manual": "no", "pause": "0.01", "persistent": "no", "fits": "1", "saves": "no", "path": "",
    "pieces": "1", "stream": "no", "patience": "0", **dict(word.split("=") for word in sys.argv[1:]),
}  # fmt: skip
lightning = import_module(GIVEN["package"])
import torchmetrics  # noqa: E402

warnings.filterwarnings("ignore", module="(?!.*training_epoch_loop)")
warnings.filterwarnings("ignore", message=".*(workers|tensorboardX|checkpoint directory|litlogger|logging interval).*")
logging.getLogger(GIVEN["package"]).setLevel(logging.ERROR)
torch.set_num_threads(1)
torch.manual_seed(5)
random.seed(5)
np.random.seed(5)  # noqa: NPY002
ROWS = int(GIVEN["rows"])
WIDTH = int(Path("width").read_text()) if Path("width").exists() else 32
inputs = torch.randn(ROWS, 8)
targets = inputs[:, :1] ** 2
counts = {"steps": 0, "validations": 0, "saves": 0}


def dies(file, number, by=signal.SIGKILL):
    if Path(file).exists() and int(Path(file).read_text()) == number:
        Path(file).unlink()
        os.kill(os.getpid(), by)
        return True
    return False


class Rows(torch.utils.data.Dataset):
    """Draws at random in each item, as an augmentation does."""

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return inputs[index] + 0.01 * torch.randn(8), targets[index]


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return zip(inputs, targets, strict=True)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters({"width": WIDTH})
        self.automatic_optimization = GIVEN["manual"] == "no"
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, WIDTH), torch.nn.BatchNorm1d(WIDTH), torch.nn.ReLU(), torch.nn.Dropout(0.2),
            torch.nn.Linear(WIDTH, 1),
        )  # fmt: skip
        self.error = torchmetrics.MeanSquaredError()
        self.kept = torchmetrics.CatMetric()
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.losses, self.shown, self.missed = [], {}, []

    def training_step(self, batch, index):
        if "BEGUN" not in os.environ:  # no state of the training
            os.environ["BEGUN"] = "yes"
            print(json.dumps({"first": self.global_step}), flush=True)
        time.sleep(float(GIVEN["pause"]))
        pieces = [batch] if torch.is_tensor(batch[0]) else batch
        x, y = (torch.cat(parts) for parts in zip(*pieces, strict=True))
        out = self.layers(x)
        loss = ((out - y) ** 2).mean() * (1 + 0.01 * random.random() + 0.01 * np.random.rand())  # noqa: NPY002
        self.losses.append(loss.detach() + len(self.missed))
        self.seen += len(x)
        self.error(out, y)
        self.kept.update(loss.detach())
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("most", loss, on_epoch=True, on_step=False, reduce_fx="max")
        self.log("error", self.error, on_epoch=True, on_step=False)
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            self.manual_backward(loss)
            if index % 3 == 2:  # the gradients are summed over the end of an epoch
                optimizer.step()
                optimizer.zero_grad()
        return loss

    def on_train_batch_end(self, *_):
        counts["steps"] += 1
        dies("term", self.global_step, signal.SIGTERM)
        if dies("hang", self.global_step, signal.SIGTERM):
            os.read(os.pipe()[0], 1)
        dies("die", self.global_step if self.automatic_optimization else self.trainer.fit_loop.total_batch_idx + 1)

    def validation_step(self, batch, index):
        self.log("missed", ((self.layers(batch[0]) - batch[1]) ** 2).mean())
        self.missed.append(index)  # until the epoch ends
        if index == 2:
            counts["validations"] += 1
            dies("die-in-validation", counts["validations"])

    def on_train_epoch_end(self):
        self.shown[self.current_epoch] = {
            name: float(one) for name, one in sorted(self.trainer.callback_metrics.items())
        }
        self.missed.clear()
        self.log("all", self.kept.compute().sum())
        dies("die-between", self.current_epoch)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 1e-2)
        if not self.automatic_optimization:
            return optimizer
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Counting(lightning.Callback):
    """Keeps a list, and no state_dict."""

    def __init__(self):
        self.rates, self.draw = [], random.Random(3)

    def on_train_batch_end(self, trainer, module, *_):
        with Path("steps.txt").open("a") as file:
            print(trainer.global_step, file=file)
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"] + self.draw.random())

    def on_save_checkpoint(self, trainer, module, checkpoint):
        counts["saves"] += 1
        dies("cut", counts["saves"])


def batches(shuffle):
    workers = int(GIVEN["workers"])
    rows = Stream() if shuffle and GIVEN["stream"] == "yes" else Rows()
    return torch.utils.data.DataLoader(
        rows, 4, shuffle=shuffle and GIVEN["stream"] == "no", num_workers=workers,
        persistent_workers=workers > 0 and GIVEN["persistent"] == "yes",
    )  # fmt: skip


def digest(values):
    return hashlib.sha256(b"".join(torch.as_tensor(one).detach().numpy().tobytes() for one in values)).hexdigest()[:24]


for _ in range(int(GIVEN["fits"])):
    model, counting = Model(), Counting()
    callbacks = [counting]
    if GIVEN["saves"] == "yes":
        callbacks.append(lightning.callbacks.ModelCheckpoint("kept", monitor="missed", save_last=True))
    if int(GIVEN["patience"]):
        callbacks.append(lightning.callbacks.EarlyStopping("missed", patience=int(GIVEN["patience"]), min_delta=0.2))
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=int(GIVEN["epochs"]), max_steps=int(GIVEN["steps"]), logger=False,
        accumulate_grad_batches=int(GIVEN["accumulation"]), enable_progress_bar=False, enable_model_summary=False,
        val_check_interval=float(GIVEN["validate"]), callbacks=callbacks, log_every_n_steps=3,
        enable_checkpointing=GIVEN["saves"] == "yes",
    )  # fmt: skip
    loaders = [batches(True)] * int(GIVEN["pieces"])
    trainer.fit(model, loaders[0] if len(loaders) == 1 else loaders, batches(False), ckpt_path=GIVEN["path"] or None)
numbers = [one for state in trainer.optimizers[0].state_dict()["state"].values() for one in state.values()]
print(json.dumps({
    "step": trainer.global_step, "epoch": trainer.current_epoch, "weights": digest(model.state_dict().values()),
    "optimizer": digest(numbers), "rate": trainer.optimizers[0].param_groups[0]["lr"], "shown": model.shown,
    "logged": {name: float(one) for name, one in sorted(trainer.callback_metrics.items())},
    "losses": digest(model.losses), "seen": float(model.seen), "kept": digest(model.kept.value),
    "steps": counts["steps"], "written": Path("steps.txt").read_text().split(),
    "rates": counting.rates, "random": [torch.rand(1).item(), random.random(), np.random.rand()],  # noqa: NPY002
    "best": float(getattr(trainer.checkpoint_callback, "best_model_score", None) or 0),
}))  # fmt: skip
