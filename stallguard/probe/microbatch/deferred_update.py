"""Holding back what must happen once a batch while a batch is trained in slices: the update, the loss log.

Works by shadowing a method in the instance's own dictionary for the time of one call: the class, and hooks on
the class, stay as they are.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Held:
    """What a slice would have applied and logged.  `gradients` and `loss` are None where nothing came.

    `weigh(loss)` returns the slice's loss times its share of the batch.  It is applied before the optimizer
    scales the loss (Keras 3): a slice's own mean has larger gradients than the batch's, and float16 overflows.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self.weigh: Any = None
        self.weighed = False
        self.scales = True  # whether the optimizer's own scaling of the loss stays in
        self.losses: list[Any] = []  # each slice's own
        self.uneven = False  # whether several losses divide by different counts
        self.gradients: list[Any] | None = None
        self.variables: list[Any] = []
        self.loss: Any = None
        self.weighted = False  # whether the loss was logged with the number of samples as its weight

    def apply_gradients(self, grads_and_vars: Any, *_: Any, **__: Any) -> None:
        """Stand in for `Optimizer.apply_gradients`."""
        pairs = list(grads_and_vars)
        self.apply([gradient for gradient, _ in pairs], [variable for _, variable in pairs])

    def apply(self, grads: Any, trainable_variables: Any = None, **_: Any) -> None:
        """Stand in for `Optimizer.apply`."""
        self.gradients = list(grads)
        self.variables = list(trainable_variables or [])

    def scale_loss(self, loss: Any) -> Any:
        """Stand in for `Optimizer.scale_loss`."""
        self.weighed = True
        loss = self.weigh(loss)
        return type(self._optimizer).scale_loss(self._optimizer, loss) if self.scales else loss

    def get_scaled_loss(self, loss: Any) -> Any:
        """Stand in for that of Keras 2's LossScaleOptimizer."""
        self.weighed = True
        loss = self.weigh(loss)
        return type(self._optimizer).get_scaled_loss(self._optimizer, loss) if self.scales else loss

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        """Stand in for `Optimizer.stateless_apply` (JAX): returns the state unchanged."""
        self.apply(grads)
        return trainable_variables, optimizer_variables

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Stand in for `update_state` of the metric that logs the loss."""
        self.loss = values
        self.losses.append(values)
        self.weighted = sample_weight is not None

    def log(self, tracker: Any, loss: Any, batch: Any) -> None:
        """Log the loss of the whole batch, as the framework would have."""
        if self.loss is not None:
            tracker.update_state(loss, **({"sample_weight": batch} if self.weighted else {}))


def loss_tracker(model: Any) -> Any:
    """Return the metric that logs the total loss: Keras 3's, else Keras 2's; None where there is none."""
    tracker = getattr(model, "_loss_tracker", None)
    return tracker or getattr(getattr(model, "compiled_loss", None), "_total_loss_mean", None)


@contextmanager
def shadowed(owner: Any, stand_in: Any, *methods: str) -> Iterator[None]:
    """Let `stand_in` answer the named methods of the object `owner` for the body."""
    own = vars(owner)
    before = {name: own[name] for name in methods if name in own}
    own.update((name, getattr(stand_in, name)) for name in methods)
    try:
        yield
    finally:
        for name in methods:
            own.pop(name, None)
        own.update(before)


@contextmanager
def holding(model: Any, *methods: str) -> Iterator[Held]:
    """Hold back the named methods of the model's optimizer, and its loss log, for the body."""
    optimizer = model.optimizer
    held = Held(optimizer)
    tracker = loss_tracker(model)
    scaling = [name for name in ("scale_loss", "get_scaled_loss") if hasattr(optimizer, name)]
    with shadowed(optimizer, held, *methods, *scaling):
        if tracker is None:
            yield held
        else:
            with shadowed(tracker, held, "update_state"):
                yield held
