"""What of a fit of Lightning comes back: a JSON object of truths, by what is held."""

import json
import logging
import sys
import tempfile
import warnings

import lightning
import torch
import torchmetrics

from stallguard.probe.checkpoint import lightning_state
from stallguard.probe.checkpoint.tracked_objects import Packed, unpacked

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Odd:
    """An object of the script's."""


class Noting(lightning.Callback):
    def __init__(self):
        self.numbers = []

    def state_dict(self):
        return {"odd": Odd()}


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters({"rate": 1})
        self.layer = torch.nn.Linear(2, 1)
        self.metric = torchmetrics.MeanMetric()
        self.register_buffer("mask", torch.zeros(3), persistent=False)
        self.settings, self.seen, self.odd = {"rate": 1}, [], None
        self.data = torch.zeros(lightning_state.BIG // 4 + 1)

    def training_step(self, batch, _index):
        loss = self.layer(batch[0]).mean()
        self.metric.update(loss.detach())
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("sum", loss, on_step=False, on_epoch=True, reduce_fx=sum)
        self.log("metric", self.metric, on_epoch=True, on_step=False)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def words(meta):
    return {**vars(meta), "_sync": (meta.sync.op, meta.sync.should, meta.sync.rank_zero_only)}


def fit(batches, noting):
    torch.manual_seed(1)
    model = Model()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_steps=batches, logger=False, enable_checkpointing=False, max_epochs=-1,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[noting],
        default_root_dir=tempfile.gettempdir(),
    )  # fmt: skip
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 2)), 4)
    kept = {}

    def begins(*_):
        kept.setdefault("attributes", lightning_state.Attributes(trainer))

    def ends(*_):
        if trainer.global_step == batches:
            model.seen.append(torch.ones(2))
            model.mask += 1
            model.layer.bias.requires_grad_(False)
            model.odd = Odd()
            noting.numbers.append(5)
            kept["state"] = lightning_state.read(trainer, kept["attributes"])
            packed = Packed()
            code = json.loads(json.dumps(packed.code(kept["state"])))
            facts, blobs = packed.facts(code)
            kept["packed"] = json.loads(json.dumps(facts)), [bytes(one) for one in blobs]
            kept["newest"] = float(trainer._logger_connector._callback_metrics.get("loss", 0))
            kept["sums"] = {
                k: (float(m.compute()), words(m.meta)) for k, m in trainer.fit_loop.epoch_loop._results.items()
            }

    noting.on_train_start, noting.on_train_batch_end = begins, ends
    trainer.fit(model, rows)
    return trainer, model, kept


first, trained, kept = fit(4, Noting())
named = dict(kept["attributes"].unkept)
other, model, again = fit(1, Noting())
state = unpacked(*kept["packed"])
fits = lightning_state.fits(other, state), lightning_state.kinds(other) == state["optimizers"]
model.layer.bias.requires_grad_(True)
lost = lightning_state.write(other, again["attributes"], state)
results = other.fit_loop.epoch_loop._results
changed = {name for _, name, _ in kept["state"]["attributes"]}
print(json.dumps({
    "it fits its own kind": all(fits),
    "nothing is lost": lost == [],
    "sums": {k: float(m.compute()) for k, m in results.items()} == {k: one for k, (one, _) in kept["sums"].items()},
    "sums are of the same words": all(words(results[k].meta) == meta for k, (_, meta) in kept["sums"].items()),
    "a metric is that of the module": any(m.__dict__.get("value") is model.metric for m in results.values()),
    "a list": [one.tolist() for one in model.seen] == [[1.0, 1.0]],
    "a list of a callback": other.callbacks[-1].numbers == [5] or any(
        getattr(one, "numbers", None) == [5] for one in other.callbacks),
    "a buffer that is not persistent": model.mask.tolist() == [1.0, 1.0, 1.0],
    "what is trained": not model.layer.bias.requires_grad,
    "settings are not kept": "settings" not in changed and "seen" in changed,
    "newest values": float(other._logger_connector._callback_metrics["loss"]) == kept["newest"],
    "an object is named": named.get("module.odd") == "Odd",
    "large data are named": named.get("module.data") == "Tensor",
    "the state of a callback is named": any("Noting" in name for name in named),
    "hyperparameters are not named": not any("hparams" in name for name in named),
    "no pickle": "pickle" not in json.dumps(kept["packed"][0]),
}))  # fmt: skip
sys.stdout.flush()
