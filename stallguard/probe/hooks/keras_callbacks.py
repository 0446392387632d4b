"""Keras' own loops, by the class that calls the callbacks: never by a callback of ours.

An added callback would force Keras 2 to fetch the logs from the device each batch, and Keras 3 on JAX and torch
to run all callbacks in the main thread; the class that dispatches them costs neither.
"""

from __future__ import annotations

from ..beats import EPOCH_END, EPOCH_START, PREDICTION, VALIDATION, COMMAND
from .. import wire
from .wrap import before

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..context import Context, Targets

HOMES = (
    "keras.src.callbacks.callback_list",  # Keras 3
    "keras.src.callbacks",  # Keras 2.13 to 2.15
    "tf_keras.src.callbacks",
    "keras.callbacks",  # Keras 2.6 to 2.12
    "tensorflow.python.keras.callbacks",  # TensorFlow before 2.6
)
PYTHONIFY = "keras.src.utils.python_utils"


def targets(context: Context) -> Targets:
    """Return the modules that hold the class, and Keras 3's maker of Python logs."""
    hooks = CallbackHooks(context)
    found = dict.fromkeys(HOMES, hooks.patch)
    found[PYTHONIFY] = hooks.patch_logs
    return found


class CallbackHooks:
    """What each event of the class CallbackList stores."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats
        self.stopping: Any = None

    def patch(self, module: Any) -> None:
        """Wrap the events of the CallbackList that `module` defines."""
        kind = vars(module).get("CallbackList")
        if kind is None or kind.__module__ != module.__name__:
            return
        taken = [self.context.wrap(kind, name, before(self.context, action)) for name, action in self._actions()]
        if all(taken):
            self.context.took("callbacks")
        else:
            self.context.note("hooks", "some events of CallbackList are missing", module=module.__name__)

    def _actions(self) -> list[tuple[str, Any]]:
        return [
            ("on_train_batch_begin", self.train_batch_begin),
            ("on_train_batch_end", self.train_batch_end),
            ("on_train_begin", self.train_begin),
            ("on_epoch_begin", self.epoch_begin),
            ("on_epoch_end", self.epoch_end),
            ("on_test_batch_begin", self.check_begin),
            ("on_predict_batch_begin", self.check_begin),
            ("on_test_batch_end", self.test_batch_end),
            ("on_predict_batch_end", self.predict_batch_end),
        ]

    def train_begin(self, callbacks: Any, logs: Any = None) -> None:
        """The loop is set up; the script's own on_train_begin runs next."""
        self.beats.enter(EPOCH_START)

    def epoch_begin(self, callbacks: Any, epoch: int, logs: Any = None) -> None:
        """An epoch begins."""
        params = getattr(callbacks, "params", None) or {}
        self.beats.epoch_begins(epoch, _known(params.get("epochs")), _known(params.get("steps")))

    def train_batch_begin(self, callbacks: Any, batch: int, logs: Any = None) -> None:
        """A step begins."""
        self.beats.batch_begins(batch)

    def train_batch_end(self, callbacks: Any, batch: int, logs: Any = None) -> None:
        """A step ended: one beat, before the script's callbacks run."""
        self.beats.batch_ends(batch)
        if self.beats.slots[COMMAND]:
            self.stop(callbacks.model)

    def epoch_end(self, callbacks: Any, epoch: int, logs: Any = None) -> None:
        """The epoch's callbacks run next."""
        self.beats.enter(EPOCH_END)
        if logs:
            self.beats.loss(logs.get("loss"))

    def check_begin(self, callbacks: Any, batch: int, logs: Any = None) -> None:
        """A batch of validation or prediction begins."""
        self.beats.check_begins(batch)

    def test_batch_end(self, callbacks: Any, batch: int, logs: Any = None) -> None:
        """A batch of validation ended."""
        self.beats.check_ends(batch, VALIDATION)

    def predict_batch_end(self, callbacks: Any, batch: int, logs: Any = None) -> None:
        """A batch of prediction ended."""
        self.beats.check_ends(batch, PREDICTION)

    def stop(self, model: Any) -> None:
        """End this `fit` after the batch, as the supervisor asked; what must happen before comes first."""
        if model is None or model.stop_training:
            return
        for action in self.context.before_stop:
            action(model)
        model.stop_training = True
        self.context.flag(wire.FLAG_STOP_ASKED)
        self.context.note("stop", "asked Keras to end this fit after the batch")

    def patch_logs(self, module: Any) -> None:
        """Keep the loss that Keras 3 made a Python float anyway."""
        beats = self.beats

        def make(original: Any) -> Any:
            def pythonify_logs(*args: Any, **kwargs: Any) -> Any:
                logs = original(*args, **kwargs)
                if logs and beats.slots[_PHASE] != VALIDATION:
                    beats.loss(logs.get("loss"))
                return logs

            return pythonify_logs

        self.context.wrap(module, "pythonify_logs", make)


_PHASE = wire.SLOT["phase"]


def _known(number: Any) -> int:
    """Return a count, -1 where Keras does not know it yet."""
    return number if isinstance(number, int) else -1
