"""What is kept of a fit of Lightning: what its own checkpoint has, and what that leaves out.

Lightning's checkpoint (`dump_checkpoint`) has weights, optimizers, schedules, the position, callbacks with a
state_dict.  It leaves out the sums behind `self.log(..., on_epoch=True)`, buffers that are not persistent, gradients,
random generators, and what the script's classes keep in attributes: a list of losses, a metric of torchmetrics; the
last is script_state.py's.  All else is kept as plain values and the bytes of tensors (tracked_objects.py).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import encoding, object_kinds, random_state, script_state
from .tracked_objects import Packed, filled
from .tracked_torch import LoaderState, OptimizerState, placed

if TYPE_CHECKING:
    from collections.abc import Collection

    from .object_walk import Walk

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
_REDUCTIONS = ("mean", "sum", "max", "min")


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


def _is_private(name: str) -> bool:
    return name.startswith("_")


class Reach:
    """What a fit reaches of the script's objects (script_state.py)."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        torch: Any = sys.modules["torch"]
        core = _library(trainer, ".core")
        # What Lightning and torch give each of their objects is no state of the script's, at once or later.
        self._theirs = {
            kind: {*vars(kind()), *_HPARAMS, *filter(_is_private, object_kinds.named_by_library(kind))} - set(_OWN)
            for kind in (core.LightningModule, core.LightningDataModule, torch.nn.Module)
        }

    def _names(self, holder: Any) -> Collection[str]:
        return next(names for kind, names in self._theirs.items() if isinstance(holder, kind))

    def enter(self, walked: Walk) -> None:
        """Walk the callbacks, the modules, the datamodule, and the script's functions in what Lightning calls."""
        trainer, module = self._trainer, self._trainer.lightning_module
        walked.know(trainer, "trainer")
        modules = script_state.modules_of(module, "module")
        script_state.know_modules(walked, modules)
        if trainer.fit_loop._combined_loader is not None:
            script_state.know_loader(walked, loader_of(trainer))
        schedulers = [one.scheduler for one in trainer.lr_scheduler_configs]
        kept = {"optimizer": trainer.optimizers, "logger": trainer.loggers, "schedule": schedulers}
        for name, listed in kept.items():
            for number, one in enumerate(listed):
                walked.know(one, "%s%d" % (name, number))
        for number, one in enumerate(trainer.callbacks):
            path = "callbacks[%d]" % number
            if object_kinds.is_librarys(type(one)):
                script_state.enter_functions(walked, one, path)
            else:
                walked.enter(one, path)
        for number, one in enumerate(schedulers):
            for place, function in enumerate(getattr(one, "lr_lambdas", ())):
                if object_kinds.is_of_script(function):
                    walked.enter(function, "schedule%d[%d]" % (number, place))
        if trainer.datamodule is not None:
            walked.enter_attributes(trainer.datamodule, "datamodule", self._names(trainer.datamodule))
        script_state.enter_modules(walked, modules, self._names)

    def enter_data(self, walked: Walk) -> None:
        """Walk what the batches are drawn from."""
        walked.know(self._trainer, "trainer")
        if self._trainer.fit_loop._combined_loader is not None:
            script_state.enter_loader(walked, loader_of(self._trainer))


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


def read(trainer: Any, unkept: dict[str, str]) -> dict[str, Any]:
    """Return the state of a training between two batches, except for that of script_state.py; nothing is copied.

    Parts of Lightning's checkpoint that cannot be kept are added to `unkept`.
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
            unkept["checkpoint[%r]" % name] = type(one).__name__
    for name in [name for name, value in dump["callbacks"].items() if not is_plain(value)]:
        unkept["the state of %s" % name] = type(dump["callbacks"].pop(name)).__name__
    parameters, named = dict(module.named_parameters()), dump["state_dict"]
    manual = not module.automatic_optimization  # else Lightning clears them before the next batch
    return {
        "dump": dump, "metadata": dict(getattr(named, "_metadata", None) or {}),
        "trained": {name: one.requires_grad for name, one in parameters.items()},
        "gradients": {n: one.grad for n, one in parameters.items() if one.grad is not None} if manual else {},
        "buffers": {name: one for name, one in module.named_buffers() if name not in named},
        "logged": _logged(trainer), "now": now, "stop": trainer.should_stop,
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


def write(trainer: Any, state: dict[str, Any]) -> None:
    """Set what Lightning's own restore leaves out."""
    module = trainer.lightning_module
    for name, one in module.named_parameters():
        one.requires_grad_(state["trained"][name])
        gradient = state["gradients"].get(name)
        one.grad = None if gradient is None else placed(gradient)
    buffers = dict(module.named_buffers())
    for name, one in state["buffers"].items():
        owner, _, leaf = name.rpartition(".")
        module.get_submodule(owner)._buffers[leaf] = filled(buffers.get(name), one)
    _into_logged(trainer, state["logged"])
    trainer.fit_loop._last_train_dl_reload_epoch = state["reloaded"]
    into_generators(trainer, state["now"])
