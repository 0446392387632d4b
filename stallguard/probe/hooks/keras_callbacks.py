"""Records the progress of Keras' own loops by wrapping the class that calls the callbacks; no callback is added.

An added callback would make Keras 2 fetch the logs from the device after each batch, and Keras 3 on JAX and torch run
all callbacks in the main thread.
"""

from __future__ import annotations

import time

from .. import wire
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
        """Store the loss, save, and end the training if that was commanded; once a second or on a command."""
        self.beats.attention = False
        self.keep_loss(callbacks, logs)
        for action in self.context.after_batch:
            try:
                action(callbacks)
            except Exception as error:
                self.context.surprise("after a batch", error)
        if self.context.get("command") == STOP:
            self.stop(callbacks)

    def keep_loss(self, callbacks: Any, logs: Any) -> None:
        """Store the loss, if that does not wait for the device."""
        try:
            if logs and getattr(callbacks, "_async_train", True) is False:
                # Keras 3 has just waited for the device and converted the loss in this thread.  If that happens later
                # or not at all, the loss is not read.
                self.beats.loss(float(logs["loss"]))
        except (KeyError, TypeError, ValueError):
            pass  # no such entry, or no number
        except Exception as error:
            self.context.surprise("loss", error)

    def epoch_end(self, callbacks: Any, epoch: int, logs: Any = None) -> tuple[Any, int]:
        """Enter the end of the epoch, before its callbacks."""
        self.beats.enter(EPOCH_END)
        if logs:
            self.beats.loss(logs.get("loss"))
        return callbacks, epoch

    def epoch_ended(self, state: tuple[Any, int], result: Any) -> None:
        """Report what Keras' History has of the epoch: its numbers are in memory already, none waits for the device.

        The learning rate is there if a callback of Keras sets it.
        """
        callbacks, epoch = state
        now = time.monotonic()
        if self.beats.fitting > 1 or now < self._results_due:
            return
        kept = getattr(getattr(callbacks, "_history", None), "history", None) or {}
        words = ""
        for name, values in kept.items():
            value: Any = values[-1] if values else None
            if type(value) is not float and not (type(value).__module__ == "numpy" and value.ndim == 0):
                continue
            word = "%s=%.6g " % (name, value)
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


def _known(number: Any) -> int:
    """Return a count, -1 if Keras does not know it yet."""
    return number if isinstance(number, int) else -1
