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
from .deferred_update import HeldUpdate, holding, loss_tracker

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

            framework = compare_tf.Framework(module.tf)
            step_hooks.patch(context, announcer, slices, getattr(module, trainer), train_step, framework)

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
        leaves = batch_structure.leaves(data)
        reason = (
            self.slices.reason(self.model)
            or (announcements.NO_OPTIMIZER if getattr(self.model, "optimizer", None) is None else "")
            or batch_structure.obstacle([(name, _rows(leaf)) for name, leaf in leaves])
        )
        if reason:
            self.announcer.whole(self.model, reason)
        if reason or leaves[0][1].shape[0] == 1:
            return self.original(self.model, data)
        return self._sliced(data, factor)

    def _sliced(self, data: Any, factor: int) -> Any:
        tf, leaves = self.tf, [leaf for _, leaf in batch_structure.leaves(data)]
        counts: list[Any] = [_rows(leaf) for leaf in leaves]
        same: Any = None
        if all(isinstance(count, int) for count in counts):
            batch = counts[0]
            cuts = slice_plan.plan(batch, factor)
        else:
            # Only the running graph knows the rows.  A batch whose parts differ is one slice with each part whole.
            counts = [self.rows(leaf) for leaf in leaves]
            batch = counts[0]
            same = tf.reduce_all(tf.equal(tf.stack(counts), batch))
            cuts = slice_plan.plan(batch, tf.where(same, factor, 1), tf.maximum)
        eagerly = tf.executing_eagerly()
        before = compare_tf.values(tf, self.model) if eagerly else []
        with holding(self.model, "apply_gradients", "apply") as held:

            def summed(data: Any) -> Any:
                return self.summed(held, data, cuts, batch, same)

            try:
                logs, sums = (summed if eagerly else tf.function(summed, autograph=False))(data)
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
            self.model.optimizer.apply_gradients(zip(sums_tf.mean(tf, sums, held), held.variables))
        held.log(loss_tracker(self.model), tf.math.divide_no_nan(sums.loss, sums.share), batch)
        return batch_structure.fresh_logs(self.model, logs)

    def rows(self, leaf: Any) -> Any:
        """Return the rows of a leaf as a tensor."""
        tf = self.tf
        if isinstance(leaf, tf.RaggedTensor):
            return tf.cast(leaf.nrows(), tf.int32)
        return tf.cast(
            (leaf.dense_shape if isinstance(leaf, tf.SparseTensor) else tf.shape(leaf))[0], tf.int32
        )

    def summed(self, held: HeldUpdate, data: Any, cuts: Any, batch: Any, same: Any = None) -> Any:
        """Return (logs, sums) of all slices: first, size and number of the others are `cuts`."""
        tf = self.tf
        first, size, others = cuts
        logs, sums = self._slice(held, self.cut(data, 0, first, same), first, batch)

        def body(index: Any, sums: Any) -> Any:
            piece = self.cut(data, first + index * size, size)
            _, more = self._slice(held, piece, size, batch)
            return index + 1, sums_tf.add(tf, sums, more)

        # Otherwise the loop's forward pass could run beside the first slice, and need the memory of two.
        with tf.control_dependencies(tf.nest.flatten(sums)):
            start = tf.constant(0)
        shapes = (start.shape, sums_tf.invariant(tf, sums))
        _, sums = tf.while_loop(
            lambda index, _: index < others, body, (start, sums), shapes, parallel_iterations=1
        )
        return logs, sums

    def _slice(self, held: HeldUpdate, data: Any, size: Any, batch: Any) -> Any:
        """Return (logs, sums) of one slice of `size` samples."""
        with slice_plan.slicing(size, batch) as piece:
            held.weigh = lambda loss: loss * self.tf.cast(sums_tf.share_of(self.tf, piece), loss.dtype)
            logs = self.original(self.model, data)
        held.uneven |= piece.uneven
        dense = bool(getattr(self.model, "jit_compile", False))
        return logs, sums_tf.of_slice(self.tf, piece, held, dense)

    def cut(self, data: Any, begin: Any, size: Any, same: Any = None) -> Any:
        """Return `size` rows of each leaf from `begin`; all rows of a leaf if `same` is false."""
        tf = self.tf

        def piece(leaf: Any) -> Any:
            if leaf is None:
                return None
            count = size if same is None else tf.where(same, size, self.rows(leaf))
            rank: Any = getattr(leaf.shape, "rank", None)
            if isinstance(leaf, tf.SparseTensor):
                start, count = (tf.cast(number, tf.int64) for number in (begin, count))
                starts = [start] + [0] * (len(leaf.shape) - 1)
                return tf.sparse.slice(leaf, starts, [count, *tf.unstack(leaf.dense_shape)[1:]])
            if isinstance(leaf, tf.RaggedTensor) or rank is None:
                return leaf[begin : begin + count]
            part = tf.slice(leaf, [begin] + [0] * (rank - 1), [count] + [-1] * (rank - 1))
            return tf.ensure_shape(part, [count if isinstance(count, int) else None, *leaf.shape[1:]])

        return tf.nest.map_structure(piece, data)


def _rows(leaf: Any) -> Any:
    """Return the rows of a leaf as far as its type shows them: a number, None for a single value, or "unknown"."""
    shape: Any = getattr(leaf, "shape", ())
    rank: Any = getattr(shape, "rank", len(shape) if isinstance(shape, tuple) else None)
    if rank is None:
        return "unknown"
    return (shape[0] if shape[0] is not None else "unknown") if rank else None
