"""Micro-batches for Keras 3 on JAX: the functional `train_step`, its slices in a `lax.fori_loop`.

The first slice is computed outside the loop: it takes the remainder, since shapes inside may not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from . import reach, shares
from .held import Held, holding, loss_tracker

if TYPE_CHECKING:
    from ..context import Context
    from .words import Announcer


def targets(context: Context, announcer: Announcer) -> dict[str, Callable[[Any], None]]:
    """Return the patch of the trainer that runs on JAX."""

    def patch(module: Any) -> None:
        def train_step(original: Any) -> Any:
            return lambda self, state, data: _Step(module, announcer, original, self).run(
                state, data, context.factor
            )

        reach.patch(context, announcer, module.JAXTrainer, train_step)

    return {"keras.src.backend.jax.trainer": patch}


class _Step:
    """One `train_step` call, run slice by slice."""

    def __init__(self, module: Any, announcer: Announcer, original: Any, model: Any) -> None:
        self.module = module
        self.announcer = announcer
        self.original = original
        self.model = model

    def run(self, state: Any, data: Any, factor: int) -> Any:
        """Train one batch in `factor` slices and one update; return (logs, state)."""
        leaves = [leaf for leaf in self.module.tree.flatten(data) if leaf is not None]
        reason = self._obstacle(leaves)
        if reason and factor > 1:
            self.announcer.whole(self.model, reason)
        if reason or factor <= 1 or leaves[0].shape[0] <= 1:
            return self.original(self.model, state, data)
        return self._sliced(state, data, leaves[0].shape[0], factor)

    def _obstacle(self, leaves: list[Any]) -> str:
        if getattr(self.model, "optimizer", None) is None:
            return reach.NO_OPTIMIZER
        if not leaves or any(not getattr(leaf, "shape", ()) for leaf in leaves):
            return reach.NO_BATCH
        return ""

    def _sliced(self, state: Any, data: Any, batch: int, factor: int) -> Any:
        first, size, others = shares.plan(batch, factor)
        trainable, _, optimizing, _ = state
        with holding(self.model, "stateless_apply") as held:
            logs, carry = self._slice(held, state, data, 0, first, batch)

            def body(index: Any, carry: Any) -> Any:
                states, sums = carry
                state = (trainable, states[0], optimizing, states[1])
                _, (states, more) = self._slice(held, state, data, first + index * size, size, batch)
                return states, self.module.jax.tree_util.tree_map(lambda a, b: a + b, sums, more)

            states, sums = self.module.jax.lax.fori_loop(0, others, body, carry)
        share, loss, gradients = sums
        mean = self.module.jax.tree_util.tree_map(lambda g: g / share, gradients)
        trainable, optimizing = self.model.optimizer.stateless_apply(optimizing, mean, trainable)
        logs, metrics = self._logged(logs, held, states[1], loss / share, batch)
        return logs, (trainable, states[0], optimizing, metrics)

    def _slice(self, held: Held, state: Any, data: Any, begin: Any, size: int, batch: int) -> Any:
        """Return (logs, ((other state, metrics), (share, loss, gradients))) of `size` samples from `begin`."""
        jax = self.module.jax
        with shares.slicing(size, batch) as piece:
            held.weigh = lambda loss: loss * _share(piece)
            logs, state = self.original(self.model, state, self._cut(data, begin, size))
        self.announcer.cut(self.model, piece.uneven)
        share = jax.numpy.asarray(_share(piece), "float32")
        loss = 0.0 if held.loss is None else held.loss.mean() * share * piece.logged
        states = ([jax.numpy.asarray(v) for v in state[1]], [jax.numpy.asarray(v) for v in state[3]])
        return logs, (states, (share, jax.numpy.asarray(loss, "float32"), held.gradients or []))

    def _cut(self, data: Any, begin: Any, size: int) -> Any:
        slice_in_dim = self.module.jax.lax.dynamic_slice_in_dim
        return self.module.tree.map_structure(
            lambda leaf: None if leaf is None else slice_in_dim(leaf, begin, size), data
        )

    def _logged(self, logs: Any, held: Held, metrics: Any, loss: Any, batch: int) -> Any:
        """Return the batch's logs and the metrics' variables after its loss was logged."""
        variables = self.model.metrics_variables
        with self.module.backend.StatelessScope(state_mapping=list(zip(variables, metrics))) as scope:
            held.log(loss_tracker(self.model), loss, batch)
            logs = reach.fresh_logs(self.model, logs)
        values = [scope.get_current_value(variable) for variable in variables]
        return logs, [old if new is None else new for old, new in zip(metrics, values)]


def _share(piece: shares.Slice) -> Any:
    return (piece.size if piece.divisor is None else piece.divisor) / piece.batch
