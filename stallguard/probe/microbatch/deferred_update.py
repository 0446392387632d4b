"""What is replaced while a step runs in slices: the optimizer's update, and random numbers of compared rows.

What must happen once a batch is deferred: the update, and the log of the loss.  During one call a method is replaced in
the instance's own dictionary; the class, and hooks on it, stay as they are.

A layer that draws (dropout, noise, random augmentation) draws different numbers for slices than for the whole batch, so
gradients differ although the computation is equivalent.  For the comparison a draw is replaced by numbers that depend
only on the last dimension of its shape: each row of a slice gets the same as each row of the whole batch, about as many
units are dropped as usual, and the training's own code runs.  Draws that cannot be replaced like this are recorded.

The modules of the frameworks (slices_tf, _jax, _torch) replace functions only for the thread that compares: the
script's other threads can draw data meanwhile.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import contextmanager, nullcontext
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from collections.abc import Iterator

    Function = Callable[..., Any]


class HeldUpdate:
    """What a slice would have applied and logged; `gradients` and `loss` are None if there were none.

    `weigh(loss)` returns the slice's loss times its share of the batch.  It is applied before the optimizer scales the
    loss (Keras 3): the gradients of a slice's own mean are larger than the batch's, and could overflow in float16.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self.weigh: Any = None
        self.weighed = False
        self.scales = True  # whether the optimizer's own scaling of the loss is applied
        self.losses: list[Any] = []  # one for each slice
        self.uneven = False  # whether several losses divide by different counts
        self.gradients: list[Any] | None = None
        self.variables: list[Any] = []
        self.loss: Any = None
        self.weighted = False  # whether the loss was logged with the number of samples as its weight

    def apply_gradients(self, grads_and_vars: Any, *_: Any, **__: Any) -> None:
        """Replace `Optimizer.apply_gradients`."""
        pairs = list(grads_and_vars)
        self.apply([gradient for gradient, _ in pairs], [variable for _, variable in pairs])

    def apply(self, grads: Any, trainable_variables: Any = None, **_: Any) -> None:
        """Replace `Optimizer.apply`."""
        self.gradients = list(grads)
        self.variables = list(trainable_variables or [])

    def scale_loss(self, loss: Any) -> Any:
        """Replace `Optimizer.scale_loss`."""
        self.weighed = True
        loss = self.weigh(loss)
        return type(self._optimizer).scale_loss(self._optimizer, loss) if self.scales else loss

    def get_scaled_loss(self, loss: Any) -> Any:
        """Replace the method of Keras 2's LossScaleOptimizer."""
        self.weighed = True
        loss = self.weigh(loss)
        return type(self._optimizer).get_scaled_loss(self._optimizer, loss) if self.scales else loss

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        """Replace `Optimizer.stateless_apply` (JAX): return the state unchanged."""
        self.apply(grads)
        return trainable_variables, optimizer_variables

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Replace `update_state` of the metric that logs the loss."""
        self.loss = values
        self.losses.append(values)
        self.weighted = sample_weight is not None

    def log(self, tracker: Any, loss: Any, batch: Any) -> None:
        """Log the loss of the whole batch, as the framework does."""
        if self.loss is not None:
            tracker.update_state(loss, **({"sample_weight": batch} if self.weighted else {}))


def loss_tracker(model: Any) -> Any:
    """Return the metric that logs the total loss: Keras 3's, otherwise Keras 2's; None if there is none."""
    tracker = getattr(model, "_loss_tracker", None)
    return tracker or getattr(getattr(model, "compiled_loss", None), "_total_loss_mean", None)


@contextmanager
def shadowed(owner: Any, methods: dict[str, Any]) -> Iterator[None]:
    """Replace methods of the object `owner` during the body."""
    own = vars(owner)
    before = {name: own[name] for name in methods if name in own}
    own.update(methods)
    try:
        yield
    finally:
        for name in methods:
            own.pop(name, None)
        own.update(before)


@contextmanager
def holding(model: Any, *methods: str) -> Iterator[HeldUpdate]:
    """Defer the named methods of the model's optimizer, and its log of the loss, during the body."""
    optimizer, tracker = model.optimizer, loss_tracker(model)
    held = HeldUpdate(optimizer)
    scaling = [name for name in ("scale_loss", "get_scaled_loss") if hasattr(optimizer, name)]
    logged = nullcontext() if tracker is None else shadowed(tracker, {"update_state": held.update_state})
    with shadowed(optimizer, {name: getattr(held, name) for name in (*methods, *scaling)}), logged:
        yield held


GOLDEN_RATIO = 0.6180339887498949  # its multiples are spread evenly over (0, 1)
LEAST, MOST = 0.02, 0.98  # so that no number is an extreme of a normal distribution


class Draws:
    """The layers that drew; those in `real` got real random numbers, which differ from slice to slice."""

    def __init__(self) -> None:
        self.layers: dict[str, str] = {}  # name: class
        self.real: set[str] = set()

    def note(self, real: bool = False) -> None:
        """Record the layer whose code runs now: the innermost on the stack."""
        name, kind = "the training step", ""  # without one
        frame: Any = sys._getframe(1)
        while frame is not None:
            owner: Any = frame.f_locals.get("self")
            if any(base.__name__ == "Layer" for base in type(owner).__mro__) and hasattr(owner, "name"):
                name, kind = str(owner.name), type(owner).__name__
                break
            frame = frame.f_back
        self.layers[name] = kind
        if real:
            self.real.add(name)


def field(shape: list[int]) -> list[float]:
    """Return the numbers of the last dimension of a draw, which all others repeat; one for a single dimension."""
    length = shape[-1] if len(shape) > 1 else 1
    return [LEAST + (MOST - LEAST) * ((0.381966 + GOLDEN_RATIO * place) % 1.0) for place in range(length)]


def drawing(noted: Draws, numbers: Any, is_real: Callable[[], bool] = lambda: False) -> Callable[[Function], Function]:
    """Return what makes a random function return numbers(its arguments by name).

    Without `numbers`, or while `is_real()`, it draws real ones, and that is noted.
    """

    def make(original: Function) -> Function:
        signature = inspect.signature(original)

        def draw(*args: Any, **named: Any) -> Any:
            real = numbers is None or is_real()
            noted.note(real)
            if real:
                return original(*args, **named)
            asked = signature.bind(*args, **named)
            asked.apply_defaults()
            return numbers(asked.arguments)

        return draw

    return make


@contextmanager
def replaced(functions: list[tuple[Any, str, Callable[[Function], Function]]]) -> Iterator[None]:
    """Replace `module.name` by make(original) in this thread during the body; skip names that do not exist."""
    thread, before = get_ident(), []
    for module, name, make in functions:
        original = getattr(module, name, None)
        if original is not None:
            before.append((module, name, original))
            setattr(module, name, _in_thread(thread, original, make(original)))
    try:
        yield
    finally:
        for module, name, original in before:
            setattr(module, name, original)


def _in_thread(thread: int, original: Function, other: Function) -> Function:
    def draw(*args: Any, **named: Any) -> Any:
        return (other if get_ident() == thread else original)(*args, **named)

    return draw
