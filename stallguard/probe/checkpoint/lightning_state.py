"""What is kept of a fit of Lightning: what its own checkpoint has, and what that leaves out.

Lightning's checkpoint (`dump_checkpoint`) has weights, optimizers, schedules, the position, callbacks with a
state_dict.  It leaves out the sums behind `self.log(..., on_epoch=True)`, buffers that are not persistent, gradients,
random generators, and what the script's classes keep in attributes: a list of losses, a metric of torchmetrics.  All is
kept as plain values and the bytes of tensors (tracked_objects.py); no pickle is made or read.

Of attributes only those are kept that ever changed since the fit began: the others are the script's settings.
"""

from __future__ import annotations

import json
import sys
import zlib
from typing import Any

from . import encoding, object_kinds, random_state
from .tracked_objects import Packed, filled
from .tracked_torch import LoaderState, OptimizerState, is_tensor, placed

BIG = 64 << 20  # bytes of an attribute: a larger one is data; reading it for each checkpoint takes 0.1 s on a CPU
# Without these a fit cannot go on; of the rest of Lightning's checkpoint the parts are kept that have plain values.
_NEEDED = (
    "epoch",
    "global_step",
    "pytorch-lightning_version",
    "state_dict",
    "loops",
    "optimizer_states",
    "lr_schedulers",
)
_OWN = ("training", "_automatic_optimization")  # of the attributes that Lightning and torch give each module: a state
_HPARAMS = {"_hparams", "_hparams_initial", "_hparams_name", "_log_hyperparams"}  # of save_hyperparameters
_CONTAINERS = (list, dict, tuple, set)
_REDUCTIONS = ("mean", "sum", "max", "min")

Holders = dict[str, Any]  # by path: modules, callbacks, the datamodule


def _library(trainer: Any, name: str) -> Any:
    """Return a module of the Lightning that a trainer is of, "lightning.pytorch" or "pytorch_lightning"."""
    kind = next(one for one in type(trainer).__mro__ if one.__module__.endswith(".trainer.trainer"))
    return sys.modules[kind.__module__[: -len(".trainer.trainer")] + name]


def loader_of(trainer: Any) -> Any:
    """Return the DataLoader of a training."""
    return trainer.fit_loop._combined_loader.flattened[0]


def generators(trainer: Any) -> dict[str, Any]:
    """Return the states of all random generators, and of what the DataLoader draws from."""
    try:
        loader = LoaderState(loader_of(trainer)).read()
    except TypeError:  # one of those that `unsure` names
        loader = None
    return {"random": random_state.capture(), "loader": loader}


def into_generators(trainer: Any, state: dict[str, Any]) -> None:
    """Set what `generators` returned."""
    random_state.restore(state["random"])
    if state["loader"] is not None:
        LoaderState(loader_of(trainer)).write(state["loader"])


def unsure(trainer: Any) -> str:
    """Return why the batches of a DataLoader can be others after a resume, "" if they are the same."""
    try:
        LoaderState(loader_of(trainer))
    except TypeError as error:
        return str(error)
    return ""


def is_plain(value: Any) -> bool:
    """Return whether a value can be kept."""
    try:
        Packed(dry=True).code(value)
    except Exception:
        return False
    return True


class Attributes:
    """The attributes of the script's objects in a fit, from its beginning on."""

    def __init__(self, trainer: Any) -> None:
        """Note their values now, as the script has set them."""
        self._trainer = trainer
        torch: Any = sys.modules["torch"]
        core = _library(trainer, ".core")
        # What Lightning and torch give each of their objects is no state of the script's; nor what it began with.
        self._theirs = {
            kind: (vars(kind()).keys() | _HPARAMS) - set(_OWN)
            for kind in (core.LightningModule, core.LightningDataModule, torch.nn.Module)
        }
        self.unkept: dict[str, str] = {}  # path: class of what cannot be kept
        self._begun = {path: _sum(value) for path, value in self._read().items()}
        # Also what has its first value again: a later attempt's check of the validation changes it before the resume.
        self._ever: set[tuple[str, str]] = set()

    def _holders(self) -> Holders:
        trainer = self._trainer
        found = {"module." + name: one for name, one in trainer.lightning_module.named_modules()}
        for number, one in enumerate(trainer.callbacks):
            if not object_kinds.is_librarys(type(one)):
                found["callback %d" % number] = one
        if trainer.datamodule is not None:
            found["datamodule"] = trainer.datamodule
        return found

    def _read(self) -> dict[tuple[str, str], Any]:
        found = {}
        module: Any = sys.modules["torch"].nn.Module
        for path, holder in self._holders().items():
            theirs = next(
                (names for kind, names in self._theirs.items() if isinstance(holder, kind)), frozenset({"trainer"})
            )
            for name, value in list(vars(holder).items()):
                if name in theirs or isinstance(value, module) or getattr(value, "grad_fn", None) is not None:
                    continue
                if is_plain(value) and _size(value) <= BIG:
                    found[path, name] = value
                elif not object_kinds.is_librarys(type(holder)) and (
                    isinstance(value, _CONTAINERS) or is_tensor(value) or not object_kinds.is_librarys(type(value))
                ):
                    self.unkept["%s.%s" % (path.rstrip("."), name)] = type(value).__name__
        return found

    def changed(self) -> list[tuple[str, str, Any]]:
        """Return (path of the holder, name, value) of those that have changed since the fit began, at any call."""
        values = self._read()
        self._ever |= {key for key, value in values.items() if self._begun.get(key) != _sum(value)}
        return [(*key, value) for key, value in values.items() if key in self._ever]

    def write(self, changed: list[tuple[str, str, Any]]) -> list[str]:
        """Set what `changed` returned; return the paths of holders that are not there."""
        holders, lost = self._holders(), []
        for path, name, value in changed:
            if path not in holders:
                lost.append(path)
                continue
            self._ever.add((path, name))
            own: Any = vars(holders[path])
            found = filled(own.get(name), value)
            if found is not own.get(name):
                own[name] = found
        return lost


def _size(value: Any) -> int:
    """Return how many bytes of tensors and arrays a value has; of a container, those of its entries."""
    if isinstance(value, (list, tuple, dict)):
        return sum(map(_size, value.values() if isinstance(value, dict) else value))
    if is_tensor(value):
        return int(value.numel() * value.element_size())
    return int(getattr(value, "nbytes", 0))


def _sum(value: Any) -> tuple[int, ...]:
    packed = Packed()
    code = packed.code(value)
    facts, blobs = packed.facts(code)
    return zlib.crc32(json.dumps([code, facts["arrays"], facts["tensors"]], default=str).encode()), *map(
        zlib.crc32, blobs
    )


# --- what is logged -----------------------------------------------------------------------------------------------


def _logged(trainer: Any) -> dict[str, Any]:
    """Return the sums behind the means of the epoch, and the newest values."""
    connector, sums = trainer._logger_connector, []
    for key, one in trainer.fit_loop.epoch_loop._results.items():
        meta = {name: value for name, value in vars(one.meta).items() if name not in ("_sync", "reduce_fx")}
        sync = one.meta.sync
        values = {
            name: vars(one).get(name)
            for name in ("value", "cumulated_batch_size", "_forward_cache", "_computed", "_update_count", "has_reset")
            if name != "value" or one.is_tensor  # else it is a metric of the module, whose attributes are kept
        }
        sums.append({
            "key": key, "meta": meta, "reduce": one.meta.reduce_fx.__name__,
            "torch": one.meta.reduce_fx.__module__ != "builtins",
            "sync": {"_should": sync.should, "rank_zero_only": sync.rank_zero_only}, "is_tensor": one.is_tensor,
            "values": values,
        })  # fmt: skip
    return {
        "sums": sums, "callback": connector._callback_metrics, "logged": connector._logged_metrics,
        "bar": connector._progress_bar_metrics, "first": connector._first_loop_iter, "function": connector._current_fx,
    }  # fmt: skip


def _into_logged(trainer: Any, state: dict[str, Any]) -> None:
    connector, results = trainer._logger_connector, trainer.fit_loop.epoch_loop._results
    known = _library(trainer, ".trainer.connectors.logger_connector.result")
    torch: Any = sys.modules["torch"]
    metrics = dict(trainer.lightning_module.named_modules())
    results.clear()
    for one in state["sums"]:
        if one["reduce"] not in _REDUCTIONS:
            raise encoding.NotPlain(str(one["reduce"]))
        reduce = getattr(torch if one["torch"] else sys.modules["builtins"], one["reduce"])
        meta = known._Metadata(**one["meta"], reduce_fx=reduce)
        meta.sync = known._Sync(fn=trainer.strategy.reduce, **one["sync"])
        results[one["key"]] = metric = known._ResultMetric(meta, one["is_tensor"])
        values = dict(one["values"])
        if not one["is_tensor"]:
            values["value"] = metrics[one["meta"]["metric_attribute"]]
        for name, value in values.items():
            if name in vars(metric) or value is not None:
                object.__setattr__(metric, name, filled(None, value))
    connector._callback_metrics, connector._logged_metrics, connector._progress_bar_metrics = (
        filled(None, state[name]) for name in ("callback", "logged", "bar")
    )
    connector._first_loop_iter, connector._current_fx = state["first"], state["function"]


# --- the whole ----------------------------------------------------------------------------------------------------


def read(trainer: Any, attributes: Attributes) -> dict[str, Any]:
    """Return the state of a training between two batches; nothing is copied.

    Parts of Lightning's checkpoint that cannot be kept are added to `attributes.unkept`.
    """
    now = generators(trainer)
    module = trainer.lightning_module
    dump = trainer._checkpoint_connector.dump_checkpoint(False)  # all of it, not the weights alone
    needed = {*_NEEDED, type(trainer.precision_plugin).__qualname__}
    unlike = [
        name for name, value in dump.items() if name not in needed and name != "callbacks" and not is_plain(value)
    ]
    for name in unlike:
        one = dump.pop(name)
        if not name.startswith("hparams") and name != "hyper_parameters":  # those the script passes again
            attributes.unkept["checkpoint[%r]" % name] = type(one).__name__
    for name in [name for name, value in dump["callbacks"].items() if not is_plain(value)]:
        attributes.unkept["the state of %s" % name] = type(dump["callbacks"].pop(name)).__name__
    parameters, named = dict(module.named_parameters()), dump["state_dict"]
    manual = not module.automatic_optimization  # else Lightning clears them before the next batch
    return {
        "dump": dump, "metadata": dict(getattr(named, "_metadata", None) or {}),
        "trained": {name: one.requires_grad for name, one in parameters.items()},
        "gradients": {n: one.grad for n, one in parameters.items() if one.grad is not None} if manual else {},
        "buffers": {name: one for name, one in module.named_buffers() if name not in named},
        "attributes": attributes.changed(), "logged": _logged(trainer), "now": now, "stop": trainer.should_stop,
        "reloaded": trainer.fit_loop._last_train_dl_reload_epoch,
        "optimizers": kinds(trainer),
        "shapes": {name: list(one.shape) for name, one in parameters.items()},
    }  # fmt: skip


def kinds(trainer: Any) -> list[Any]:
    """Return the classes of the optimizers with the sizes of their groups, and those of the schedules."""
    optimizers = [
        [type(one).__name__, *(len(group["params"]) for group in one.param_groups)] for one in trainer.optimizers
    ]
    return [*optimizers, *([type(one.scheduler).__name__] for one in trainer.lr_scheduler_configs)]


def fits(trainer: Any, state: dict[str, Any]) -> bool:
    """Return whether a state is one of such a model."""
    parameters = trainer.lightning_module.named_parameters()
    return bool({name: list(one.shape) for name, one in parameters} == state["shapes"])


def as_lightnings(state: dict[str, Any]) -> dict[str, Any]:
    """Return the checkpoint that Lightning restores from."""
    dump: dict[str, Any] = dict(state["dump"])
    dump["state_dict"]._metadata = state["metadata"]
    return dump


def into_optimizers(trainer: Any, state: dict[str, Any]) -> None:
    """Give the optimizers the state with its types: Lightning converts it to those of the parameters."""
    for optimizer, one in zip(trainer.optimizers, state["dump"]["optimizer_states"]):
        OptimizerState(optimizer).write(one)


def write(trainer: Any, attributes: Attributes, state: dict[str, Any]) -> list[str]:
    """Set what Lightning's own restore leaves out.  Return the paths of objects of the script that are not there."""
    module = trainer.lightning_module
    for name, one in module.named_parameters():
        one.requires_grad_(state["trained"][name])
        gradient = state["gradients"].get(name)
        one.grad = None if gradient is None else placed(gradient)
    buffers = dict(module.named_buffers())
    for name, one in state["buffers"].items():
        owner, _, leaf = name.rpartition(".")
        module.get_submodule(owner)._buffers[leaf] = filled(buffers.get(name), one)
    lost = attributes.write(state["attributes"])
    _into_logged(trainer, state["logged"])
    trainer.fit_loop._last_train_dl_reload_epoch = state["reloaded"]
    into_generators(trainer, state["now"])
    return lost
