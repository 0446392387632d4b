"""Slices for Keras 3 on JAX: the functional `train_step`, with its slices in a `lax.fori_loop`.

The first slice is computed outside the loop and takes the remainder, because shapes inside the loop must not change.
A comparison changes no state.  It is compiled once for each number of rows, because JAX takes three times as long op by
op.  So all its slices have one row.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Callable

from . import batch_structure, compare, deferred_update, slice_plan, sliced_step
from .compare import StepOutcome
from .deferred_update import HeldUpdate, holding, loss_tracker
from .sliced_step import WEIGHTS, ComparedRows, SlicedStep, plain_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from .compare import Slices

REAL = (
    "ball beta binomial categorical cauchy chisquare choice dirichlet double_sided_maxwell exponential f gamma "
    "generalized_normal geometric gumbel laplace loggamma logistic lognormal maxwell multivariate_normal orthogonal "
    "pareto permutation poisson rademacher rayleigh shuffle t triangular wald weibull_min"
)


def patch(slices: Slices, module: Any) -> None:
    """Have the trainer that runs on JAX train its batches in slices."""

    def train_step(original: Any) -> Any:
        return lambda self, state, data: JaxStep(module, slices, original, self, state).run(
            data, slices.context.factor
        )

    sliced_step.patch(slices, module.JAXTrainer, train_step, JaxComparison())


class JaxStep(SlicedStep):
    """One `train_step` call on JAX.  `state`: of model, optimizer and metrics, as the step got it."""

    updates = ("stateless_apply",)

    def __init__(self, module: Any, slices: Slices, original: Any, model: Any, state: Any) -> None:
        super().__init__(slices, original, model)
        self.module = module
        self.state = state

    def whole(self, data: Any) -> Any:
        """See SlicedStep."""
        return self.original(self.model, self.state, data)

    def compared_rows(self) -> JaxRows:
        """See SlicedStep."""
        return JaxRows(self)

    def train(self, held: HeldUpdate, data: Any, factor: int) -> Any:
        """See SlicedStep."""
        batch = batch_structure.leaves(data)[0][1].shape[0]
        first, size, others = slice_plan.plan(batch, factor)
        trainable, _, optimizing, _ = self.state
        logs, carry = self.slice(held, self.state, self.cut(data, 0, first), first, batch)

        def body(index: Any, carry: Any) -> Any:
            states, sums = carry
            state = (trainable, states[0], optimizing, states[1])
            slice_ = self.cut(data, first + index * size, size)
            _, (states, more) = self.slice(held, state, slice_, size, batch)
            return states, self.module.jax.tree_util.tree_map(lambda a, b: a + b, sums, more)

        return logs, *self.module.jax.lax.fori_loop(0, others, body, carry), batch

    def finish(self, held: HeldUpdate, trained: Any) -> Any:
        """See SlicedStep."""
        logs, states, (share, loss, gradients), batch = trained
        trainable, _, optimizing, _ = self.state
        mean = self.module.jax.tree_util.tree_map(lambda g: g / share, gradients)
        trainable, optimizing = self.model.optimizer.stateless_apply(optimizing, mean, trainable)
        logs, metrics = self.logged(logs, held, states[1], loss / share, batch)
        return logs, (trainable, states[0], optimizing, metrics)

    def slice(self, held: HeldUpdate, state: Any, data: Any, size: int, batch: int) -> Any:
        """Return (logs, ((other state, metrics), (share, loss, gradients))) of a slice of `size` samples."""
        jax = self.module.jax
        with slice_plan.slicing(size, batch) as slice_:
            held.weigh = lambda loss: loss * _share(slice_)
            logs, state = self.original(self.model, state, data)
        held.uneven |= slice_.uneven
        share = jax.numpy.asarray(_share(slice_), "float32")
        loss = 0.0 if held.loss is None else held.loss.mean() * share * slice_.logged
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


def _share(slice_: slice_plan.Slice) -> Any:
    return (slice_.size if slice_.divisor is None else slice_.divisor) / slice_.batch


class JaxComparison(compare.Framework):
    """What a comparison needs from Keras on JAX, where a step is a pure function."""

    def train(self, model: Any, arguments: Any, batch: Any) -> Any:
        """Run the step from the state that the train function got."""
        return model.train_step(*arguments, batch)

    def preserved(self, model: Any) -> Any:
        """Return a context manager without effect."""
        return nullcontext()


class JaxRows(ComparedRows):
    """Rows of a batch on JAX, where a step is a pure function."""

    most = 4

    def __init__(self, step: JaxStep) -> None:
        super().__init__(step)
        self.jax = step.module.jax
        self._state = tuple(list(part) for part in step.state)

    def mapped(self, change: Callable[[Any], Any], data: Any) -> Any:
        """See ComparedRows."""
        return self.step.module.tree.map_structure(lambda leaf: None if leaf is None else change(leaf), data)

    def taken(self, leaf: Any, places: list[int]) -> Any:
        """See ComparedRows."""
        return self.jax.numpy.asarray(leaf)[self.jax.numpy.asarray(places)]

    def blank(self, leaf: Any) -> Any:
        """See ComparedRows."""
        return leaf.at[-1].set(self.jax.numpy.zeros_like(leaf[-1]))

    def weighed(self, leaf: Any) -> Any:
        """See ComparedRows."""
        numpy = self.jax.numpy
        if not numpy.issubdtype(leaf.dtype, numpy.floating):
            return leaf
        weights = numpy.asarray(WEIGHTS[: leaf.shape[0]], leaf.dtype)
        return leaf * weights.reshape([-1] + [1] * (leaf.ndim - 1))

    def cuts(self, count: int) -> tuple[int, int, int]:
        """Return how `count` rows are sliced: see slice_plan.plan."""
        return 1, 1, count - 1

    @contextmanager
    def fixed(self, draws: deferred_update.Draws) -> Iterator[None]:
        """See ComparedRows."""
        with alike(self.jax, draws):
            try:
                yield
            finally:
                if draws.layers:
                    self.jax.clear_caches()  # a function of the script can have been compiled with these draws

    def outcome(self, data: Any, cuts: Any, scaled: bool) -> StepOutcome:
        """Train the rows as a whole (`cuts`: None) or in slices, and change nothing."""
        numpy = self.jax.numpy
        batch = plain_rows(batch_structure.leaves(data)[0][1]) or 0
        sizes = [batch] if cuts is None else [cuts[0], *[cuts[1]] * cuts[2]]
        trainable, other, optimizing, metrics = self._state
        begin, losses, outputs, gradients = 0, [], [], None
        total = [0.0, 0.0]
        compiled: dict[int, Any] = {}
        for size in sizes:
            train = compiled.setdefault(size, self.jax.jit(self._one(size, batch if cuts else 0, scaled)))
            slice_ = self.step.cut(data, begin, size)
            found = train((trainable, other, optimizing, metrics), slice_)
            (other, metrics), (share, loss, parts), own, seen, logs = found
            total = [total[0] + float(share), total[1] + float(loss)]
            gradients = parts if gradients is None else [a + b for a, b in zip(gradients, parts)]
            losses.append(float(own))
            outputs.append(seen)
            begin += size
        mean = [numpy.asarray(part / total[0]) for part in gradients or []]
        joined = [_plain(numpy.concatenate(parts)) for parts in zip(*outputs)]
        logged = {name: float(value.mean()) for name, value in logs.items()} if isinstance(logs, dict) else {}
        changed = {  # the variables that differ, except seeds
            variable.path: _plain(now)
            for variable, before, now in zip(self.model.non_trainable_variables, self._state[1], other)
            if "seed_generator" not in variable.path and not bool(numpy.array_equal(before, now))
        }
        return StepOutcome(total[1] / total[0], losses, list(map(_plain, mean)), joined, logged, changed)

    def _one(self, size: int, batch: int, scaled: bool) -> Any:
        """Return the function that trains `size` rows: as a slice of `batch`, or as a whole batch (0)."""

        def train(state: Any, data: Any) -> Any:
            with holding(self.model, "stateless_apply") as held:
                held.scales = scaled
                if batch:
                    logs, (states, sums) = self.step.slice(held, state, data, size, batch)
                else:
                    held.weigh = lambda loss: loss
                    logs, after = self.step.original(self.model, state, data)
                    loss = 0.0 if held.loss is None else held.loss.mean()
                    states, sums = (list(after[1]), list(after[3])), (1.0, loss, held.gradients or [])
            self.uneven |= held.uneven
            own = 0.0 if held.loss is None else held.loss.mean()
            if isinstance(logs, dict):
                logs, _ = self.step.logged(logs, held, states[1], own, size)
            outputs: list[Any] = []
            # A GPU or TPU can compute a row differently in a smaller batch; the outputs show by how much.
            if self.jax.default_backend() != "cpu":
                x = data[0] if isinstance(data, tuple) else data
                found, _ = self.model.stateless_call(state[0], state[1], x, training=True)
                outputs = [leaf for leaf in self.jax.tree_util.tree_leaves(found) if leaf.ndim]
            return states, sums, own, outputs, logs

        return train

    def names(self) -> list[str]:
        """Return the paths of the variables whose gradients were taken."""
        return [variable.path for variable in self.model.trainable_variables]


def _plain(array: Any) -> Any:
    import numpy

    return numpy.asarray(array)


def alike(jax: Any, noted: deferred_update.Draws) -> AbstractContextManager[None]:
    """Have random functions return the same numbers for every row during the body."""
    numbers = {
        "uniform": _uniform, "normal": _normal, "truncated_normal": _truncated, "bernoulli": _bernoulli,
        "randint": _randint, "bits": _bits, **dict.fromkeys(REAL.split()),
    }  # fmt: skip
    return deferred_update.replaced(
        [(jax.random, name, _maker(jax.numpy, noted, found)) for name, found in numbers.items()]
    )


def _maker(numpy: Any, noted: deferred_update.Draws, numbers: Any) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        signature = inspect.signature(original)

        def draw(*args: Any, **named: Any) -> Any:
            noted.note(real=numbers is None)
            if numbers is None:
                return original(*args, **named)
            asked = signature.bind(*args, **named)
            asked.apply_defaults()
            return numbers(numpy, asked.arguments)

        return draw

    return make


def _field(numpy: Any, shape: Any) -> Any:
    shape = tuple(shape or ())
    numbers = deferred_update.row(list(shape))
    return numpy.broadcast_to(numpy.asarray(numbers if shape else numbers[0], "float32"), shape)


def _cast(numpy: Any, values: Any, asked: Any) -> Any:
    kind = asked.get("dtype")
    return values.astype(kind) if kind is not None and numpy.issubdtype(kind, numpy.floating) else values


def _uniform(numpy: Any, asked: Any) -> Any:
    low, high = asked["minval"], asked["maxval"]
    return _cast(numpy, low + _field(numpy, asked["shape"]) * (high - low), asked)


def _normal(numpy: Any, asked: Any) -> Any:
    return _cast(numpy, _bell(_field(numpy, asked["shape"])), asked)


def _truncated(numpy: Any, asked: Any) -> Any:
    return _cast(
        numpy, numpy.clip(_bell(_field(numpy, asked["shape"])), asked["lower"], asked["upper"]), asked
    )


def _bell(uniform: Any) -> Any:
    from jax.scipy.special import ndtri  # a function of numbers, not of keys

    return ndtri(uniform)


def _bernoulli(numpy: Any, asked: Any) -> Any:
    p = numpy.asarray(asked["p"])
    shape = asked["shape"] if asked["shape"] is not None else p.shape
    return _field(numpy, shape) < p


def _randint(numpy: Any, asked: Any) -> Any:
    low, high = asked["minval"], asked["maxval"]
    kind = asked["dtype"] if numpy.issubdtype(asked["dtype"], numpy.integer) else "int32"
    return (low + numpy.floor(_field(numpy, asked["shape"]) * (high - low))).astype(kind)


def _bits(numpy: Any, asked: Any) -> Any:
    return (_field(numpy, asked["shape"]) * (1 << 30)).astype(asked["dtype"] or "uint32")
