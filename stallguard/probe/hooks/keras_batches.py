"""Wraps the loops of Keras' models (fit, evaluate, predict) and their single batches."""

from __future__ import annotations

from .. import wire
from ..beats import EPOCH_START, IDLE, ON_BATCH, PREDICTION, VALIDATION
from .wrap import around, own_classes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ..context import Context, Targets

LAZY = ("keras.src.backend.torch.trainer", "keras.src.backend.jax.trainer")  # compile inside the first batch
HOMES = (
    "keras.src.backend.tensorflow.trainer",  # Keras 3
    *LAZY,
    "keras.src.engine.training",  # Keras 2.13 to 2.15
    "keras.src.engine.training_v1",  # graph mode
    "tf_keras.src.engine.training",
    "tf_keras.src.engine.training_v1",
    "keras.engine.training",  # Keras 2.6 to 2.12
    "keras.engine.training_v1",
)


def targets(context: Context) -> Targets:
    """Return the modules that define the models' loops."""
    hooks = BatchHooks(context)
    return dict.fromkeys(HOMES, hooks.patch)


class BatchHooks:
    """The wrappers."""

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
            context.wrap(
                kind, name, around(context, self._check(phase), self.check_closes, self.beats.call_failed)
            )
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
        self.beats.trains()
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


_NAMED = wire.PHASES.index("named")
