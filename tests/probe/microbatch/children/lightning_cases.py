"""Trains small models with Lightning, one after the other, and writes a line of JSON for each into the file `trained`.

    lightning_cases.py CASE...      a case is a name of MODELS, and words: numbers,accumulation=2,rows=45

The word `limit=ROWS` has a training step run out of memory that gets more rows: from micro-batch FROM on (`from=FROM`),
after it has logged (`logged`), in its backward pass (`backward`).  `caught`: the error ends only the case.  `rise` is
that of the most memory that the process had, by the training.
"""

import json
import logging
import os
import resource
import sys
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import torchmetrics
from torch.nn import functional

if "former" in sys.argv:
    import pytorch_lightning as lightning
else:
    import lightning.pytorch as lightning

torch.set_num_threads(1)
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 4.00 GiB"


class Lacking(torch.autograd.Function):
    @staticmethod
    def forward(context, loss, lacks):
        context.lacks = lacks
        return loss.clone()

    @staticmethod
    def backward(context, slope):
        if context.lacks:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        return slope, None


class Numbers(lightning.LightningModule):
    """Learns squares; subclasses say how the loss is computed, and what else the model has."""

    layer = torch.nn.Identity
    metered = True  # a metric of torchmetrics counts the batches

    def __init__(self, width=32):
        super().__init__()
        self.limit, self.lacks = 1 << 30, "step"
        self.error = torchmetrics.MeanAbsoluteError()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, width), torch.nn.ReLU(), type(self).layer(), torch.nn.Linear(width, 1)
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        out = self.layers(x)
        if len(x) > self.limit and self.lacks == "step":
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        loss = self.loss(out, y)
        if self.lacks == "backward":
            loss = Lacking.apply(loss, len(x) > self.limit)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("step", loss, on_step=True, on_epoch=False)
        if len(x) > self.limit and self.lacks == "logged":
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        if self.metered:
            self.error(out, y)
        self.log("error", self.error if self.metered else (out - y).abs().mean(), on_epoch=True)
        return loss

    def loss(self, out, y):
        return functional.mse_loss(out, y)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.02, 0.9)  # Adam hides a factor of all gradients
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Unmetered(Numbers):
    layer = staticmethod(lambda: torch.nn.Dropout(0.3))
    metered = False


class Remembering(Numbers):
    losses: list = []  # noqa: RUF012

    def loss(self, out, y):
        self.losses.append(len(y))
        return super().loss(out, y)


class Zeroing(Numbers):
    def on_before_zero_grad(self, optimizer):
        pass


class Pairs(Numbers):
    def loss(self, out, y):
        return torch.cdist(out, out).mean() + functional.mse_loss(out, y)


class Normalised(Numbers):
    layer = staticmethod(lambda: torch.nn.BatchNorm1d(32))


class Returning(Numbers):
    def training_step(self, batch, batch_idx):
        return {"loss": super().training_step(batch, batch_idx), "x": batch[0]}


class Clipping(Numbers):
    def on_after_backward(self):
        torch.nn.utils.clip_grad_value_(self.parameters(), 0.01)


class Manual(Numbers):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(super().training_step(batch, batch_idx))
        optimizer.step()


MODELS = {
    "numbers": Numbers, "pairs": Pairs, "normalised": Normalised, "returning": Returning, "clipping": Clipping,
    "manual": Manual, "unmetered": Unmetered, "remembering": Remembering, "zeroing": Zeroing,
    "wide": lambda: Numbers(1 << 16),
}  # fmt: skip


class Seen(lightning.Callback):
    def __init__(self, micro=0, limit=0):
        self.batches, self.logged, self.micro, self.limit = 0, [], micro, limit

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += 1
        if self.batches >= self.micro > 0:
            module.limit = self.limit
        values = trainer.callback_metrics
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        named = [float(values[name]) for name in ("loss_step", "step")]
        self.logged.append([trainer.global_step, batch_idx, rate, *named])

    def on_train_epoch_end(self, trainer, module):
        values = trainer.callback_metrics
        self.logged.append([trainer.global_step, -1, 0.0, float(values["loss_epoch"]), float(values["error"])])


def train(case):
    name, *words = case.split(",")
    given = dict(word.split("=") for word in words if "=" in word)
    lightning.seed_everything(3, verbose=False)
    model = MODELS[name]()
    model.limit = int(given.get("limit", 1 << 30)) if "from" not in given else 1 << 30
    model.lacks = next((one for one in words if one in ("logged", "backward")), "step")
    rows = int(given.get("rows", 44))
    x = torch.randn(rows, 8)
    data = torch.utils.data.TensorDataset(x, x[:, :1] ** 2)
    loader = torch.utils.data.DataLoader(
        data,
        int(given.get("batch", 8)),
        shuffle=True,
        num_workers=int(given.get("workers", 0)),
        drop_last="drop" in words,
    )
    seen = Seen(int(given.get("from", 0)), int(given.get("limit", 0)))
    trainer = lightning.Trainer(
        max_epochs=int(given.get("epochs", 2)), accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[seen], log_every_n_steps=1,
        accumulate_grad_batches=int(given.get("accumulation", 1)), val_check_interval=1.0,
        gradient_clip_val=1.0 if "clip" in words else None,
    )  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trainer.fit(model, loader)
    rise = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    weights = torch.cat([one.detach().flatten() for one in model.parameters()])
    result = {
        "case": case, "steps": trainer.global_step, "seen": seen.batches, "logged": seen.logged, "rise": rise,
        "weights": weights.tolist() if len(weights) < 10**5 else [], "random": torch.rand(1).item(),
    }  # fmt: skip
    with Path("trained").open("a") as results:
        print(json.dumps(result), file=results)


if __name__ == "__main__":
    for one in sys.argv[1:]:
        try:
            if one != "former":
                train(one)
        except torch.OutOfMemoryError:
            if "caught" not in one:
                raise
