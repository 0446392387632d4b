"""What of a fit of Lightning comes back: a JSON object of truths, by what is held."""

import json
import logging
import os
import sys
import tempfile
import time
import warnings
from types import SimpleNamespace

import lightning
import torch
import torchmetrics

from stallguard.probe.checkpoint import lightning_state, script_state
from stallguard.probe.checkpoint.schedule import CheckpointSchedule
from stallguard.probe.checkpoint.tracked_objects import Packed, unpacked

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Odd:
    """An object of the script's."""

    made = 0

    def __init__(self):
        self.words = ["odd"]
        Odd.made += 1


TOTALS = {"batches": 0}


class Noting(lightning.Callback):
    def __init__(self):
        self.numbers = []
        self.pipe = os.pipe()

    def state_dict(self):
        return {"odd": Odd()}

    def on_train_batch_start(self, *_):
        TOTALS["batches"] += 1


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters({"rate": 1})
        self.layer = torch.nn.Linear(2, 1)
        self.metric = torchmetrics.MeanMetric()
        self.register_buffer("mask", torch.zeros(3), persistent=False)
        self.settings, self.seen, self.odd = {"rate": 1}, [], None

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
    reach, kept = lightning_state.Reach(trainer), {"named": [], "unkept": {}}
    context = SimpleNamespace(
        beyond=kept["named"].append, say=lambda _, text: kept["named"].append(text),
        settings=SimpleNamespace(checkpoint_most=1e9),
    )  # fmt: skip
    pace = CheckpointSchedule(0.0, 1.0, time.monotonic())
    kept["script"] = script_state.ScriptState(context, pace, "files", reach.enter, reach.enter_data)

    def begins(*_):
        kept["script"].begin()

    def ends(*_):
        if trainer.global_step == batches:
            model.seen.append(torch.ones(2))
            model.mask += 1
            model.layer.bias.requires_grad_(False)
            model.odd = Odd()
            noting.numbers.append(5)
            kept["state"] = lightning_state.read(trainer, kept["unkept"])
            packed = Packed()
            code = json.loads(json.dumps(packed.code(kept["state"])))
            facts, blobs = script_state.joined(*packed.facts(code), kept["script"].read())
            kept["packed"] = json.loads(json.dumps(facts)), [bytes(one) for one in blobs]
            kept["newest"] = float(trainer._logger_connector._callback_metrics.get("loss", 0))
            kept["sums"] = {
                k: (float(m.compute()), words(m.meta)) for k, m in trainer.fit_loop.epoch_loop._results.items()
            }

    noting.on_train_start, noting.on_train_batch_end = begins, ends
    trainer.fit(model, rows)
    return trainer, model, kept


first, trained, kept = fit(4, Noting())
named = " ".join([*kept["named"], *kept["unkept"]])
TOTALS["batches"], Odd.made = 0, 0
other, model, again = fit(1, Noting())
state = unpacked(*kept["packed"])
fits = lightning_state.fits(other, state), lightning_state.kinds(other) == state["optimizers"]
model.layer.bias.requires_grad_(True)
lightning_state.write(other, state)
before = len(again["named"])
again["script"].restore(script_state.kept_in(*kept["packed"]))
results = other.fit_loop.epoch_loop._results
changed = {path for path, *_ in kept["packed"][0]["script_state"]["parts"]["script"]["entries"]}
print(json.dumps({
    "it fits its own kind": all(fits),
    "only what was named is lost": all("pipe" in one for one in again["named"][before:]),
    "sums": {k: float(m.compute()) for k, m in results.items()} == {k: one for k, (one, _) in kept["sums"].items()},
    "sums are of the same words": all(words(results[k].meta) == meta for k, (_, meta) in kept["sums"].items()),
    "a metric is that of the module": any(m.__dict__.get("value") is model.metric for m in results.values()),
    "a list": [one.tolist() for one in model.seen] == [[1.0, 1.0]],
    "a list of a callback": other.callbacks[-1].numbers == [5] or any(
        getattr(one, "numbers", None) == [5] for one in other.callbacks),
    "a buffer that is not persistent": model.mask.tolist() == [1.0, 1.0, 1.0],
    "what is trained": not model.layer.bias.requires_grad,
    "an object": isinstance(model.odd, Odd) and model.odd.words == ["odd"],
    "an attribute of a class": Odd.made == 2,
    "a global that a callback names": TOTALS["batches"] == 4,
    "settings are not kept": "module.settings" not in changed and "module.seen" in changed,
    "newest values": float(other._logger_connector._callback_metrics["loss"]) == kept["newest"],
    "what cannot be kept is named": "callbacks[0].pipe" in named or "callbacks[1].pipe" in named,
    "the state of a callback is named": "Noting" in named,
    "hyperparameters are not named": "hparams" not in named,
    "no pickle": "pickle" not in json.dumps(kept["packed"][0]),
}))  # fmt: skip
sys.stdout.flush()
