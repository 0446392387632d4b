"""Trains a few rows of a batch on JAX, as a whole and in slices, for a comparison; no state is changed.

Compiled once for each number of rows, because JAX takes three times as long op by op.  So all slices have one row.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Optional, Protocol

from . import batch_structure, compare, random_draws_jax, set_aside
from .deferred_update import HeldUpdate, holding
from .equality import StepOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .random_draws import Draws

    class Step(Protocol):
        """What the rows need of keras_jax.Step: the framework's own step, and a slice of it."""

        module: Any
        model: Any
        original: Any

        def slice(self, held: HeldUpdate, state: Any, data: Any, size: int, batch: int) -> Any:
            """Return (logs, sums) of a slice of `size` samples of a batch of `batch`."""

        def cut(self, data: Any, begin: Any, size: int) -> Any:
            """Return `size` rows of each leaf from `begin`."""

        def logged(self, logs: Any, held: HeldUpdate, metrics: Any, loss: Any, batch: int) -> Any:
            """Return the batch's logs and the metrics' variables after its loss was logged."""


WEIGHTS = (1.0, 0.5, 1.5, 0.75, 1.25)  # of the rows: all different


class Framework(compare.Framework):
    """What a comparison needs from Keras on JAX, where a step is a pure function."""

    def train(self, model: Any, arguments: Any, batch: Any) -> Any:
        """Run the step from the state that the train function got."""
        return model.train_step(*arguments, batch)

    def preserved(self, model: Any) -> Any:
        """Return a context manager without effect."""
        return nullcontext()


def rows(leaf: Any) -> Optional[int]:
    """Return the rows of a leaf, None for a single number."""
    shape: Any = getattr(leaf, "shape", ())
    return int(shape[0]) if shape else None


class Rows:
    """What compare.SliceComparison does with rows of a batch: it selects, changes and trains them in one step.

    `state`: the state that the step got.
    """

    most = 4  # rows

    def __init__(self, step: Step, state: Any) -> None:
        self.step = step
        self.model = step.model
        self.jax = step.module.jax
        self.uneven = False
        self._state = tuple(list(part) for part in state)
        self._drew: Optional[Draws] = None

    def kind(self, data: Any) -> str:
        """Return the kind of a batch: structure, types, and shapes without the number of rows."""
        found = [(name, rows(leaf), leaf) for name, leaf in batch_structure.leaves(data)]
        first = next((count for _, count, _ in found if count is not None), 0)
        return repr(
            [
                (
                    name,
                    str(getattr(leaf, "dtype", "")),
                    leaf.shape[1:] if count is not None else "",
                    count == first,
                )
                for name, count, leaf in found
            ]
        )

    def rows(self, leaf: Any) -> Optional[int]:
        """Return the rows of a leaf, None for a single number."""
        return rows(leaf)

    def some(self, data: Any, count: int) -> Any:
        """Return `count` rows of the batch, spread over it."""
        numpy = self.jax.numpy
        every = rows(batch_structure.leaves(data)[0][1]) or 0
        places = numpy.asarray([place * (every - 1) // (count - 1) for place in range(count)])
        return self._mapped(lambda leaf: numpy.asarray(leaf)[places], data)

    def _mapped(self, change: Any, data: Any) -> Any:
        return self.step.module.tree.map_structure(lambda leaf: None if leaf is None else change(leaf), data)

    def blanked(self, data: Any) -> Any:
        """Return the rows with zero as the last one's target, and a different weight for each."""
        if not isinstance(data, tuple) or len(data) < 2:  # noqa: PLR2004
            return data
        numpy = self.jax.numpy

        def weigh(leaf: Any) -> Any:
            if not numpy.issubdtype(leaf.dtype, numpy.floating):
                return leaf
            weights = numpy.asarray(WEIGHTS[: leaf.shape[0]], leaf.dtype)
            return leaf * weights.reshape([-1] + [1] * (leaf.ndim - 1))

        targets = self._mapped(lambda leaf: leaf.at[-1].set(numpy.zeros_like(leaf[-1])), data[1])
        return (data[0], targets, *(self._mapped(weigh, part) for part in data[2:]))

    def cuts(self, count: int) -> tuple[int, int, int]:
        """Return how `count` rows are sliced: see slice_plan.plan."""
        return 1, 1, count - 1

    @contextmanager
    def neutral(self, draws: Draws) -> Iterator[None]:
        """Fix random draws and batch statistics during the body."""
        with ExitStack() as stack:
            stack.enter_context(random_draws_jax.alike(self.jax, draws))
            stack.enter_context(set_aside.running_statistics(self.model))
            try:
                yield
            finally:
                if draws.layers:
                    self.jax.clear_caches()  # a function of the script can have been compiled with these draws

    def outcome(self, data: Any, cuts: Any, scaled: bool) -> StepOutcome:
        """Train the rows as a whole (`cuts`: None) or in slices, and change nothing."""
        numpy = self.jax.numpy
        batch = rows(batch_structure.leaves(data)[0][1]) or 0
        sizes = [batch] if cuts is None else [cuts[0], *[cuts[1]] * cuts[2]]
        trainable, other, optimizing, metrics = self._state
        begin, losses, outputs, gradients = 0, [], [], None
        total = [0.0, 0.0]
        compiled: dict[int, Any] = {}
        for size in sizes:
            train = compiled.setdefault(size, self.jax.jit(self._one(size, batch if cuts else 0, scaled)))
            piece = self.step.cut(data, begin, size)
            found = train((trainable, other, optimizing, metrics), piece)
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
