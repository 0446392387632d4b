"""Slices for Keras on TensorFlow: Keras 3, Keras 2 (`tf.keras` to 2.15) and `tf_keras`.

The wrapped `train_step` is traced into the user's graph like the original; no Python of the probe runs in a step.  The
first slice is traced outside the loop: it builds what is not built, shows which gradients are None, and takes the
remainder.  A `tf.while_loop` with one iteration at a time runs the others, so that only one slice's activations are in
memory.

The slices are a separate function inside that graph.  If tracing them fails, the user's graph has no part of them, and
the whole batch is traced instead.

`Sums` adds up the slices: their shares, their losses, and their gradients in the optimizer's form.  A dense gradient is
a one-tuple of its weighted sum.  An embedding's gradient (`tf.IndexedSlices`) stays (values, indices) of all slices one
after the other: Keras 3's optimizers do not merge repeated rows, and Adam squares each separately, so a dense sum would
train differently.

Rows are compared eagerly, and all state is restored.  Random operations are replaced only in eager code: a function of
the script that is traced meanwhile keeps its graph for the training, which must draw real random numbers.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from . import batch_structure, compare, deferred_update, slice_plan, sliced_step
from .deferred_update import HeldUpdate, loss_tracker
from .sliced_step import ComparedRows, SlicedStep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from .compare import Slices
    from .deferred_update import HeldUpdate
    from .slice_plan import Slice

Part = tuple[Any, ...]


class Sums(NamedTuple):
    """Sums over slices; a loop variable of `tf.while_loop`."""

    share: Any  # of the batch; 1.0 after all slices if the loss is a plain mean
    loss: Any  # times share
    gradients: list[Part]  # times share, those that are not None


def share_of(tf: Any, slice_: Slice) -> Any:
    """Return the slice's share of the batch's loss."""
    own = slice_.size if slice_.divisor is None else slice_.divisor
    return tf.cast(own, "float32") / tf.cast(slice_.batch, "float32")


def of_slice(tf: Any, slice_: Slice, held: HeldUpdate, dense: bool) -> Sums:
    """Return the sums of one slice; `dense`: merge an embedding's rows, because XLA cannot grow a tensor."""
    share = share_of(tf, slice_)
    factor = tf.ones_like(share) if held.weighed else share
    loss = tf.constant(0.0) if held.loss is None else tf.reduce_mean(tf.cast(held.loss, "float32"))
    logged = loss * share * slice_.logged
    gradients: list[Part] = []
    for gradient in held.gradients or []:
        if isinstance(gradient, tf.IndexedSlices) and not dense:
            weighted = gradient.values * tf.cast(factor, gradient.values.dtype)
            gradients.append((weighted, gradient.indices))
        elif gradient is not None:
            values = tf.convert_to_tensor(gradient)
            gradients.append((values * tf.cast(factor, values.dtype),))
    return Sums(share, logged, gradients)


def add(tf: Any, one: Sums, other: Sums) -> Sums:
    """Return the sums over both."""
    gradients = [
        (a[0] + b[0],) if len(a) == 1 else tuple(tf.concat(pair, 0) for pair in zip(a, b))
        for a, b in zip(one.gradients, other.gradients)
    ]
    return Sums(one.share + other.share, one.loss + other.loss, gradients)


def invariant(tf: Any, one: Sums) -> Sums:
    """Return the shapes that do not change while slices are added."""
    rows = tf.TensorShape([None])  # of an embedding's gradient, which each slice makes longer
    gradients = [
        (part[0].shape,) if len(part) == 1 else tuple(rows.concatenate(array.shape[1:]) for array in part)
        for part in one.gradients
    ]
    return Sums(one.share.shape, one.loss.shape, gradients)


OPS = "tensorflow.python.ops."
UNIFORM = {"gen_random_ops": "random_uniform", "gen_stateless_random_ops_v2": "stateless_random_uniform_v2"}
NORMAL = {
    "gen_random_ops": "random_standard_normal truncated_normal",
    "gen_stateless_random_ops_v2": "stateless_random_normal_v2 stateless_truncated_normal_v2",
}
WHOLE = {
    "gen_random_ops": "random_uniform_int",
    "gen_stateless_random_ops_v2": "stateless_random_uniform_int_v2 stateless_random_uniform_full_int_v2",
}
REAL = {
    "gen_random_ops": "multinomial parameterized_truncated_normal random_gamma random_poisson_v2 random_shuffle",
    "gen_stateless_random_ops": "stateless_multinomial stateless_parameterized_truncated_normal "
    "stateless_random_binomial stateless_random_poisson stateless_random_gamma_v2",
    "gen_stateless_random_ops_v2": "stateless_random_gamma_v3 stateless_shuffle",
    "gen_stateful_random_ops": "stateful_random_binomial non_deterministic_ints",
}
RANGE = 1 << 30  # of integers without bounds


class _TensorFlow(compare.Framework):
    def __init__(self, tf: Any) -> None:
        self.tf = tf
        super().__init__(tf.nest.map_structure, tf.concat, tf.zeros_like)

    def _given(self, batch: Any) -> Any:
        """Return a batch as the train function passes it to the step: tensors, and None for a missing leaf."""
        tf = self.tf

        def one(leaf: Any) -> Any:
            if isinstance(leaf, tf.experimental.Optional):
                return None
            is_tensor = hasattr(leaf, "dtype") and hasattr(leaf.shape, "rank")
            return leaf if is_tensor else tf.convert_to_tensor(leaf)

        return self.mapped(one, batch)

    def train(self, model: Any, arguments: Any, batch: Any) -> Any:
        return model.train_step(self._given(batch))

    def build(self, model: Any, arguments: Any, batch: Any) -> None:
        if not batch_structure.is_built(model):  # traced, and not run
            self.tf.function(model.train_step).get_concrete_function(self._given(batch))

    def kept(self, model: Any, *, weights: bool) -> list[tuple[Any, Any]]:
        """Return (variable, value); a value is copied only when its variable changes.  None while a step is traced."""
        tf = self.tf
        if not tf.executing_eagerly():
            return []
        found = [*model.non_trainable_variables, *model.variables, *_metrics(model)]
        found += _listed(model.optimizer, "variables")
        owners = (model, *batch_structure.layers(model))
        for value in [attribute for owner in owners for attribute in list(vars(owner).values())]:
            # Variables and the states of random generators: as an attribute, or in a list or dict that is one.
            items = list(value.values()) if isinstance(value, dict) else value
            parts = items if isinstance(items, (list, tuple)) else [items]
            found += [part for part in parts if isinstance(part, tf.Variable)]
            generators = [getattr(part, "_generator", part) for part in parts]
            found += [each.state for each in generators if isinstance(each, tf.random.Generator)]
        raw = [getattr(variable, "_value", variable) for variable in found]  # of a Keras 3 variable: TensorFlow's
        distinct = {id(variable): variable for variable in raw if hasattr(variable, "read_value")}
        return [(variable, variable.read_value()) for variable in distinct.values()]

    def put_back(self, before: list[tuple[Any, Any]]) -> None:
        for variable, value in before:
            variable.assign(value)

    @contextmanager
    def preserved(self, model: Any) -> Iterator[Any]:
        known = {id(variable) for variable in _metrics(model)}
        with super().preserved(model) as before:
            try:
                yield before
            finally:
                if any(id(variable) not in known for variable in _metrics(model)):
                    model.reset_metrics()  # some were created in the body


class _TensorFlowRows(ComparedRows):
    def some(self, data: Any, count: int) -> Any:
        """Return `count` rows of the batch, spread over it; the first ones if it is sparse."""
        sparse = self.framework.tf.SparseTensor
        if any(isinstance(leaf, sparse) for _, leaf in batch_structure.leaves(data)):
            return self.step.cut(data, 0, count)
        return super().some(data, count)

    def is_array(self, leaf: Any) -> bool:
        tf = self.framework.tf
        return isinstance(leaf, tf.Tensor) and leaf.dtype != tf.string

    @contextmanager
    def fixed(self, draws: deferred_update.Draws) -> Iterator[None]:
        tf = self.framework.tf
        with alike(tf, draws), tf.summary.record_if(False):
            yield

    def array(self, gradient: Any) -> Any:
        if isinstance(gradient, self.framework.tf.IndexedSlices):
            return gradient.values.numpy(), gradient.indices.numpy()
        return gradient.numpy()

    def changed(self, before: Any) -> dict[str, Any]:
        apart = [*_metrics(self.model), *_listed(self.model.optimizer, "variables")]
        excluded = {id(getattr(variable, "_value", variable)) for variable in apart}
        paths = {id(getattr(v, "_value", v)): str(getattr(v, "path", v.name)) for v in self.model.variables}
        changed = {}
        tf = self.framework.tf
        for variable, value in before:
            if id(variable) in excluded or "seed_generator" in variable.name or variable.name.startswith("StateVar"):
                continue
            now = variable.read_value()
            same = now.shape == value.shape and bool(tf.reduce_all(tf.equal(now, value)))
            if not same:
                changed[paths.get(id(variable), str(variable.name))] = variable.numpy()
        return changed


class _TensorFlowStep(SlicedStep):
    compared = _TensorFlowRows

    def rows(self, leaf: Any) -> Any:
        shape: Any = getattr(leaf, "shape", ())
        rank: Any = getattr(shape, "rank", len(shape) if isinstance(shape, tuple) else None)
        if rank is None:
            return "unknown"
        return (shape[0] if shape[0] is not None else "unknown") if rank else None

    def train(self, held: HeldUpdate, data: Any, count: int) -> Any:
        tf, leaves = self.framework.tf, [leaf for _, leaf in batch_structure.leaves(data)]
        counts: list[Any] = [self.rows(leaf) for leaf in leaves]
        same: Any = None
        if all(isinstance(count, int) for count in counts):
            batch = counts[0]
            cuts = slice_plan.plan(batch, count)
        else:
            # Only the running graph knows the rows.  A batch whose parts differ is one slice with each part whole.
            counts = [self.running_rows(leaf) for leaf in leaves]
            batch = counts[0]
            same = tf.reduce_all(tf.equal(tf.stack(counts), batch))
            cuts = slice_plan.plan(batch, tf.where(same, count, 1), tf.maximum)

        def summed(data: Any) -> Any:
            return self.summed(held, data, cuts, batch, same)

        return *(summed if tf.executing_eagerly() else tf.function(summed, autograph=False))(data), batch

    def finish(self, held: HeldUpdate, trained: Any) -> Any:
        (logs, sums, batch), tf = trained, self.framework.tf
        if held.variables:
            self.model.optimizer.apply_gradients(zip(self.mean(sums, held), held.variables))
        held.log(loss_tracker(self.model), tf.math.divide_no_nan(sums.loss, sums.share), batch)
        return batch_structure.fresh_logs(self.model, logs)

    def mean(self, sums: Sums, held: HeldUpdate) -> list[Any]:
        """Return the batch's gradients in the form of the slice's in `held`, None for a variable without one."""
        tf = self.framework.tf
        parts = iter(sums.gradients)
        found: list[Any] = []
        for gradient, variable in zip(held.gradients or [], held.variables):
            if gradient is None:
                found.append(None)
                continue
            part = next(parts)
            value = tf.math.divide_no_nan(part[0], tf.cast(sums.share, part[0].dtype))
            if len(part) > 1:
                value = tf.IndexedSlices(value, part[1], tf.constant(list(variable.shape)))
            found.append(value)
        return found

    def running_rows(self, leaf: Any) -> Any:
        """Return the rows of a leaf as a tensor."""
        tf = self.framework.tf
        if isinstance(leaf, tf.RaggedTensor):
            return tf.cast(leaf.nrows(), tf.int32)
        return tf.cast((leaf.dense_shape if isinstance(leaf, tf.SparseTensor) else tf.shape(leaf))[0], tf.int32)

    def summed(self, held: HeldUpdate, data: Any, cuts: Any, batch: Any, same: Any = None) -> Any:
        """Return (logs, sums) of all slices: first, size and number of the others are `cuts`."""
        tf = self.framework.tf
        first, size, others = cuts
        logs, sums = self._slice(held, self.cut(data, 0, first, same), first, batch)

        def body(index: Any, sums: Any) -> Any:
            slice_ = self.cut(data, first + index * size, size)
            _, more = self._slice(held, slice_, size, batch)
            return index + 1, add(tf, sums, more)

        # Otherwise the loop's forward pass could run beside the first slice, and need the memory of two.
        with tf.control_dependencies(tf.nest.flatten(sums)):
            start = tf.constant(0)
        shapes = (start.shape, invariant(tf, sums))
        _, sums = tf.while_loop(lambda index, _: index < others, body, (start, sums), shapes, parallel_iterations=1)
        return logs, sums

    def _slice(self, held: HeldUpdate, data: Any, size: Any, batch: Any) -> Any:
        """Return (logs, sums) of one slice of `size` samples."""
        tf = self.framework.tf
        with slice_plan.slicing(size, batch) as slice_:
            held.weigh = lambda loss: loss * tf.cast(share_of(tf, slice_), loss.dtype)
            logs = self.original(self.model, data)
        held.uneven |= slice_.uneven
        dense = bool(getattr(self.model, "jit_compile", False))
        return logs, of_slice(tf, slice_, held, dense)

    def cut(self, data: Any, begin: Any, size: Any, same: Any = None) -> Any:
        """Return `size` rows of each leaf from `begin`; all rows of a leaf if `same` is false."""
        tf = self.framework.tf

        def slice_(leaf: Any) -> Any:
            count = size if same is None else tf.where(same, size, self.running_rows(leaf))
            rank: Any = getattr(leaf.shape, "rank", None)
            if isinstance(leaf, tf.SparseTensor):
                start, count = (tf.cast(number, tf.int64) for number in (begin, count))
                starts = [start] + [0] * (len(leaf.shape) - 1)
                return tf.sparse.slice(leaf, starts, [count, *tf.unstack(leaf.dense_shape)[1:]])
            if isinstance(leaf, tf.RaggedTensor) or rank is None:
                return leaf[begin : begin + count]
            part = tf.slice(leaf, [begin] + [0] * (rank - 1), [count] + [-1] * (rank - 1))
            return tf.ensure_shape(part, [count if isinstance(count, int) else None, *leaf.shape[1:]])

        return self.framework.mapped(slice_, data)


def patch(slices: Slices, trainer: str, module: Any) -> None:
    """Have the trainer of this name, which runs on TensorFlow, train its batches in slices."""
    sliced_step.patch(slices, getattr(module, trainer), _TensorFlowStep, _TensorFlow(module.tf))


def _metrics(model: Any) -> list[Any]:
    return [variable for metric in model.metrics for variable in metric.variables]


def _listed(owner: Any, name: str) -> list[Any]:
    found = getattr(owner, name, None)
    return list(found() if callable(found) else found or ())


def alike(tf: Any, noted: deferred_update.Draws) -> AbstractContextManager[None]:
    """Have random operations return the same numbers for every row during the body."""

    def traced() -> bool:
        return not tf.executing_eagerly()

    makers = ((UNIFORM, _uniform), (NORMAL, _normal), (WHOLE, _whole), (REAL, None))
    return deferred_update.replaced(
        [
            (sys.modules[OPS + module], name, deferred_update.drawing(noted, numbers and partial(numbers, tf), traced))
            for table, numbers in makers
            for module, names in table.items()
            if OPS + module in sys.modules
            for name in names.split()
        ]
    )


def _field(tf: Any, asked: Any) -> Any:
    shape = [int(length) for length in tf.convert_to_tensor(asked["shape"]).numpy()]
    numbers = deferred_update.field(shape)
    return tf.broadcast_to(tf.constant(numbers, tf.float64), shape) if shape else tf.constant(numbers[0], tf.float64)


def _uniform(tf: Any, asked: Any) -> Any:
    return tf.cast(_field(tf, asked), asked["dtype"])


def _normal(tf: Any, asked: Any) -> Any:
    return tf.cast(tf.math.ndtri(_field(tf, asked)), asked["dtype"])


def _whole(tf: Any, asked: Any) -> Any:
    if "minval" not in asked:
        return tf.cast(_field(tf, asked) * RANGE, asked["dtype"])
    low, high = tf.convert_to_tensor(asked["minval"]), tf.convert_to_tensor(asked["maxval"])
    width = tf.cast(high, tf.float64) - tf.cast(low, tf.float64)
    return low + tf.cast(tf.floor(_field(tf, asked) * width), low.dtype)
