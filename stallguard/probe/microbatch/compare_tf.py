"""Trains a few rows of a batch eagerly on TensorFlow, as a whole and in slices, and restores all state."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Optional, Protocol

from . import batch_structure, compare, random_draws_tf, set_aside, sums_tf
from .deferred_update import holding
from .equality import StepOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .deferred_update import HeldUpdate
    from .random_draws import Draws

    class Step(Protocol):
        """What the rows need of keras_tf.Step: the framework's own step, and its slices."""

        tf: Any
        model: Any
        original: Any

        def summed(self, held: HeldUpdate, data: Any, cuts: Any, batch: Any) -> Any:
            """Return (logs, sums) of all slices."""

        def cut(self, data: Any, begin: Any, size: Any) -> Any:
            """Return `size` rows of each leaf from `begin`."""


WEIGHTS = (1.0, 0.5, 1.5, 0.75, 1.25)  # of the rows: all different


class Framework(compare.Framework):
    """What a comparison needs from Keras on TensorFlow."""

    def __init__(self, tf: Any) -> None:
        self.tf = tf

    def _given(self, batch: Any) -> Any:
        """Return a batch as the train function passes it to the step: tensors, and None for a missing leaf."""
        tf = self.tf

        def one(leaf: Any) -> Any:
            if leaf is None or isinstance(leaf, tf.experimental.Optional):
                return None
            return (
                leaf if hasattr(leaf, "dtype") and hasattr(leaf.shape, "rank") else tf.convert_to_tensor(leaf)
            )

        return tf.nest.map_structure(one, batch)

    def train(self, model: Any, arguments: Any, batch: Any) -> Any:
        """Run the step eagerly."""
        return model.train_step(self._given(batch))

    def build(self, model: Any, arguments: Any, batch: Any) -> None:
        """Create what the first step would create, by tracing one without running it."""
        if not batch_structure.is_built(model):
            self.tf.function(model.train_step).get_concrete_function(self._given(batch))

    @contextmanager
    def preserved(self, model: Any) -> Iterator[Any]:
        """Restore all variables that a step can change."""
        before = values(self.tf, model)
        known = {id(variable) for variable in _metrics(model)}
        try:
            yield before
        finally:
            if any(id(variable) not in known for variable in _metrics(model)):
                model.reset_metrics()  # some were created in the body
            put_back(before)


def held_back(step: Step, data: Any) -> Any:
    """Run the framework's own step without its update; return the logs."""
    with holding(step.model, "apply_gradients", "apply") as held:
        held.weigh = lambda loss: loss
        return step.original(step.model, data)


class Rows:
    """What compare.SliceComparison does with rows of a batch: it selects, changes and trains them in one step."""

    most = 5  # rows

    def __init__(self, step: Step) -> None:
        self.step = step
        self.tf = step.tf
        self.model = step.model
        self.uneven = False  # several losses divide by different counts
        self._names: list[str] = []  # paths of the variables of the last gradients

    def kind(self, data: Any) -> str:
        """Return the kind of a batch: structure, types, and shapes without the number of rows."""
        found = [(name, self.rows(leaf), leaf) for name, leaf in batch_structure.leaves(data)]
        first = next((rows for _, rows, _ in found if rows is not None), 0)
        parts = []
        for name, rows, leaf in found:
            shape = str(leaf.shape[1:]) if rows else ""
            parts.append((name, type(leaf).__name__, leaf.dtype.name, shape, rows == first))
        return repr(parts)

    def rows(self, leaf: Any) -> Optional[int]:
        """Return the rows of a leaf, None for a single number."""
        if isinstance(leaf, self.tf.RaggedTensor):
            return int(leaf.nrows())
        if isinstance(leaf, self.tf.SparseTensor):
            return int(leaf.dense_shape[0])
        return int(leaf.shape[0]) if leaf.shape.rank else None

    def some(self, data: Any, count: int) -> Any:
        """Return `count` rows of the batch, spread over it; the first ones if it is sparse."""
        tf = self.tf
        leaves = [leaf for _, leaf in batch_structure.leaves(data)]
        rows = self.rows(leaves[0]) or 0
        if any(isinstance(leaf, tf.SparseTensor) for leaf in leaves):
            return self.step.cut(data, 0, count)
        places = [place * (rows - 1) // (count - 1) for place in range(count)]
        return tf.nest.map_structure(lambda leaf: None if leaf is None else tf.gather(leaf, places), data)

    def blanked(self, data: Any) -> Any:
        """Return the rows with zero as the last one's target, and a different weight for each."""
        tf = self.tf
        if not isinstance(data, tuple) or len(data) < 2:  # noqa: PLR2004
            return data

        def blank(leaf: Any) -> Any:
            if not isinstance(leaf, tf.Tensor) or leaf.dtype == tf.string:
                return leaf
            return tf.concat([leaf[:-1], tf.zeros_like(leaf[-1:])], 0)

        def weigh(leaf: Any) -> Any:
            if not isinstance(leaf, tf.Tensor) or not leaf.dtype.is_floating:
                return leaf
            weights = tf.constant(WEIGHTS[: leaf.shape[0]], leaf.dtype)
            return leaf * tf.reshape(weights, [-1] + [1] * (leaf.shape.rank - 1))

        targets = tf.nest.map_structure(blank, data[1])
        return (data[0], targets, *(tf.nest.map_structure(weigh, part) for part in data[2:]))

    def cuts(self, count: int) -> tuple[int, int, int]:
        """Return how `count` rows are sliced: one row first, which exposes a wrong squeeze; see slice_plan.plan."""
        return (1, 2, count // 2) if count % 2 else (1, count - 1, 1)

    @contextmanager
    def neutral(self, draws: Draws) -> Iterator[None]:
        """Fix random draws and batch statistics during the body, and write no summaries."""
        with ExitStack() as stack:
            stack.enter_context(random_draws_tf.alike(self.tf, draws))
            stack.enter_context(set_aside.running_statistics(self.model))
            stack.enter_context(self.tf.summary.record_if(False))
            yield

    def outcome(self, data: Any, cuts: Any, scaled: bool) -> StepOutcome:
        """Train the rows as a whole (`cuts`: None) or in slices, restore all variables, and return the outcome."""
        with Framework(self.tf).preserved(self.model) as before:
            with set_aside.outputs_kept(self.model) as outputs:
                loss, losses, gradients, logs = self._trained(data, cuts, scaled)
            state = self._changed(before)
        calls = [self.tf.nest.flatten(output) for output in outputs]
        joined: list[Any] = []
        if calls and all(isinstance(leaf, self.tf.Tensor) and leaf.shape.rank for leaf in calls[0]):
            joined = [self.tf.concat(parts, 0).numpy() for parts in zip(*calls)]
        return StepOutcome(loss, losses, gradients, joined, logs, state)

    def _trained(self, data: Any, cuts: Any, scaled: bool) -> Any:
        """Run the step without its update; return (loss, losses, gradients, logs)."""
        with holding(self.model, "apply_gradients", "apply") as held:
            held.scales = scaled
            held.weigh = lambda loss: loss
            if cuts is None:
                logs = self.step.original(self.model, data)
                gradients, loss = held.gradients or [], held.loss
            else:
                rows = cuts[0] + cuts[1] * cuts[2]
                logs, sums = self.step.summed(held, data, cuts, rows)
                gradients = sums_tf.mean(self.tf, sums, held)
                loss = None if held.loss is None else sums.loss / sums.share
                logs = batch_structure.fresh_logs(self.model, logs)
        self.uneven |= held.uneven
        self._names = [str(getattr(v, "path", v.name)) for v in held.variables]
        numbers = {name: _number(value) for name, value in (logs if isinstance(logs, dict) else {}).items()}
        logged = {name: value for name, value in numbers.items() if value is not None}
        return (
            _number(loss),
            [_number(one) or 0.0 for one in held.losses],
            list(map(self._array, gradients)),
            logged,
        )

    def names(self) -> list[str]:
        """Return the paths of the variables of the last gradients."""
        return self._names

    def _array(self, gradient: Any) -> Any:
        if gradient is None:
            return None
        if isinstance(gradient, self.tf.IndexedSlices):
            return gradient.values.numpy(), gradient.indices.numpy()
        return gradient.numpy()

    def _changed(self, before: list[tuple[Any, Any]]) -> dict[str, Any]:
        """Return {name: value} of the variables that changed, except those of metrics, optimizers and seeds."""
        apart = [*_metrics(self.model), *_listed(self.model.optimizer, "variables")]
        excluded = {id(getattr(variable, "_value", variable)) for variable in apart}
        paths = {id(getattr(v, "_value", v)): str(getattr(v, "path", v.name)) for v in self.model.variables}
        changed = {}
        for variable, value in before:
            if (
                id(variable) in excluded
                or "seed_generator" in variable.name
                or variable.name.startswith("StateVar")
            ):
                continue
            now = variable.read_value()
            same = now.shape == value.shape and bool(self.tf.reduce_all(self.tf.equal(now, value)))
            if not same:
                changed[paths.get(id(variable), str(variable.name))] = variable.numpy()
        return changed


def values(tf: Any, model: Any) -> list[tuple[Any, Any]]:
    """Return (variable, value) of all that a step can change; a value is copied only when its variable changes."""
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


def put_back(before: list[tuple[Any, Any]]) -> None:
    """Set the variables to the values that `values` returned."""
    for variable, value in before:
        variable.assign(value)


def _metrics(model: Any) -> list[Any]:
    return [variable for metric in model.metrics for variable in metric.variables]


def _listed(owner: Any, name: str) -> list[Any]:
    found = getattr(owner, name, None)
    return list(found() if callable(found) else found or ())


def _number(value: Any) -> Optional[float]:
    """Return the mean of a tensor, None for any other object."""
    try:
        return float(value.numpy().astype("float64").mean())
    except Exception:
        return None
