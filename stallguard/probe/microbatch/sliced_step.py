"""A training step in slices, and the rows of its comparison: what is the same in every framework.

slices_tf.py, slices_torch.py and slices_jax.py derive from these what their framework does otherwise.
`SlicedStep.run` takes the place of Keras' `train_step` (`patch`): the framework's own step runs once for each slice
with the optimizer's update held back (deferred_update.py), and one update follows.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Optional

from ..hooks import before
from ..lookahead import NAME
from . import announcements, batch_structure, compare
from .compare import StepOutcome
from .deferred_update import HeldUpdate, holding, shadowed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from .compare import Framework, Slices
    from .deferred_update import Draws


@contextmanager
def running_statistics(model: Any) -> Iterator[None]:
    """Have batch normalisation use its running statistics, and not update them, during the body."""
    with ExitStack() as stack:
        for layer in batch_structure.normalisations(model):
            stack.enter_context(shadowed(layer, {"call": _in_inference(layer.call)}))
        yield


def _in_inference(original: Any) -> Any:
    def call(inputs: Any, *_: Any, **named: Any) -> Any:
        return original(inputs, **{**named, "training": False})

    return call


@contextmanager
def outputs_kept(model: Any) -> Iterator[list[Any]]:
    """Record the model's outputs for each loss that is computed in the body."""
    kept: list[Any] = []
    original = getattr(model, "compute_loss", None)

    def compute_loss(*args: Any, **named: Any) -> Any:
        kept.append(named["y_pred"] if "y_pred" in named else args[2])
        return original(*args, **named)  # type: ignore[misc]

    with shadowed(model, {} if original is None else {"compute_loss": compute_loss}):
        yield kept


WEIGHTS = (1.0, 0.5, 1.5, 0.75, 1.25)  # of compared rows: all different


class SlicedStep:
    """One `train_step` call, run slice by slice."""

    updates: tuple[str, ...] = ("apply_gradients", "apply")  # methods of the optimizer that are held back

    compared: type[ComparedRows]  # the rows of this step for its comparison

    def __init__(self, framework: Framework, slices: Slices, original: Any, model: Any) -> None:
        self.framework: Any = framework
        self.announcer = slices.announcer
        self.slices = slices
        self.original = original
        self.model = model

    def run(self, data: Any) -> Any:
        """Train one batch in slices and one update; return what the framework's own step returns."""
        count = self.slices.context.slices
        if count <= 1:
            return self.whole(data)
        comparison = self.slices.comparison(self.model)
        if comparison is not None and comparison.building:
            with holding(self.model, *self.updates) as held:
                held.weigh = lambda loss: loss
                return self.whole(data)
        if comparison is not None:
            comparison.compare(self.compared(self), data)
        leaves = batch_structure.leaves(data)
        reason = (
            self.slices.reason(self.model)
            or (announcements.NO_OPTIMIZER if getattr(self.model, "optimizer", None) is None else "")
            or self.obstacle()
            or batch_structure.obstacle([(name, self.rows(leaf)) for name, leaf in leaves])
        )
        if reason:
            self.announcer.whole(self.model, reason)
        if reason or self.rows(leaves[0][1]) in (0, 1):
            return self.whole(data)
        before = self.framework.kept(self.model, weights=False)
        try:
            with holding(self.model, *self.updates) as held:
                trained = self.train(held, data, count)
        except Exception as error:
            if compare.is_lack_of_memory(error):
                raise
            self.framework.put_back(before)
            self.slices.stay_whole(self.model, "its step fails in slices (%s)" % compare.described(error))
            return self.whole(data)
        self.announcer.cut()
        return self.finish(held, trained)

    def whole(self, data: Any) -> Any:
        """Run the framework's own step."""
        return self.original(self.model, data)

    def obstacle(self) -> str:
        """Return why this framework cannot slice the step of the model; "" if it can."""
        return ""

    def rows(self, leaf: Any) -> Any:
        """Return the rows of a leaf: a number, None for a single value, or "unknown" before the graph runs."""
        shape: Any = getattr(leaf, "shape", ())
        return int(shape[0]) if len(shape) else None

    def train(self, held: HeldUpdate, data: Any, count: int) -> Any:
        """Train the slices, without the update."""
        raise NotImplementedError

    def finish(self, held: HeldUpdate, trained: Any) -> Any:
        """Make the update of the batch and log its loss; return what the framework's own step returns."""
        raise NotImplementedError


class ComparedRows:
    """What compare.SliceComparison does with rows of a batch: it selects, changes and trains them in one step."""

    most = 5  # rows

    def __init__(self, step: Any) -> None:
        self.step = step
        self.model = step.model
        self.framework = step.framework
        self.uneven = False  # several losses divide by different counts
        self.names: list[str] = []  # paths of the variables of the last gradients

    def kind(self, data: Any) -> str:
        """Return the kind of a batch: structure, types, and shapes without the number of rows."""
        found = [(name, self.step.rows(leaf), leaf) for name, leaf in batch_structure.leaves(data)]
        first = next((count for _, count, _ in found if count is not None), 0)
        parts = []
        for name, count, leaf in found:
            shape = str(leaf.shape[1:]) if count else ""
            parts.append((name, type(leaf).__name__, str(getattr(leaf, "dtype", "")), shape, count == first))
        return repr(parts)

    def some(self, data: Any, count: int) -> Any:
        """Return `count` rows of the batch, spread over it."""
        every = self.step.rows(batch_structure.leaves(data)[0][1]) or 0
        places = [place * (every - 1) // (count - 1) for place in range(count)]

        def rows(leaf: Any) -> Any:
            return self.framework.concatenate([leaf[place : place + 1] for place in places], 0)

        return self.framework.mapped(rows, data)

    def blanked(self, data: Any) -> Any:
        """Return the rows with zero as the last one's target, and a different weight for each."""
        if not isinstance(data, tuple) or len(data) < 2:  # noqa: PLR2004
            return data
        concatenate, zeros = self.framework.concatenate, self.framework.zeros_like

        def blank(leaf: Any) -> Any:
            return concatenate([leaf[:-1], zeros(leaf[-1:])], 0) if self.is_array(leaf) else leaf

        def weighed(leaf: Any) -> Any:
            if not self.is_array(leaf) or "float" not in str(leaf.dtype):
                return leaf
            rows = range(self.step.rows(leaf))
            return concatenate([leaf[row : row + 1] * WEIGHTS[row] for row in rows], 0)

        targets = self.framework.mapped(blank, data[1])
        return (data[0], targets, *(self.framework.mapped(weighed, part) for part in data[2:]))

    def is_array(self, leaf: Any) -> bool:
        """Return whether a leaf is an array whose numbers can be changed."""
        return hasattr(leaf, "dtype")

    def cuts(self, count: int) -> tuple[int, int, int]:
        """Return how `count` rows are sliced: one row first, which exposes a wrong squeeze; see slice_plan.plan."""
        return (1, 2, count // 2) if count % 2 else (1, count - 1, 1)

    @contextmanager
    def neutral(self, draws: Draws) -> Iterator[None]:
        """Fix random draws and batch statistics during the body."""
        with self.fixed(draws), running_statistics(self.model):
            yield

    def outcome(self, data: Any, cuts: Any, scaled: bool) -> StepOutcome:
        """Train the rows as a whole (`cuts`: None) or in slices, restore all variables, and return the outcome."""
        with self.framework.preserved(self.model) as before:
            with outputs_kept(self.model) as outputs:
                loss, losses, gradients, logs = self._trained(data, cuts, scaled)
            state = self.changed(before)
        return StepOutcome(loss, losses, gradients, self._joined(outputs), logs, state)

    def _joined(self, outputs: list[Any]) -> list[Any]:
        """Return each output of a model as one array over all its calls; none if one of them is no array of rows."""
        calls: list[list[Any]] = []
        for output in outputs:
            calls.append([])
            self.framework.mapped(calls[-1].append, output)
        if not calls or not all(self.is_array(leaf) and self.step.rows(leaf) for leaf in calls[0]):
            return []
        concatenate = sys.modules["numpy"].concatenate
        return [concatenate([self.array(leaf) for leaf in parts]) for parts in zip(*calls)]

    def _trained(self, data: Any, cuts: Any, scaled: bool) -> Any:
        """Run the step without its update; return (loss, losses, gradients, logs)."""
        with holding(self.model, *self.step.updates) as held:
            held.scales = scaled
            held.weigh = lambda loss: loss
            if cuts is None:
                logs = self.step.whole(data)
                gradients, loss = held.gradients or [], held.loss
            else:
                logs, sums = self.step.summed(held, data, cuts, cuts[0] + cuts[1] * cuts[2])
                gradients = self.step.mean(sums, held)
                loss = None if held.loss is None else sums.loss / sums.share
                logs = batch_structure.fresh_logs(self.model, logs)
        self.uneven |= held.uneven
        self.names = [str(getattr(variable, "path", variable.name)) for variable in held.variables]
        numbers = {name: self.number(value) for name, value in logs.items()} if isinstance(logs, dict) else {}
        return (
            None if loss is None else self.number(loss),
            [self.number(one) or 0.0 for one in held.losses],
            [None if gradient is None else self.array(gradient) for gradient in gradients],
            {name: value for name, value in numbers.items() if value is not None},
        )

    def number(self, value: Any) -> Optional[float]:
        """Return the mean of a tensor, or a number as it is; None for any other object."""
        try:
            return float(sys.modules["numpy"].asarray(self.array(value), "float64").mean())
        except Exception:
            return None

    # What each framework does in its own way.

    def fixed(self, draws: Draws) -> AbstractContextManager[Any]:
        """Return a context manager that fixes random draws."""
        raise NotImplementedError

    def changed(self, before: Any) -> dict[str, Any]:
        """Return {path: value} of the variables that differ from `before`, except metrics, optimizers and seeds."""
        raise NotImplementedError

    def array(self, gradient: Any) -> Any:
        """Return a tensor as numpy has it, of a sparse gradient (values, indices)."""
        raise NotImplementedError


def patch(slices: Slices, trainer: Any, kind: type[SlicedStep], framework: Framework) -> None:
    """Wrap `train_step` of the class `trainer`, and have the first batches of each fit compared."""
    context = slices.context
    begun: set[int] = set()  # models whose fit has begun, and whose train function was not made since

    def step(original: Any) -> Any:
        # On JAX the step gets the state of model, optimizer and metrics before the data.
        return lambda model, *given: kind(framework, slices, original, model, *given[:-1]).run(given[-1])

    def function(original: Any) -> Any:
        def make_train_function(self: Any, *args: Any, **named: Any) -> Any:
            result = original(self, *args, **named)
            fit_begins = id(self) in begun
            begun.discard(id(self))
            try:
                if context.slices > 1:
                    _prepare(slices, framework, self, fit_begins)
            except Exception as error:
                context.surprise("preparing slices", error)
            # Keras 2 stores and calls what this returns: it must be the NextCall.
            return result if result is None else vars(self).get(NAME) or result

        return make_train_function

    if context.wrap(trainer, "train_step", step):
        context.hook_installed("train_step")
        context.wrap(trainer, "make_train_function", function)
        context.wrap(trainer, "fit", before(context, lambda model, *_, **__: begun.add(id(model))))


def _prepare(slices: Slices, framework: Framework, model: Any, fit_begins: bool) -> None:
    """Have the first batches of `model` compared, or report why they stay whole."""
    if not batch_structure.reaches(model):
        slices.announcer.unreached(model)
        slices.pass_over(model)
        return
    reason = ""
    if hasattr(model.train_step, "get_concrete_function"):  # a graph that was traced before would train
        reason = announcements.COMPILED_STEP
    elif batch_structure.is_own(model):
        iterators = [name for name, value in vars(model).items() if hasattr(value, "__next__")]
        reason = announcements.OWN_ITERATOR % iterators[0] if iterators else ""
    if reason:
        slices.stay_whole(model, reason)
    else:
        slices.prepare(model, framework, fit_begins)
