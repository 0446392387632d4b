"""Keras 3 and Keras 2: its models' loops and single batches, its callbacks, and the updates of its optimizers.

Keras 2 is the package `keras` to 2.15, and `tf_keras`, whose record is made here too.

The progress of its own loops is read by wrapping the class that calls the callbacks; no callback is added.  An added
one would make Keras 2 fetch the logs from the device after each batch, and Keras 3 on JAX and torch run all callbacks
in the main thread.
"""

from __future__ import annotations

import sys
import time

from .. import patches, wire
from ..beats import EPOCH_END, EPOCH_START, IDLE, INPUT, ON_BATCH, OPTIMIZER, PREDICTION, VALIDATION
from ..hooks import SaveHooks, around, before, own_classes
from ..libraries import Library
from ..outbox import TEXT
from ..poll import Poller
from . import tensorflow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ..context import Context, Targets
    from ..libraries import PartPatches
    from ..patches import Function

# Classes with `fit`, by their module: of Keras 3 one for each backend.
TENSORFLOW, TORCH, JAX = (
    "keras.src.backend.tensorflow.trainer", "keras.src.backend.torch.trainer", "keras.src.backend.jax.trainer",
)  # fmt: skip
TRAINERS3 = {TENSORFLOW: "TensorFlowTrainer", TORCH: "TorchTrainer", JAX: "JAXTrainer"}
TRAINERS2 = dict.fromkeys(("keras.src.engine.training", "tf_keras.src.engine.training"), "Model")  # 2.13 and later
TRAINERS = {**TRAINERS3, **TRAINERS2}
ON_TENSORFLOW = {TENSORFLOW: TRAINERS3[TENSORFLOW], **TRAINERS2, "keras.engine.training": "Model"}  # the last: to 2.12
LAZY = (TORCH, JAX)  # compile inside the first batch
MODEL_HOMES = (
    *TRAINERS,
    "keras.src.engine.training_v1",  # graph mode
    "tf_keras.src.engine.training_v1",
    "keras.engine.training",  # Keras 2.6 to 2.12
    "keras.engine.training_v1",
)
CALLBACK_HOMES = (
    "keras.src.callbacks.callback_list",  # Keras 3
    "keras.src.callbacks",  # Keras 2.13 to 2.15
    "tf_keras.src.callbacks",
    "keras.callbacks",  # Keras 2.6 to 2.12
)
OPTIMIZER_HOMES = (
    "keras.src.optimizers.base_optimizer",  # Keras 3
    "keras.src.optimizers.optimizer",  # Keras 2.13 to 2.15
    "keras.src.optimizers.legacy.optimizer_v2",
    "tf_keras.src.optimizers.optimizer",
    "tf_keras.src.optimizers.legacy.optimizer_v2",
    "keras.optimizers.optimizer_experimental.optimizer",  # Keras 2.9 to 2.12
    "keras.optimizers.optimizer_v2.optimizer_v2",
    "keras.optimizer_v2.optimizer_v2",
)
SAVES = {
    **dict.fromkeys(("keras.src.models.model", *TRAINERS2), ("Model", "save save_weights export", "load_weights")),
    "keras.engine.training": ("Model", "save save_weights", "load_weights"),
    **dict.fromkeys(
        ("keras.src.saving.saving_api", "tf_keras.src.saving.saving_api"),
        ("", "save_model save_weights", "load_model load_weights"),
    ),
}
# What each part of the probe wraps, besides the hooks below: of Keras 3, and of Keras 2 in both its packages.
PATCHES: dict[str, PartPatches] = {
    "trackers": {
        "keras.src.callbacks.tensorboard": ("trackers", "patch_callback"),
        # Keras 2; Keras 3 has a package of the last name, whose callback is in the module above.
        "tf_keras.src.callbacks": ("trackers", "patch_callback"),
        "keras.src.callbacks": ("trackers", "patch_callback"),
    },
    "sizes": {module: ("microbatch.fit_sizes", "patch", name) for module, name in TRAINERS.items()},
    "slices": {
        "keras.src.losses.loss": ("microbatch.slice_plan", "patch_loss"),
        "keras.src.metrics.reduction_metrics": ("microbatch.slice_plan", "patch_mean"),
        "keras.src.utils.losses_utils": ("microbatch.slice_plan", "patch_utils"),
        "tf_keras.src.utils.losses_utils": ("microbatch.slice_plan", "patch_utils"),
        **{module: ("microbatch.slices_tf", "patch", name) for module, name in ON_TENSORFLOW.items()},
        TORCH: ("microbatch.slices_torch", "patch"),
        JAX: ("microbatch.slices_jax", "patch"),
    },
    "rows": {
        **{module: ("microbatch.fewer_rows", "patch", name) for module, name in TRAINERS.items()},
        "keras.src.optimizers.base_optimizer": ("microbatch.fewer_rows", "patch_keras3"),
        "keras.src.optimizers.optimizer": ("microbatch.fewer_rows", "patch_keras2"),
        "tf_keras.src.optimizers.optimizer": ("microbatch.fewer_rows", "patch_keras2"),
        "keras.src.optimizers.legacy.optimizer_v2": ("microbatch.fewer_rows", "patch_legacy"),
        "tf_keras.src.optimizers.legacy.optimizer_v2": ("microbatch.fewer_rows", "patch_legacy"),
    },
    "checkpoint": {
        "keras.src.callbacks.callback_list": ("checkpoint.keras_hooks", "patch_callbacks3"),
        "keras.src.trainers.epoch_iterator": ("checkpoint.keras_hooks", "patch_iterator"),
        "keras.src.trainers.trainer": ("checkpoint.keras_hooks", "patch_base_trainer"),
        **{module: ("checkpoint.keras_hooks", "patch_trainer", name) for module, name in TRAINERS3.items()},
        "keras.src.trainers.data_adapters.array_data_adapter": ("checkpoint.keras_hooks", "patch_arrays"),
        **dict.fromkeys(TRAINERS2, ("checkpoint.keras_hooks", "patch_model")),
        "keras.src.engine.data_adapter": ("checkpoint.keras_hooks", "patch_data"),
        "tf_keras.src.engine.data_adapter": ("checkpoint.keras_hooks", "patch_data"),
        "keras.src.utils.tf_utils": ("checkpoint.keras_hooks", "patch_logs"),
        "tf_keras.src.utils.tf_utils": ("checkpoint.keras_hooks", "patch_logs"),
        "tf_keras.src.callbacks": ("checkpoint.keras_hooks", "patch_callbacks2"),
        # Keras 3 has a package of this name, whose list is in a module of its own.
        "keras.src.callbacks": ("checkpoint.keras_hooks", "patch_callbacks2_if_there"),
    },
}
# SeedGenerator: its variable is walked.  The others Keras makes for each fit, around data of the script, which are
# walked.
STATELESS = ("SeedGenerator", "DataAdapter", "DataHandler", "EpochIterator", "PyDatasetEnqueuer", "SequenceEnqueuer")
# Classes that a script's own are derived from, and what objects of them are to a checkpoint.
FAMILIES = {
    "Layer": "Layer", "Model": "Layer", "Metric": "Metric", "Loss": "Loss", "Callback": "Callback",
    "Optimizer": "Optimizer", "BaseOptimizer": "Optimizer", "OptimizerV2": "Optimizer",
}  # fmt: skip
# Modules with functions of numbers, and those functions in them that make objects from names.
NUMBER_MODULES = ("activations", "losses")
MAKERS = frozenset(("deserialize", "get", "serialize"))

CONVERTS = "_on_train_batch_end"  # what CallbackList does with the logs of a batch
TERMINATES = "TerminateOnNaN"
RESULTS_EVERY = 5.0  # seconds: epochs of a second must not fill the journal
STOP, _NAMED = wire.COMMANDS.index("stop"), wire.PHASES.index("named")


def targets(context: Context) -> Targets:
    """Return the modules that define callbacks, models' loops, and an optimizer's base class."""
    callbacks, batches, optimizers = CallbackHooks(context), BatchHooks(context), OptimizerHooks(context)
    return {
        **dict.fromkeys(CALLBACK_HOMES, callbacks.patch),
        **dict.fromkeys(OPTIMIZER_HOMES, optimizers.patch),
        **dict.fromkeys(MODEL_HOMES, batches.patch),
    }


class CallbackHooks:
    """Wraps CallbackList's methods."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats
        self._results_due = 0.0  # when results of an epoch are reported next
        self._check = 0  # index of the batch of validation or prediction that began

    def patch(self, module: Any) -> None:
        """Wrap the events of the CallbackList that `module` defines."""
        kind = vars(module).get("CallbackList")
        if kind is None or kind.__module__ != module.__name__:
            return
        context = self.context
        actions: tuple[tuple[str, Any], ...] = (
            ("on_train_begin", self.train_begin),
            ("on_train_end", self.train_end),
            ("on_test_batch_begin", self.check_begin),
            ("on_predict_batch_begin", self.check_begin),
            ("on_test_batch_end", self.test_batch_end),
            ("on_predict_batch_end", self.predict_batch_end),
        )
        taken = [context.wrap(kind, name, before(context, action)) for name, action in actions]
        taken.append(context.wrap(kind, "on_train_batch_end", self.batch_end))
        if _backend() != "tensorflow":  # each batch is fetched in Python, not inside the step's graph
            self.beats.ahead = INPUT
            taken.append(context.wrap(kind, "on_train_batch_begin", self.batch_begin))
        ending = around(context, self.epoch_end, self.epoch_ended, self.epoch_failed)
        taken.append(context.wrap(kind, "on_epoch_end", ending))
        epoch = around(context, self.epoch_begins, self.epoch_begun, self.epoch_failed)
        taken.append(context.wrap(kind, "on_epoch_begin", epoch))
        if all(taken):
            context.hook_installed("callbacks")
        else:
            context.note("hooks", "some events of CallbackList are missing", module=module.__name__)

    def train_begin(self, callbacks: Any, logs: Any = None) -> None:
        """Enter the start of the loop, before the script's own on_train_begin."""
        self.beats.enter(EPOCH_START)
        if self.beats.fitting == 1:
            self.beats.own = callbacks
            self.read_next_loss(callbacks)

    def train_end(self, callbacks: Any, logs: Any = None) -> None:
        """End the fit, before the script's own on_train_end."""
        self.beats.enter(EPOCH_END)
        self.beats.fit_ends()

    def epoch_begins(self, callbacks: Any, epoch: int, logs: Any = None) -> bool:
        """Begin an epoch, before the script's callbacks."""
        params = getattr(callbacks, "params", None) or {}
        self.beats.epoch_begins(epoch, _known(params.get("epochs")), _known(params.get("steps")))
        return True

    def epoch_begun(self, state: bool, result: Any) -> None:
        """Enter the phase before the first batch."""
        self.beats.epoch_begun()

    def epoch_failed(self, state: bool) -> None:
        """Do nothing after a callback raised: the end of the loop sets the phase."""

    def batch_begin(self, original: Function) -> Function:
        """Return the wrapper for the begin of a step, if batches are fetched in Python.

        In a graph it begins with the end of the last batch.
        """
        _check_arguments(original)
        return self.beats.around_batch_begin(original)

    def batch_end(self, original: Function) -> Function:
        """Return the wrapper for the end of a step."""
        _check_arguments(original)
        return self.beats.around_batch_end(original, self.after_batch)

    def after_batch(self, callbacks: Any, logs: Any) -> None:
        """Have the loss read, save, and end the training if that was commanded; once a second or on a command."""
        self.beats.attention = False
        self.read_next_loss(callbacks)
        for action in self.context.after_batch:
            try:
                action(callbacks, logs)
            except Exception as error:
                self.context.surprise("after a batch", error)
        if self.context.get("command") == STOP:
            self.stop(callbacks)

    def read_next_loss(self, callbacks: Any) -> None:
        """Have the loss of the next batch read when Keras 3.6 or later has converted it, here or in another thread.

        Then Keras has waited for the device, and reading it again waits for nothing.  The method of this one object is
        replaced for one call: a wrapper of the class would cost each batch a call.
        """
        original = getattr(callbacks, CONVERTS, None)
        if original is None or callbacks is not self.beats.own or CONVERTS in vars(callbacks):
            return

        @patches.passing
        def once(batch: int, logs: Any = None) -> Any:
            vars(callbacks).pop(CONVERTS, None)
            result = original(batch, logs)
            if logs:
                self.keep_loss(callbacks, batch, logs)
            return result

        vars(callbacks)[CONVERTS] = once

    def keep_loss(self, callbacks: Any, batch: int, logs: Any) -> None:
        """Store the mean loss of the epoch that runs."""
        try:
            value = float(logs["loss"])
        except Exception:
            return  # no such entry, no number, or a step that failed: JAX raises its error where the result is read
        try:
            self.context.losses.of_epoch_so_far(value, batch, _ending(callbacks))
        except Exception as error:
            self.context.surprise("loss", error)

    def epoch_end(self, callbacks: Any, epoch: int, logs: Any = None) -> tuple[Any, int]:
        """Enter the end of the epoch, before its callbacks."""
        self.beats.enter(EPOCH_END)
        return callbacks, epoch

    def epoch_ended(self, state: tuple[Any, int], result: Any) -> None:
        """Store and report what Keras' History has of the epoch: its numbers are in memory, none waits for the device.

        The learning rate is there if a callback of Keras sets it.
        """
        callbacks, epoch = state
        if self.beats.fitting > 1:
            return
        results = {}
        for name, values in (getattr(getattr(callbacks, "_history", None), "history", None) or {}).items():
            value: Any = values[-1] if values else None
            if type(value) is float or (type(value).__module__ == "numpy" and value.ndim == 0):
                results[name] = float(value)
        self.context.losses.of_epoch(results, epoch, _ending(callbacks))
        now, words = time.monotonic(), ""
        if now < self._results_due:
            return
        for name, number in results.items():
            word = "%s=%.9g " % (name, number)
            if len(word.split()) == 1 and len(words) + len(word) < TEXT:
                words += word
        if words:
            self._results_due = now + RESULTS_EVERY
            self.context.note("epoch", "", epoch=epoch + 1, values=words.rstrip())

    def check_begin(self, callbacks: Any, batch: int, logs: Any = None) -> None:
        """Begin a batch of validation or prediction."""
        self._check = batch
        self.beats.moved()

    def test_batch_end(self, callbacks: Any, batch: int, logs: Any = None) -> None:
        """End a batch of validation."""
        self._check_ends(batch, VALIDATION)

    def predict_batch_end(self, callbacks: Any, batch: int, logs: Any = None) -> None:
        """End a batch of prediction."""
        self._check_ends(batch, PREDICTION)

    def _check_ends(self, batch: int, phase: int) -> None:
        self.beats.enter(phase)
        self.context.add("checks", max(1, batch - self._check + 1))

    def stop(self, callbacks: Any) -> None:
        """End this `fit` after the batch, by the supervisor's command; first call `before_stop` (last checkpoint)."""
        model = callbacks.model
        try:
            if model is None or model.stop_training:
                return
            for action in self.context.before_stop:
                action(callbacks)
            model.stop_training = True
        except Exception as error:
            self.context.surprise("stop", error)
        self.context.flag(wire.FLAG_STOP_ASKED)
        self.context.note("stop", "asked Keras to end this fit after the batch")


def _check_arguments(event: Function) -> None:
    code = event.__code__
    if code.co_varnames[: code.co_argcount] != ("self", "batch", "logs"):
        raise TypeError("%s has other arguments in this version" % event.__name__)


def _ending(callbacks: Any) -> str:
    """Return which callback of the script has ended this fit because of its loss; "" if none has.

    Not by `callbacks.model`: on JAX that property moves the training's state, which is not possible in another thread.
    """
    held = vars(callbacks)
    model = held.get("_model", held.get("model"))
    kinds = [kind.__name__ for one in getattr(callbacks, "callbacks", ()) for kind in type(one).__mro__]
    return TERMINATES if TERMINATES in kinds and getattr(model, "stop_training", False) else ""


def _known(number: Any) -> int:
    """Return a count, -1 if Keras does not know it yet."""
    return number if isinstance(number, int) else -1


class BatchHooks:
    """Wraps the loops of models (fit, evaluate, predict) and their single batches."""

    def __init__(self, context: Context) -> None:
        from weakref import WeakSet  # late: not imported in a process that does not train

        self.context = context
        self.beats = context.beats
        self._warm: Any = WeakSet()

    def patch(self, module: Any) -> None:
        """Wrap the methods of each class in `module` that has a `fit` of its own."""
        lazy = module.__name__ in LAZY
        for kind in own_classes(module, "fit"):
            self._patch_loops(kind, lazy)
            self._patch_batches(kind)

    def _patch_loops(self, kind: Any, lazy: bool) -> None:
        context = self.context
        for name, opens in (
            ("fit", self.fit_opens_lazily if lazy else self.fit_opens),
            ("evaluate", self.evaluate_opens),
            ("predict", self.predict_opens),
        ):
            taken = context.wrap(kind, name, around(context, opens, self.loop_closes, self.loop_fails))
            if taken and name == "fit":
                context.hook_installed("fit")

    def _patch_batches(self, kind: Any) -> None:
        context = self.context
        for name, phase in (("test_on_batch", VALIDATION), ("predict_on_batch", PREDICTION)):
            context.wrap(kind, name, around(context, self._check(phase), self.check_closes, self.beats.call_failed))
        train = around(context, self.batch_opens, self.batch_closes, self.beats.call_failed)
        if context.wrap(kind, "train_on_batch", train):
            context.hook_installed("on_batch")

    def fit_opens(self, model: Any, *args: Any, **kwargs: Any) -> int:
        """Begin a fit, which can be inside another."""
        beats = self.beats
        beats.stride = _stride(model)
        if beats.fitting:
            return self._opens(EPOCH_START)
        before = beats.fit_begins()
        self.context.losses.fit_begins()
        self._opens(EPOCH_START)
        return before

    def fit_opens_lazily(self, model: Any, *args: Any, **kwargs: Any) -> int:
        """Begin a fit on a backend whose compiling no hook observes: the model's first batch is its first run."""
        before = self.fit_opens(model)
        self.beats.cold = model not in self._warm
        self._warm.add(model)
        return before

    def evaluate_opens(self, model: Any, *args: Any, **kwargs: Any) -> int:
        """Begin a validation, inside a fit or alone."""
        return self._opens(VALIDATION)

    def predict_opens(self, model: Any, *args: Any, **kwargs: Any) -> int:
        """Begin a prediction."""
        return self._opens(PREDICTION)

    def _opens(self, phase: int) -> int:
        beats = self.beats
        if not beats.fitting:
            self.context.patches.rest()
        beats.fitting += 1
        return beats.enter(phase)

    def loop_closes(self, before: int, result: Any) -> None:
        """End the loop."""
        self.loop_fails(before)

    def loop_fails(self, before: int) -> None:
        """End the loop and return to the previous phase; between loops that is the script's own code."""
        beats = self.beats
        beats.fitting = max(0, beats.fitting - 1)
        if not beats.fitting:
            beats.own = None
            beats.fit_ends()
            self.context.patches.resume()
        beats.leave(before if beats.fitting or before == _NAMED else IDLE)

    def batch_opens(self, model: Any, *args: Any, **kwargs: Any) -> Optional[int]:
        """Begin train_on_batch."""
        self.beats.mark_training()
        return self.beats.call_begins() if self.beats.may_open() else None

    def batch_closes(self, before: int, result: Any) -> None:
        """Count the batch of train_on_batch; its loss is the first of its results."""
        self.beats.call_ends(before, ON_BATCH)
        self.context.losses.of_batch(result[0] if isinstance(result, (list, tuple)) and result else result)

    def _check(self, phase: int) -> Any:
        def opens(model: Any, *args: Any, **kwargs: Any) -> Optional[int]:
            return self.beats.call_begins(phase) if self.beats.may_open() else None

        return opens

    def check_closes(self, before: int, result: Any) -> None:
        """Count the batch of test_on_batch or predict_on_batch."""
        self.context.add("checks")
        self.beats.call_failed(before)


def _stride(model: Any) -> int:
    """Return how many batches Keras runs at once."""
    stride: Any = getattr(model, "steps_per_execution", None) or getattr(model, "_steps_per_execution", 1)
    if getattr(model, "autotune_steps_per_execution", False):
        return 2  # the number changes over time: with any number above 1 the indices are used
    try:
        return int(stride.numpy() if hasattr(stride, "numpy") else stride)
    except Exception:
        return 1


class OptimizerHooks:
    """Counts the eager updates of optimizers as beats, and registers their counters with the poll thread."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats
        self.poller = Poller(context.beats, context.mail.own_thread)
        self._eager = _always

    def patch(self, module: Any) -> None:
        """Wrap the base classes of `module`."""
        context = self.context
        tensorflow = sys.modules.get("tensorflow.python.eager.context")
        self._eager = getattr(tensorflow, "executing_eagerly", _always)
        backend = _backend()
        for kind in own_classes(module, "apply_gradients"):
            # Torch on Metal does not support a second thread that uses the device.
            if backend != "torch" and context.wrap(kind, "__init__", before(context, self.made)):
                context.hook_installed("poll")
            # On JAX updates are only traced: a call of `apply` is no update.
            if backend != "jax":
                bracket = around(context, self.opens, self.closes, self.beats.call_failed)
                taken = [context.wrap(kind, name, bracket) for name in ("apply", "apply_gradients")]
                if any(taken):
                    context.hook_installed("optimizer")
                for name in ("apply", "apply_gradients"):  # in a loop of Keras its callbacks count
                    context.patches.may_rest(kind, name)

    def made(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        """Register the counter of an optimizer that is being made."""
        self.poller.watch(optimizer)

    def opens(self, *args: Any, **kwargs: Any) -> Optional[int]:
        """Begin an update that runs now; not one that is traced into a graph."""
        return self.beats.call_begins() if self.beats.may_open() and self._eager() else None

    def closes(self, before: int, result: Any) -> None:
        """Count the update."""
        self.beats.call_ends(before, OPTIMIZER)


def _always() -> bool:
    return True


def _backend() -> str:
    """Return the backend of the Keras that is being imported; Keras 2 has only TensorFlow."""
    config = sys.modules.get("keras.src.backend.config")
    choose = getattr(config, "backend", None)
    return str(choose()) if callable(choose) else "tensorflow"


def is_keras(package: str) -> bool:
    """Return whether a package is Keras."""
    return package in ("keras", "tf_keras")


def global_generator() -> Any:
    """Return the state of Keras' global generator of seeds, None if it was not made."""
    states = sys.modules.get("keras.src.backend.common.global_state")
    found = states.get_global_attribute("global_seed_generator") if states else None
    return None if found is None else found.state


def _state() -> Any:
    state, numpy = global_generator(), sys.modules.get("numpy")
    if state is None or numpy is None:
        return None
    return numpy.asarray(state.numpy() if hasattr(state, "numpy") else state)


def _set_state(value: Any) -> None:
    state = global_generator()
    module = sys.modules.get("keras.src.random.seed_generator")
    if state is None and module is not None:  # Keras makes it at its first use
        state = module.global_seed_generator().state
    if state is not None:
        state.assign(value)


def library(package: str, *distributions: str) -> Library:
    """Return the record of a package of Keras: what of the tables above lies in it."""

    def mine(table: dict[str, Any]) -> dict[str, Any]:
        return {module: patch for module, patch in table.items() if module.partition(".")[0] == package}

    def variable_of(array: Any, is_trained: bool) -> Any:
        make = getattr(sys.modules[package], "Variable", None)  # of Keras 3
        dtype = None if array.dtype.hasobject else array.dtype.name
        return make(array, trainable=is_trained, dtype=dtype) if make else tensorflow.variable_of(array, is_trained)

    return Library(
        package,
        trains=True,
        hooks=(lambda context: mine(targets(context)), lambda context: mine(SaveHooks(context, SAVES).targets())),
        patches={part: mine(table) for part, table in PATCHES.items()},
        stateless=STATELESS,
        variable_of=variable_of,
        distributions=distributions,
        generators={"keras": (_state, _set_state)} if package == "keras" else None,
    )


LIBRARY = library("keras", "keras", "keras-nightly")
