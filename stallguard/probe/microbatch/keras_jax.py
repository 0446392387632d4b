"""Slices for Keras 3 on JAX: the functional `train_step`, with its slices in a `lax.fori_loop`.

The first slice is computed outside the loop and takes the remainder, because shapes inside the loop must not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from . import announcements, batch_structure, compare, compare_jax, slice_plan, step_hooks
from .deferred_update import HeldUpdate, holding, loss_tracker

if TYPE_CHECKING:
    from ..context import Context
    from .announcements import Announcer
    from .compare import Slices


def targets(context: Context, announcer: Announcer, slices: Slices) -> dict[str, Callable[[Any], None]]:
    """Return the patch of the trainer that runs on JAX."""

    def patch(module: Any) -> None:
        def train_step(original: Any) -> Any:
            return lambda self, state, data: Step(module, announcer, slices, original, self).run(
                state, data, context.factor
            )

        step_hooks.patch(context, announcer, slices, module.JAXTrainer, train_step, compare_jax.Framework())

    return {"keras.src.backend.jax.trainer": patch}


class Step:
    """One `train_step` call, run slice by slice."""

    def __init__(self, module: Any, announcer: Announcer, slices: Slices, original: Any, model: Any) -> None:
        self.module = module
        self.announcer = announcer
        self.slices = slices
        self.original = original
        self.model = model

    def run(self, state: Any, data: Any, factor: int) -> Any:
        """Train one batch in `factor` slices and one update; return (logs, state)."""
        if factor <= 1:
            return self.original(self.model, state, data)
        comparison = self.slices.comparison(self.model)
        if comparison is not None:
            comparison.compare(compare_jax.Rows(self, state), data)
        reason = (
            self.slices.reason(self.model)
            or (announcements.NO_OPTIMIZER if getattr(self.model, "optimizer", None) is None else "")
            or batch_structure.obstacle(
                [(name, compare_jax.rows(leaf)) for name, leaf in batch_structure.leaves(data)]
            )
        )
        if reason:
            self.announcer.whole(self.model, reason)
        batch = 0 if reason else batch_structure.leaves(data)[0][1].shape[0]
        if batch <= 1:
            return self.original(self.model, state, data)
        try:
            return self._sliced(state, data, batch, factor)
        except Exception as error:
            if compare.is_lack_of_memory(error):
                raise
            self.slices.stay_whole(self.model, "its step fails in slices (%s)" % compare.described(error))
            return self.original(self.model, state, data)

    def _sliced(self, state: Any, data: Any, batch: int, factor: int) -> Any:
        first, size, others = slice_plan.plan(batch, factor)
        trainable, _, optimizing, _ = state
        with holding(self.model, "stateless_apply") as held:
            logs, carry = self.slice(held, state, self.cut(data, 0, first), first, batch)

            def body(index: Any, carry: Any) -> Any:
                states, sums = carry
                state = (trainable, states[0], optimizing, states[1])
                piece = self.cut(data, first + index * size, size)
                _, (states, more) = self.slice(held, state, piece, size, batch)
                return states, self.module.jax.tree_util.tree_map(lambda a, b: a + b, sums, more)

            states, sums = self.module.jax.lax.fori_loop(0, others, body, carry)
        self.announcer.cut()
        share, loss, gradients = sums
        mean = self.module.jax.tree_util.tree_map(lambda g: g / share, gradients)
        trainable, optimizing = self.model.optimizer.stateless_apply(optimizing, mean, trainable)
        logs, metrics = self.logged(logs, held, states[1], loss / share, batch)
        return logs, (trainable, states[0], optimizing, metrics)

    def slice(self, held: HeldUpdate, state: Any, data: Any, size: int, batch: int) -> Any:
        """Return (logs, ((other state, metrics), (share, loss, gradients))) of a slice of `size` samples."""
        jax = self.module.jax
        with slice_plan.slicing(size, batch) as piece:
            held.weigh = lambda loss: loss * _share(piece)
            logs, state = self.original(self.model, state, data)
        held.uneven |= piece.uneven
        share = jax.numpy.asarray(_share(piece), "float32")
        loss = 0.0 if held.loss is None else held.loss.mean() * share * piece.logged
        states = ([jax.numpy.asarray(v) for v in state[1]], [jax.numpy.asarray(v) for v in state[3]])
        return logs, (states, (share, jax.numpy.asarray(loss, "float32"), held.gradients or []))

    def cut(self, data: Any, begin: Any, size: int) -> Any:
        """Return `size` rows of each leaf from `begin`."""
        slice_in_dim = self.module.jax.lax.dynamic_slice_in_dim
        return self.module.tree.map_structure(
            lambda leaf: None if leaf is None else slice_in_dim(leaf, begin, size), data
        )

    def logged(self, logs: Any, held: HeldUpdate, metrics: Any, loss: Any, batch: int) -> Any:
        """Return the batch's logs and the metrics' variables after its loss was logged."""
        variables = self.model.metrics_variables
        with self.module.backend.StatelessScope(state_mapping=list(zip(variables, metrics))) as scope:
            held.log(loss_tracker(self.model), loss, batch)
            logs = batch_structure.fresh_logs(self.model, logs)
        values = [scope.get_current_value(variable) for variable in variables]
        return logs, [old if new is None else new for old, new in zip(metrics, values)]


def _share(piece: slice_plan.Slice) -> Any:
    return (piece.size if piece.divisor is None else piece.divisor) / piece.batch
