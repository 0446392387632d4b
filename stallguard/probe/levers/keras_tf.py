"""Micro-batches for Keras on TensorFlow: Keras 3, Keras 2 (`tf.keras` to 2.15) and `tf_keras`.

The wrapped `train_step` is traced into the user's graph like the original; nothing of ours runs in a step.
The first slice is traced outside the loop: it builds what is unbuilt, shows which gradients are None and
takes the remainder; a `tf.while_loop` with one iteration at a time runs the others, so that only one slice's
activations live at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from . import reach, shares, sums_tf
from .held import Held, holding, loss_tracker

if TYPE_CHECKING:
    from ..context import Context
    from .words import Announcer

TRAINERS = {
    "keras.src.backend.tensorflow.trainer": "TensorFlowTrainer",
    "keras.src.engine.training": "Model",
    "keras.engine.training": "Model",
    "tf_keras.src.engine.training": "Model",
}


def targets(context: Context, announcer: Announcer) -> dict[str, Callable[[Any], None]]:
    """Return the patches of the trainers that run on TensorFlow."""

    def patcher(trainer: str) -> Callable[[Any], None]:
        return lambda module: _patch(context, announcer, getattr(module, trainer), module)

    return {name: patcher(trainer) for name, trainer in TRAINERS.items()}


def _patch(context: Context, announcer: Announcer, trainer: Any, module: Any) -> None:
    def train_step(original: Any) -> Any:
        return lambda self, data: _Step(module.tf, announcer, original, self).run(data, context.factor)

    reach.patch(context, announcer, trainer, train_step)


class _Step:
    """One `train_step` call, run slice by slice."""

    def __init__(self, tf: Any, announcer: Announcer, original: Any, model: Any) -> None:
        self.tf = tf
        self.announcer = announcer
        self.original = original
        self.model = model

    def run(self, data: Any, factor: int) -> Any:
        """Train one batch in `factor` slices and one update; return the logs."""
        if factor <= 1:
            return self.original(self.model, data)
        leaves = [leaf for leaf in self.tf.nest.flatten(data) if leaf is not None]
        reason = self._obstacle(leaves)
        if reason:
            self.announcer.whole(self.model, reason)
            return self.original(self.model, data)
        batch = leaves[0].shape[0]
        if batch is None:
            batch = self.tf.shape(leaves[0])[0]
        if isinstance(batch, int) and batch <= 1:
            return self.original(self.model, data)
        return self._sliced(data, batch, factor)

    def _obstacle(self, leaves: list[Any]) -> str:
        if getattr(self.model, "optimizer", None) is None:
            return reach.NO_OPTIMIZER
        if self.tf.distribute.get_strategy().num_replicas_in_sync > 1:
            return reach.REPLICAS
        if not leaves or any(leaf.shape.rank == 0 for leaf in leaves if hasattr(leaf.shape, "rank")):
            return reach.NO_BATCH
        return ""

    def _sliced(self, data: Any, batch: Any, factor: int) -> Any:
        tf = self.tf
        cuts = shares.plan(batch, factor, max if isinstance(batch, int) else tf.maximum)
        with holding(self.model, "apply_gradients", "apply") as held:
            logs, sums = self._slice(held, data, 0, cuts[0], batch)
            like, variables = held.gradients or [], held.variables
            sums = self._others(held, data, cuts, batch, sums)
        if variables:
            self.model.optimizer.apply_gradients(zip(sums_tf.mean(tf, sums, like), variables))
        held.log(loss_tracker(self.model), tf.math.divide_no_nan(sums.loss, sums.share), batch)
        return reach.fresh_logs(self.model, logs)

    def _slice(self, held: Held, data: Any, begin: Any, size: Any, batch: Any) -> Any:
        """Return (logs, sums) of `size` samples from `begin`."""
        with shares.slicing(size, batch) as piece:
            held.weigh = lambda loss: loss * self.tf.cast(sums_tf.share_of(self.tf, piece), loss.dtype)
            logs = self.original(self.model, self._cut(data, begin, size))
        self.announcer.cut(self.model, piece.uneven)
        dense = bool(getattr(self.model, "jit_compile", False))
        return logs, sums_tf.of_slice(self.tf, piece, held, dense)

    def _others(self, held: Held, data: Any, cuts: Any, batch: Any, sums: Any) -> Any:
        tf = self.tf
        first, size, others = cuts

        def body(index: Any, sums: Any) -> Any:
            _, more = self._slice(held, data, first + index * size, size, batch)
            return index + 1, sums_tf.add(tf, sums, more)

        # Without this the loop's forward pass could start beside the first slice: two slices' memory.
        with tf.control_dependencies(tf.nest.flatten(sums)):
            start = tf.constant(0)
        shapes = (start.shape, sums_tf.invariant(tf, sums))
        return tf.while_loop(
            lambda index, _: index < others, body, (start, sums), shapes, parallel_iterations=1
        )[1]

    def _cut(self, data: Any, begin: Any, size: Any) -> Any:
        return self.tf.nest.map_structure(lambda leaf: self._cut_leaf(leaf, begin, size), data)

    def _cut_leaf(self, leaf: Any, begin: Any, size: Any) -> Any:
        if leaf is None:
            return None
        rank: Any = getattr(leaf.shape, "rank", None)
        if isinstance(leaf, self.tf.SparseTensor):
            rest = [0] * (len(leaf.shape) - 1)
            return self.tf.sparse.slice(leaf, [begin, *rest], [size, *self.tf.unstack(leaf.dense_shape)[1:]])
        if isinstance(leaf, self.tf.RaggedTensor) or rank is None:
            return leaf[begin : begin + size]
        rest = [0] * (rank - 1)
        piece = self.tf.slice(leaf, [begin, *rest], [size, *(-1 for _ in rest)])
        known = size if isinstance(size, int) else None
        return self.tf.ensure_shape(piece, [known, *leaf.shape[1:]])
