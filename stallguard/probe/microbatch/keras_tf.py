"""Slices for Keras on TensorFlow: Keras 3, Keras 2 (`tf.keras` to 2.15) and `tf_keras`.

The wrapped `train_step` is traced into the user's graph like the original; no Python of the probe runs in a step.  The
first slice is traced outside the loop: it builds what is not built, shows which gradients are None, and takes the
remainder.  A `tf.while_loop` with one iteration at a time runs the others, so that only one slice's activations are in
memory.

The slices are a separate function inside that graph.  If tracing them fails, the user's graph has no part of them, and
the whole batch is traced instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from . import announcements, batch_structure, compare, compare_tf, slice_plan, step_hooks, sums_tf
from .deferred_update import Held, holding, loss_tracker

if TYPE_CHECKING:
    from ..context import Context
    from .announcements import Announcer
    from .compare import Slices

TRAINERS = {
    "keras.src.backend.tensorflow.trainer": "TensorFlowTrainer",
    "keras.src.engine.training": "Model",
    "keras.engine.training": "Model",
    "tf_keras.src.engine.training": "Model",
}


def targets(context: Context, announcer: Announcer, slices: Slices) -> dict[str, Callable[[Any], None]]:
    """Return the patches of the trainers that run on TensorFlow."""

    def patcher(trainer: str) -> Callable[[Any], None]:
        def patch(module: Any) -> None:
            def train_step(original: Any) -> Any:
                return lambda self, data: Step(module.tf, announcer, slices, original, self).run(
                    data, context.factor
                )

            lever = compare_tf.Lever(module.tf)
            step_hooks.patch(context, announcer, slices, getattr(module, trainer), train_step, lever)

        return patch

    return {name: patcher(trainer) for name, trainer in TRAINERS.items()}


class Step:
    """One `train_step` call, run slice by slice."""

    def __init__(self, tf: Any, announcer: Announcer, slices: Slices, original: Any, model: Any) -> None:
        self.tf = tf
        self.announcer = announcer
        self.slices = slices
        self.original = original
        self.model = model

    def run(self, data: Any, factor: int) -> Any:
        """Train one batch in `factor` slices and one update; return the logs."""
        if factor <= 1:
            return self.original(self.model, data)
        comparison = self.slices.comparison(self.model)
        if comparison is not None and comparison.building:
            return compare_tf.held_back(self, data)
        if comparison is not None:
            comparison.compare(compare_tf.Rows(self), data)
        reason = self.slices.reason(self.model) or self._obstacle(data)
        if reason:
            self.announcer.whole(self.model, reason)
        leaves = batch_structure.leaves(data)
        if reason or leaves[0][1].shape[0] == 1:
            return self.original(self.model, data)
        return self._sliced(data, factor)

    def _obstacle(self, data: Any) -> str:
        """Return why this batch cannot be sliced, as far as its shapes are known."""
        if getattr(self.model, "optimizer", None) is None:
            return announcements.NO_OPTIMIZER
        return batch_structure.obstacle([(name, _rows(leaf)) for name, leaf in batch_structure.leaves(data)])

    def _sliced(self, data: Any, factor: int) -> Any:
        batch, cuts, same = self._plan(data, factor)
        eagerly = self.tf.executing_eagerly()
        before = compare_tf.values(self.tf, self.model) if eagerly else []
        with holding(self.model, "apply_gradients", "apply") as held:

            def summed(data: Any) -> Any:
                return self.summed(held, data, cuts, batch, same)

            try:
                logs, sums = (summed if eagerly else self.tf.function(summed, autograph=False))(data)
            except Exception as error:
                if compare.is_lack_of_memory(error):
                    raise
                logs, reason = None, "its step fails in slices (%s)" % compare.described(error)
        if logs is None:
            compare_tf.put_back(before)
            self.slices.stay_whole(self.model, reason)
            return self.original(self.model, data)
        self.announcer.cut()
        if held.variables:
            self.model.optimizer.apply_gradients(zip(sums_tf.mean(self.tf, sums, held), held.variables))
        held.log(loss_tracker(self.model), self.tf.math.divide_no_nan(sums.loss, sums.share), batch)
        return batch_structure.fresh_logs(self.model, logs)

    def _plan(self, data: Any, factor: int) -> tuple[Any, Any, Any]:
        """Return the rows of the batch, its slices, and whether its parts have equal rows (None: they have).

        If only the running graph knows the rows, a batch whose parts differ is one slice with each part whole.
        """
        tf = self.tf
        counts = [_rows(leaf) for _, leaf in batch_structure.leaves(data)]
        if all(isinstance(count, int) for count in counts):
            return counts[0], slice_plan.plan(counts[0], factor), None
        rows = [self.rows(leaf) for _, leaf in batch_structure.leaves(data)]
        same = tf.reduce_all(tf.equal(tf.stack(rows), rows[0]))
        return rows[0], slice_plan.plan(rows[0], tf.where(same, factor, 1), tf.maximum), same

    def rows(self, leaf: Any) -> Any:
        """Return the rows of a leaf as a tensor."""
        tf = self.tf
        if isinstance(leaf, tf.RaggedTensor):
            return tf.cast(leaf.nrows(), tf.int32)
        return tf.cast(
            (leaf.dense_shape if isinstance(leaf, tf.SparseTensor) else tf.shape(leaf))[0], tf.int32
        )

    def summed(self, held: Held, data: Any, cuts: Any, batch: Any, same: Any = None) -> Any:
        """Return (logs, sums) of all slices: first, size and number of the others are `cuts`."""
        logs, sums = self._slice(held, self.cut(data, 0, cuts[0], same), cuts[0], batch)
        return logs, self._others(held, data, cuts, batch, sums)

    def _slice(self, held: Held, data: Any, size: Any, batch: Any) -> Any:
        """Return (logs, sums) of one slice of `size` samples."""
        with slice_plan.slicing(size, batch) as piece:
            held.weigh = lambda loss: loss * self.tf.cast(sums_tf.share_of(self.tf, piece), loss.dtype)
            logs = self.original(self.model, data)
        held.uneven |= piece.uneven
        dense = bool(getattr(self.model, "jit_compile", False))
        return logs, sums_tf.of_slice(self.tf, piece, held, dense)

    def _others(self, held: Held, data: Any, cuts: Any, batch: Any, sums: Any) -> Any:
        tf = self.tf
        first, size, others = cuts

        def body(index: Any, sums: Any) -> Any:
            piece = self.cut(data, first + index * size, size)
            _, more = self._slice(held, piece, size, batch)
            return index + 1, sums_tf.add(tf, sums, more)

        # Otherwise the loop's forward pass could run beside the first slice, and need the memory of two.
        with tf.control_dependencies(tf.nest.flatten(sums)):
            start = tf.constant(0)
        shapes = (start.shape, sums_tf.invariant(tf, sums))
        return tf.while_loop(
            lambda index, _: index < others, body, (start, sums), shapes, parallel_iterations=1
        )[1]

    def cut(self, data: Any, begin: Any, size: Any, same: Any = None) -> Any:
        """Return `size` rows of each leaf from `begin`; all rows of a leaf if `same` is false."""

        def piece(leaf: Any) -> Any:
            if leaf is None:
                return None
            return self._cut_leaf(
                leaf, begin, size if same is None else self.tf.where(same, size, self.rows(leaf))
            )

        return self.tf.nest.map_structure(piece, data)

    def _cut_leaf(self, leaf: Any, begin: Any, size: Any) -> Any:
        rank: Any = getattr(leaf.shape, "rank", None)
        if isinstance(leaf, self.tf.SparseTensor):
            rest = [0] * (len(leaf.shape) - 1)
            begin, size = (self.tf.cast(number, self.tf.int64) for number in (begin, size))
            return self.tf.sparse.slice(leaf, [begin, *rest], [size, *self.tf.unstack(leaf.dense_shape)[1:]])
        if isinstance(leaf, self.tf.RaggedTensor) or rank is None:
            return leaf[begin : begin + size]
        rest = [0] * (rank - 1)
        piece = self.tf.slice(leaf, [begin, *rest], [size, *(-1 for _ in rest)])
        known = size if isinstance(size, int) else None
        return self.tf.ensure_shape(piece, [known, *leaf.shape[1:]])


def _rows(leaf: Any) -> Any:
    """Return the rows of a leaf as far as its type shows them: a number, None for a single value, or "unknown"."""
    shape: Any = getattr(leaf, "shape", ())
    rank: Any = getattr(shape, "rank", len(shape) if isinstance(shape, tuple) else None)
    if rank is None:
        return "unknown"
    return (shape[0] if shape[0] is not None else "unknown") if rank else None
