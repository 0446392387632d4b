"""A training step in slices, and the rows of its comparison: what is the same in every framework.

slices_tf.py, slices_torch.py and slices_jax.py derive from these what their framework does otherwise: how a batch is
cut, how sums are kept, which functions draw random numbers.  `SlicedStep.run` takes the place of Keras' `train_step`
(`patch`): the framework's own step runs once for each slice with the optimizer's update held back
(deferred_update.py), and one update follows.  `ComparedRows` is what compare.SliceComparison asks for.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Optional

from ..hooks import before
from ..lookahead import NAME
from . import announcements, batch_structure, compare
from .compare import StepOutcome
from .deferred_update import HeldUpdate, holding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from .announcements import Announcer
    from .compare import Framework, Slices
    from .deferred_update import Draws


@contextmanager
def running_statistics(model: Any) -> Iterator[None]:
    """Have batch normalisation use its running statistics, and not update them, during the body."""
    layers = batch_structure.normalisations(model)
    for layer in layers:
        vars(layer)["call"] = _in_inference(layer.call)
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("call", None)


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

    own = vars(model)
    before = own.get("compute_loss")
    if original is not None:
        own["compute_loss"] = compute_loss
    try:
        yield kept
    finally:
        own.pop("compute_loss", None)
        if before is not None:
            own["compute_loss"] = before


WEIGHTS = (1.0, 0.5, 1.5, 0.75, 1.25)  # of compared rows: all different


class SlicedStep:
    """One `train_step` call, run slice by slice."""

    updates: tuple[str, ...] = ("apply_gradients", "apply")  # methods of the optimizer that are held back

    def __init__(self, slices: Slices, original: Any, model: Any) -> None:
        self.announcer = slices.announcer
        self.slices = slices
        self.original = original
        self.model = model

    def run(self, data: Any, factor: int) -> Any:
        """Train one batch in `factor` slices and one update; return what the framework's own step returns."""
        if factor <= 1:
            return self.whole(data)
        comparison = self.slices.comparison(self.model)
        if comparison is not None and comparison.building:
            return self.held_back(data)
        if comparison is not None:
            comparison.compare(self.compared_rows(), data)
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
        before = self.kept()
        try:
            with holding(self.model, *self.updates) as held:
                trained = self.train(held, data, factor)
        except Exception as error:
            if compare.is_lack_of_memory(error):
                raise
            self.put_back(before)
            self.slices.stay_whole(self.model, "its step fails in slices (%s)" % compare.described(error))
            return self.whole(data)
        self.announcer.cut()
        return self.finish(held, trained)

    def whole(self, data: Any) -> Any:
        """Run the framework's own step."""
        return self.original(self.model, data)

    def held_back(self, data: Any) -> Any:
        """Run the framework's own step without its update; return the logs."""
        with holding(self.model, *self.updates) as held:
            held.weigh = lambda loss: loss
            return self.whole(data)

    def obstacle(self) -> str:
        """Return why this framework cannot slice the step of the model; "" if it can."""
        return ""

    def rows(self, leaf: Any) -> Any:
        """Return the rows of a leaf: a number, None for a single value, or "unknown" before the graph runs."""
        return plain_rows(leaf)

    def kept(self) -> Any:
        """Return what `put_back` needs if the slices fail."""

    def put_back(self, before: Any) -> None:
        """Undo what slices that failed have changed."""

    def compared_rows(self) -> ComparedRows:
        """Return the rows of this step for its comparison."""
        raise NotImplementedError

    def train(self, held: HeldUpdate, data: Any, factor: int) -> Any:
        """Train the slices, without the update."""
        raise NotImplementedError

    def finish(self, held: HeldUpdate, trained: Any) -> Any:
        """Make the update of the batch and log its loss; return what the framework's own step returns."""
        raise NotImplementedError


def plain_rows(leaf: Any) -> Optional[int]:
    """Return the rows of an array, None for a single number."""
    shape: Any = getattr(leaf, "shape", ())
    return int(shape[0]) if len(shape) else None


class ComparedRows:
    """What compare.SliceComparison does with rows of a batch: it selects, changes and trains them in one step."""

    most = 5  # rows

    def __init__(self, step: Any) -> None:
        self.step = step
        self.model = step.model
        self.uneven = False  # several losses divide by different counts
        self._names: list[str] = []  # paths of the variables of the last gradients

    def kind(self, data: Any) -> str:
        """Return the kind of a batch: structure, types, and shapes without the number of rows."""
        found = [(name, self.rows(leaf), leaf) for name, leaf in batch_structure.leaves(data)]
        first = next((count for _, count, _ in found if count is not None), 0)
        parts = []
        for name, count, leaf in found:
            shape = str(leaf.shape[1:]) if count else ""
            parts.append((name, type(leaf).__name__, str(getattr(leaf, "dtype", "")), shape, count == first))
        return repr(parts)

    def rows(self, leaf: Any) -> Optional[int]:
        """Return the rows of a leaf, None for a single number."""
        return plain_rows(leaf)

    def some(self, data: Any, count: int) -> Any:
        """Return `count` rows of the batch, spread over it."""
        every = self.rows(batch_structure.leaves(data)[0][1]) or 0
        places = [place * (every - 1) // (count - 1) for place in range(count)]
        return self.mapped(lambda leaf: self.taken(leaf, places), data)

    def blanked(self, data: Any) -> Any:
        """Return the rows with zero as the last one's target, and a different weight for each."""
        if not isinstance(data, tuple) or len(data) < 2:  # noqa: PLR2004
            return data
        targets = self.mapped(self.blank, data[1])
        return (data[0], targets, *(self.mapped(self.weighed, part) for part in data[2:]))

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
        with self.preserved() as before:
            with outputs_kept(self.model) as outputs:
                loss, losses, gradients, logs = self._trained(data, cuts, scaled)
            state = self.changed(before)
        calls = [self.flat(output) for output in outputs]
        joined: list[Any] = []
        if calls and all(map(self.has_rows, calls[0])):
            joined = [self.joined(parts) for parts in zip(*calls)]
        return StepOutcome(loss, losses, gradients, joined, logs, state)

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
                gradients = self.mean(sums, held)
                loss = None if held.loss is None else sums.loss / sums.share
                logs = batch_structure.fresh_logs(self.model, logs)
        self.uneven |= held.uneven
        self._names = [str(getattr(variable, "path", variable.name)) for variable in held.variables]
        numbers = {name: self.number(value) for name, value in logs.items()} if isinstance(logs, dict) else {}
        return (
            None if loss is None else self.number(loss),
            [self.number(one) or 0.0 for one in held.losses],
            [None if gradient is None else self.array(gradient) for gradient in gradients],
            {name: value for name, value in numbers.items() if value is not None},
        )

    def names(self) -> list[str]:
        """Return the paths of the variables of the last gradients."""
        return self._names

    # What each framework does in its own way.

    def mapped(self, change: Callable[[Any], Any], data: Any) -> Any:
        """Return the structure `data` with each leaf changed; a leaf that is None stays."""
        raise NotImplementedError

    def taken(self, leaf: Any, places: list[int]) -> Any:
        """Return the rows of a leaf at `places`."""
        raise NotImplementedError

    def blank(self, leaf: Any) -> Any:
        """Return a leaf whose last row is zero."""
        raise NotImplementedError

    def weighed(self, leaf: Any) -> Any:
        """Return a leaf of floats with each row times its number of WEIGHTS; any other as it is."""
        raise NotImplementedError

    def fixed(self, draws: Draws) -> AbstractContextManager[Any]:
        """Return a context manager that fixes random draws."""
        raise NotImplementedError

    def preserved(self) -> AbstractContextManager[Any]:
        """Return a context manager that restores all variables that a step can change."""
        raise NotImplementedError

    def changed(self, before: Any) -> dict[str, Any]:
        """Return {path: value} of the variables that differ from `before`, except metrics, optimizers and seeds."""
        raise NotImplementedError

    def flat(self, output: Any) -> list[Any]:
        """Return the leaves of a layer's output."""
        raise NotImplementedError

    def has_rows(self, leaf: Any) -> bool:
        """Return whether a leaf of an output is an array with rows."""
        raise NotImplementedError

    def joined(self, parts: Any) -> Any:
        """Return arrays of rows as one array of numpy."""
        raise NotImplementedError

    def mean(self, sums: Any, held: HeldUpdate) -> Any:
        """Return the batch's gradients from the sums of its slices."""
        raise NotImplementedError

    def number(self, value: Any) -> Optional[float]:
        """Return the mean of a tensor, or a number as it is; None for any other object."""
        raise NotImplementedError

    def array(self, gradient: Any) -> Any:
        """Return a gradient as numpy has it."""
        raise NotImplementedError


Step = Callable[[Any], Any]


def patch(slices: Slices, trainer: Any, step: Step, framework: Framework) -> None:
    """Wrap `train_step` of the class `trainer`, and have the first batches of each fit compared."""
    context, announcer = slices.context, slices.announcer
    begun: set[int] = set()  # models whose fit has begun, and whose train function was not made since

    def function(original: Any) -> Any:
        def make_train_function(self: Any, *args: Any, **named: Any) -> Any:
            result = original(self, *args, **named)
            fit_begins = id(self) in begun
            begun.discard(id(self))
            try:
                if context.factor > 1:
                    _prepare(announcer, slices, framework, self, fit_begins)
            except Exception as error:
                context.surprise("preparing slices", error)
            # Keras 2 stores and calls what this returns: it must be the NextCall.
            return result if result is None else vars(self).get(NAME) or result

        return make_train_function

    if context.wrap(trainer, "train_step", step):
        context.hook_installed("train_step")
        context.wrap(trainer, "make_train_function", function)
        context.wrap(trainer, "fit", before(context, lambda model, *_, **__: begun.add(id(model))))


def _prepare(
    announcer: Announcer, slices: Slices, framework: Framework, model: Any, fit_begins: bool
) -> None:
    """Have the first batches of `model` compared, or report why they stay whole."""
    if not batch_structure.reaches(model):
        announcer.unreached(model)
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
