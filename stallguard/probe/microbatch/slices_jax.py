"""Slices for Keras 3 on JAX: the functional `train_step`, with its slices in a `lax.fori_loop`.

The first slice is computed outside the loop and takes the remainder, because shapes inside the loop must not change.
A comparison changes no state.  It is compiled once for each number of rows, because JAX takes three times as long op by
op.  So all its slices have one row.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from . import batch_structure, compare, deferred_update, slice_plan, sliced_step
from .compare import StepOutcome
from .deferred_update import HeldUpdate, holding, loss_tracker
from .sliced_step import ComparedRows, SlicedStep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from .compare import Slices

REAL = (
    "ball beta binomial categorical cauchy chisquare choice dirichlet double_sided_maxwell exponential f gamma "
    "generalized_normal geometric gumbel laplace loggamma logistic lognormal maxwell multivariate_normal orthogonal "
    "pareto permutation poisson rademacher rayleigh shuffle t triangular wald weibull_min"
)


class _Jax(compare.Framework):
    def __init__(self, module: Any) -> None:
        self.module, numpy = module, module.jax.numpy
        super().__init__(module.tree.map_structure, numpy.concatenate, numpy.zeros_like)

    def train(self, model: Any, arguments: Any, batch: Any) -> Any:
        return model.train_step(*arguments, batch)  # from the state that the train function got


class _JaxRows(ComparedRows):
    most = 4

    def __init__(self, step: _JaxStep) -> None:
        super().__init__(step)
        self.jax = step.framework.module.jax
        self.names = [variable.path for variable in self.model.trainable_variables]
        self._state = tuple(list(part) for part in step.state)

    def cuts(self, count: int) -> tuple[int, int, int]:
        return 1, 1, count - 1

    @contextmanager
    def fixed(self, draws: deferred_update.Draws) -> Iterator[None]:
        with alike(self.jax, draws):
            try:
                yield
            finally:
                if draws.layers:
                    self.jax.clear_caches()  # a function of the script can have been compiled with these draws

    def outcome(self, data: Any, cuts: Any, scaled: bool) -> StepOutcome:
        """Train the rows as a whole (`cuts`: None) or in slices, and change nothing."""
        numpy, plain = self.jax.numpy, sys.modules["numpy"].asarray
        batch = self.step.rows(batch_structure.leaves(data)[0][1]) or 0
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
        joined = [plain(numpy.concatenate(parts)) for parts in zip(*outputs)]
        logged = {name: float(value.mean()) for name, value in logs.items()} if isinstance(logs, dict) else {}
        changed = {  # the variables that differ, except seeds
            variable.path: plain(now)
            for variable, before, now in zip(self.model.non_trainable_variables, self._state[1], other)
            if "seed_generator" not in variable.path and not bool(numpy.array_equal(before, now))
        }
        return StepOutcome(total[1] / total[0], losses, list(map(plain, mean)), joined, logged, changed)

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


class _JaxStep(SlicedStep):
    """One `train_step` call on JAX.  `state`: of model, optimizer and metrics, as the step got it."""

    updates = ("stateless_apply",)
    compared = _JaxRows

    def __init__(self, framework: Any, slices: Slices, original: Any, model: Any, state: Any) -> None:
        super().__init__(framework, slices, original, model)
        self.state = state

    def whole(self, data: Any) -> Any:
        return self.original(self.model, self.state, data)

    def train(self, held: HeldUpdate, data: Any, count: int) -> Any:
        batch = batch_structure.leaves(data)[0][1].shape[0]
        first, size, others = slice_plan.plan(batch, count)
        trainable, _, optimizing, _ = self.state
        jax = self.framework.module.jax
        logs, carry = self.slice(held, self.state, self.cut(data, 0, first), first, batch)

        def body(index: Any, carry: Any) -> Any:
            states, sums = carry
            state = (trainable, states[0], optimizing, states[1])
            slice_ = self.cut(data, first + index * size, size)
            _, (states, more) = self.slice(held, state, slice_, size, batch)
            return states, jax.tree_util.tree_map(lambda a, b: a + b, sums, more)

        return logs, *jax.lax.fori_loop(0, others, body, carry), batch

    def finish(self, held: HeldUpdate, trained: Any) -> Any:
        logs, states, (share, loss, gradients), batch = trained
        trainable, _, optimizing, _ = self.state
        mean = self.framework.module.jax.tree_util.tree_map(lambda g: g / share, gradients)
        trainable, optimizing = self.model.optimizer.stateless_apply(optimizing, mean, trainable)
        logs, metrics = self.logged(logs, held, states[1], loss / share, batch)
        return logs, (trainable, states[0], optimizing, metrics)

    def slice(self, held: HeldUpdate, state: Any, data: Any, size: int, batch: int) -> Any:
        """Return (logs, ((other state, metrics), (share, loss, gradients))) of a slice of `size` samples."""
        jax = self.framework.module.jax
        with slice_plan.slicing(size, batch) as slice_:
            held.weigh = lambda loss: loss * slice_.share
            logs, state = self.original(self.model, state, data)
        held.uneven |= slice_.uneven
        share = jax.numpy.asarray(slice_.share, "float32")
        loss = 0.0 if held.loss is None else held.loss.mean() * share * slice_.logged
        states = ([jax.numpy.asarray(v) for v in state[1]], [jax.numpy.asarray(v) for v in state[3]])
        return logs, (states, (share, jax.numpy.asarray(loss, "float32"), held.gradients or []))

    def cut(self, data: Any, begin: Any, size: int) -> Any:
        """Return `size` rows of each leaf from `begin`."""
        slice_in_dim = self.framework.module.jax.lax.dynamic_slice_in_dim
        return self.framework.mapped(lambda leaf: slice_in_dim(leaf, begin, size), data)

    def logged(self, logs: Any, held: HeldUpdate, metrics: Any, loss: Any, batch: int) -> Any:
        """Return the batch's logs and the metrics' variables after its loss was logged."""
        variables = self.model.metrics_variables
        with self.framework.module.backend.StatelessScope(state_mapping=list(zip(variables, metrics))) as scope:
            held.log(loss_tracker(self.model), loss, batch)
            logs = batch_structure.fresh_logs(self.model, logs)
        values = [scope.get_current_value(variable) for variable in variables]
        return logs, [old if new is None else new for old, new in zip(metrics, values)]


def patch(slices: Slices, module: Any) -> None:
    """Have the trainer that runs on JAX train its batches in slices."""
    sliced_step.patch(slices, module.JAXTrainer, _JaxStep, _Jax(module))


def alike(jax: Any, noted: deferred_update.Draws) -> AbstractContextManager[None]:
    """Have random functions return the same numbers for every row during the body."""
    numbers = {
        "uniform": _uniform, "normal": _normal, "truncated_normal": _truncated, "bernoulli": _bernoulli,
        "randint": _randint, "bits": _bits, **dict.fromkeys(REAL.split()),
    }  # fmt: skip
    drawing = deferred_update.drawing
    return deferred_update.replaced(
        [(jax.random, name, drawing(noted, found and partial(found, jax.numpy))) for name, found in numbers.items()]
    )


def _field(numpy: Any, shape: Any) -> Any:
    shape = tuple(shape or ())
    numbers = deferred_update.field(list(shape))
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
    return _cast(numpy, numpy.clip(_bell(_field(numpy, asked["shape"])), asked["lower"], asked["upper"]), asked)


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
