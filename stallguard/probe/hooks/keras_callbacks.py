"""Keras' own loops, by the class that calls the callbacks: never by a callback of ours.

An added callback would force Keras 2 to fetch the logs from the device each batch, and Keras 3 on JAX and torch
to run all callbacks in the main thread; the class that dispatches them costs neither.
"""

from __future__ import annotations

from .. import wire
from ..beats import EPOCH_END, EPOCH_START, INPUT, PREDICTION, VALIDATION
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


def targets(context: Context) -> Targets:
    """Return the modules that hold the class."""
    hooks = CallbackHooks(context)
    return dict.fromkeys(HOMES, hooks.patch)


class CallbackHooks:
    """What each event of the class CallbackList stores."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats
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
            ("on_epoch_end", self.epoch_end),
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
        epoch = around(context, self.epoch_begins, self.epoch_begun, self.epoch_failed)
        taken.append(context.wrap(kind, "on_epoch_begin", epoch))
        if all(taken):
            context.took("callbacks")
        else:
            context.note("hooks", "some events of CallbackList are missing", module=module.__name__)

    def train_begin(self, callbacks: Any, logs: Any = None) -> None:
        """The loop is set up; the script's own on_train_begin runs next."""
        self.beats.enter(EPOCH_START)
        if self.beats.fitting == 1:
            self.beats.own = callbacks

    def train_end(self, callbacks: Any, logs: Any = None) -> None:
        """The loop is over; the script's own on_train_end runs next."""
        self.beats.enter(EPOCH_END)
        self.beats.fit_ends()

    def epoch_begins(self, callbacks: Any, epoch: int, logs: Any = None) -> bool:
        """An epoch begins, with the script's callbacks."""
        params = getattr(callbacks, "params", None) or {}
        self.beats.epoch_begins(epoch, _known(params.get("epochs")), _known(params.get("steps")))
        return True

    def epoch_begun(self, state: bool, result: Any) -> None:
        """The first batch is next."""
        self.beats.epoch_begun()

    def epoch_failed(self, state: bool) -> None:
        """A callback raised: the end of the loop says what comes next."""

    def batch_begin(self, callbacks: Any, batch: int, logs: Any = None) -> None:
        """A step begins where Keras has fetched its batch in Python; in a graph it began with the batch before."""
        self.beats.batch_begins()

    def batch_end(self, original: Function) -> Function:
        """Return the wrapper for the end of a step."""
        code = original.__code__
        if code.co_varnames[: code.co_argcount] != ("self", "batch", "logs"):
            raise TypeError("on_train_batch_end has other arguments in this version")
        return self.beats.around_batch_end(original, self.attend)

    def attend(self, callbacks: Any, logs: Any) -> None:
        """Do what was asked for, once a second or on a command: keep the loss, save, end the training."""
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
        """Store the loss where it costs nothing."""
        try:
            if logs and getattr(callbacks, "_async_train", True) is False:
                # Keras 3 has just made a Python number of it in this thread, and waited for the device to do so;
                # where that happens later, or not at all, the loss is left alone.
                self.beats.loss(float(logs["loss"]))
        except (KeyError, TypeError, ValueError):
            pass  # no such entry, or no number: nothing to keep
        except Exception as error:
            self.context.surprise("loss", error)

    def epoch_end(self, callbacks: Any, epoch: int, logs: Any = None) -> None:
        """The epoch's callbacks run next."""
        self.beats.enter(EPOCH_END)
        if logs:
            self.beats.loss(logs.get("loss"))

    def check_begin(self, callbacks: Any, batch: int, logs: Any = None) -> None:
        """A batch of validation or prediction begins."""
        self._check = batch
        self.beats.moved()

    def test_batch_end(self, callbacks: Any, batch: int, logs: Any = None) -> None:
        """A batch of validation ended."""
        self._check_ends(batch, VALIDATION)

    def predict_batch_end(self, callbacks: Any, batch: int, logs: Any = None) -> None:
        """A batch of prediction ended."""
        self._check_ends(batch, PREDICTION)

    def _check_ends(self, batch: int, phase: int) -> None:
        self.beats.enter(phase)
        self.context.add("checks", max(1, batch - self._check + 1))

    def stop(self, callbacks: Any) -> None:
        """End this `fit` after the batch, as the supervisor asked; what must happen before comes first."""
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
    """Return a count, -1 where Keras does not know it yet."""
    return number if isinstance(number, int) else -1
