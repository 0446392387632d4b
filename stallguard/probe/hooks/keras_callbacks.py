"""Records the progress of Keras' own loops by wrapping the class that calls the callbacks; no callback is added.

An added callback would make Keras 2 fetch the logs from the device after each batch, and Keras 3 on JAX and torch run
all callbacks in the main thread.
"""

from __future__ import annotations

import time

from .. import own_frames, wire
from ..beats import EPOCH_END, EPOCH_START, INPUT, PREDICTION, VALIDATION
from ..outbox import TEXT
from .wrap import around, before, keras_backend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..context import Context, Targets
    from ..patches import Function

HOMES = (
    "keras.src.callbacks.callback_list",  # Keras 3
    "keras.src.callbacks",  # Keras 2.13 to 2.15
    "tf_keras.src.callbacks",
    "keras.callbacks",  # Keras 2.6 to 2.12
)

CONVERTS = "_on_train_batch_end"  # what CallbackList does with the logs of a batch
TERMINATES = "TerminateOnNaN"
RESULTS_EVERY = 5.0  # seconds: epochs of a second must not fill the journal


def targets(context: Context) -> Targets:
    """Return the modules that define the class."""
    hooks = CallbackHooks(context)
    return dict.fromkeys(HOMES, hooks.patch)


class CallbackHooks:
    """The wrappers of CallbackList's methods."""

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
        if keras_backend() != "tensorflow":  # each batch is fetched in Python, not inside the step's graph
            self.beats.ahead = INPUT
            taken.append(context.wrap(kind, "on_train_batch_begin", before(context, self.batch_begin)))
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

    def batch_begin(self, callbacks: Any, batch: int, logs: Any = None) -> None:
        """Begin a step, if Keras fetches batches in Python; in a graph it begins with the end of the last batch."""
        self.beats.batch_begins()

    def batch_end(self, original: Function) -> Function:
        """Return the wrapper for the end of a step."""
        code = original.__code__
        if code.co_varnames[: code.co_argcount] != ("self", "batch", "logs"):
            raise TypeError("on_train_batch_end has other arguments in this version")
        return self.beats.around_batch_end(original, self.attend)

    def attend(self, callbacks: Any, logs: Any) -> None:
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

        @own_frames.passing
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


STOP = wire.COMMANDS.index("stop")


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
