"""Compares a few rows of the first batch, trained as a whole and in slices; only if they agree, slices are used.

With a loss that is a sum, a layer with a state or a loss over pairs of rows, slices train something different, and most
of these cases cannot be detected from the model.  So before the first step in slices, a few rows spread over the first
batch (lookahead.py) go through the model's own `train_step` with the update deferred: once together, once in slices of
one and two rows.  If loss, gradients or the state of layers differ, or after any error, the batch stays whole.

Two known differences are removed for the comparison: random draws are equal in every row (deferred_update.py), and
batch normalisation uses its running statistics.  Both do differ in the training, and the note names their layers.  Two
cases that real rows can hide are added: the last row's target is zero, as padding is, and sample weights differ, which
exposes a loss divided by a count of its own.  If that gives no finite numbers, the real rows are compared.

Everything is undone afterwards: the framework's variables, the process' random generators, and the attributes of layers
and models whose classes are the script's (a counter, a list that grows).  The cost is a few rows, trained eagerly, for
each model and kind of batch.

Equal within rounding means: the two gradients of each variable differ by at most a fraction of their own size, or by an
amount that is negligible beside all gradients (the bias of an attention's keys has a gradient of zero, computed as
noise).  The fraction is 1e-4 in float32.  Measured on a CPU: 5e-6 and less in deep networks, but 3.6e-5 for the bias
of a convolution, whose gradient is a sum over each pixel of each row.  A device can compute the same row differently in
a smaller batch (other kernels, TF32): the difference between the model's outputs for the same rows then shows how much
of a difference comes from the device.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import deque
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional
from weakref import WeakKeyDictionary, WeakSet

from .. import libraries
from ..checkpoint import random_state
from ..checkpoint.announcements import listed
from ..lookahead import NAME, Lookahead, NextCall
from . import announcements, batch_structure
from .deferred_update import Draws

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..context import Context

FLOAT, HALF = 1e-5, 1e-2  # relative, for float32 and for float16 or bfloat16
FLOORS = {FLOAT: 1e-7, HALF: 1e-3}  # relative to all gradients together
MOST = 1e-3  # at most, even if a device's outputs differ more
AMPLIFIED = 10.0  # how much more a gradient can differ than the outputs that it is computed from
SUMMED = 10.0  # and than a loss or a state: it is a sum of many more numbers
OTHERWISE = "its gradients in slices are not those of a whole batch (%r)"
LOGGED = 1e-4  # relative; a metric is a mean of rounded numbers


class StepOutcome(NamedTuple):
    """The result of training some rows, before any update.  Arrays are numpy's.

    `losses`: of the slices.  `gradients`: an array for each variable, or (values, indices) of an embedding's rows, or
    None.  `outputs`: the model's, joined over the slices.  `state`: the variables that changed without an update, by
    their paths; no metrics, no seeds.
    """

    loss: Optional[float]
    losses: list[float]
    gradients: list[Any]
    outputs: list[Any]
    logs: dict[str, float]
    state: dict[str, Any]


def is_finite(outcome: StepOutcome) -> bool:
    """Return whether loss and gradients are finite."""
    numpy = _numpy()
    parts = [_dense(gradient) for gradient in outcome.gradients if gradient is not None]
    return all(bool(numpy.isfinite(part).all()) for part in [*parts, numpy.asarray(outcome.loss or 0.0)])


def is_zero(outcome: StepOutcome) -> bool:
    """Return whether all gradients are zero or missing."""
    return not any(g is not None and _dense(g).any() for g in outcome.gradients)


def difference(whole: StepOutcome, sliced: StepOutcome, names: list[str], *, half: bool) -> str:
    """Return why the slices are not equivalent to the whole batch; "" if they are.

    `names`: of the variables.  `half`: whether the model computes in 16 bits.
    """
    part = HALF if half else min(MOST, max(FLOAT, AMPLIFIED * _apart(whole.outputs, sliced.outputs)))
    layers = changed_otherwise(whole.state, sliced.state, part)
    summed = part if half else min(MOST, SUMMED * part)
    worst, name = _worst(whole.gradients, sliced.gradients, names, summed, FLOORS[HALF if half else FLOAT])
    if worst <= 1.0 and _same_loss(whole, sliced, part):
        return "the layer %r keeps state that slices change" % layers[0] if layers else ""
    if layers:
        return "the layer %r keeps state from one slice to the next" % layers[0]
    if whole.loss is None or sliced.loss is None or _same_loss(whole, sliced, part):
        return OTHERWISE % name.partition(":")[0]
    if _near(whole.loss, sum(sliced.losses), sliced.losses, part):
        return "the loss adds up over the batch"
    said = "the loss of a batch is not the mean over its rows (%.4g for some rows at once, %.4g in slices)"
    return said % (whole.loss, sliced.loss)


def unlike_logs(whole: StepOutcome, sliced: StepOutcome) -> list[str]:
    """Return the names of metrics that slices change, other than the loss."""
    numpy = _numpy()
    return [
        name
        for name, value in whole.logs.items()
        if name != "loss" and not numpy.isclose(sliced.logs.get(name, value), value, LOGGED, 1e-6, equal_nan=True)
    ]


def changed_otherwise(one: dict[str, Any], other: dict[str, Any], part: float) -> list[str]:
    """Return the owners ("layer" of "layer/variable") of the variables that differ."""
    numpy = _numpy()
    return [
        name.rpartition("/")[0].rpartition("/")[2] or name
        for name in {**one, **other}
        if name not in one
        or name not in other
        or not numpy.allclose(_plain(one[name]), _plain(other[name]), part, 1e-7, equal_nan=True)
    ]


def _same_loss(whole: StepOutcome, sliced: StepOutcome, part: float) -> bool:
    if whole.loss is None or sliced.loss is None:
        return whole.loss is sliced.loss
    return _near(whole.loss, sliced.loss, sliced.losses, part)


def _near(one: float, other: float, parts: list[float], part: float) -> bool:
    return abs(one - other) <= part * max(abs(one), *map(abs, parts), 1e-7)


def _worst(ones: list[Any], others: list[Any], names: list[str], part: float, floor: float) -> tuple[float, str]:
    """Return the largest difference of a variable's gradients, relative to the limit, and whose it is."""
    numpy = _numpy()
    every = float(numpy.sqrt(sum(_norm(_dense(g)) ** 2 for g in ones if g is not None)))
    found = (0.0, "")
    for one, other, name in zip(ones, others, names):
        if one is None and other is None:
            continue
        apart, size = _distance(one, other)
        found = max(found, (apart / (part * size + floor * every + 1e-30), name))
    if len(ones) != len(others):
        return float("inf"), names[0] if names else ""
    return found


def _distance(one: Any, other: Any) -> tuple[float, float]:
    """Return the distance of two gradients, and the size of the first."""
    numpy = _numpy()
    if one is None or other is None:
        given = _dense(other if one is None else one)
        return _norm(given), 0.0
    if isinstance(one, tuple) or isinstance(other, tuple):
        # Of the rows of an embedding that are in either, each row once.
        pairs = [pair if isinstance(pair, tuple) else (pair, numpy.arange(len(pair))) for pair in (one, other)]
        every = numpy.unique(numpy.concatenate([indices for _, indices in pairs]))
        one, other = (numpy.zeros((len(every), *values.shape[1:])) for values, _ in pairs)
        for rows, (values, indices) in zip((one, other), pairs):
            numpy.add.at(rows, numpy.searchsorted(every, indices), _plain(values))
    one, other = _plain(one), _plain(other)
    if one.shape != other.shape:
        return float("inf"), 0.0
    return _norm(one - other), _norm(one)


def _apart(ones: list[Any], others: list[Any]) -> float:
    """Return the distance of the outputs for the same rows, relative to their size; 0 if that is not known."""
    numpy = _numpy()
    found = 0.0
    for one, other in zip(map(_plain, ones), map(_plain, others)):
        if one.shape == other.shape and one.size and numpy.isfinite(one).all() and numpy.isfinite(other).all():
            found = max(found, _norm(one - other) / (_norm(one) + 1e-30))
    return found


def _dense(gradient: Any) -> Any:
    return _plain(gradient[0] if isinstance(gradient, tuple) else gradient)


def _plain(value: Any) -> Any:
    """Return an array of a type that numpy can compute with, unlike bfloat16."""
    value = _numpy().asarray(value)
    return value if value.dtype.name in ("float32", "float64") else value.astype("float64")


def _norm(value: Any) -> float:
    return float(_numpy().linalg.norm(value.ravel()))


def _numpy() -> Any:
    return sys.modules["numpy"]


KEPT = (list, dict, set, deque)  # their contents are restored too


@contextmanager
def undone(owners: list[Any]) -> Iterator[None]:
    """Restore generators and the attributes of `owners` after the body, and suppress its warnings.

    The training repeats those.  The contents of lists, dicts, sets and deques in attributes are restored too.
    """
    attributes = [
        (vars(owner), {name: (value, _contents(value)) for name, value in vars(owner).items()}) for owner in owners
    ]
    before = random_state.capture()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            random_state.restore(before)
            for own, values in attributes:
                _put_back(own, values)


def _put_back(own: dict[str, Any], before: dict[str, tuple[Any, list[tuple[Any, Any, list[Any]]]]]) -> None:
    for name in [name for name in own if name not in before]:
        del own[name]
    for name, (value, contents) in before.items():
        if own.get(name) is not value:
            own[name] = value
        for container, kind, items in contents:
            _refill(container, kind, items)


def own_objects(model: Any) -> list[Any]:
    """Return the model and the layers whose class the script, or a library on top of Keras, defines."""
    every = [model, *batch_structure.layers(model)]
    return [owner for owner in every if libraries.of_class(type(owner)) is None]


def _contents(value: Any) -> list[tuple[Any, Any, list[Any]]]:
    """Return (container, kind, copy of its items): Keras 3 replaces them by subclasses, TensorFlow by wrappers."""
    parts = [getattr(value, "__wrapped__", value)]
    if isinstance(value, list):
        parts.append(getattr(value, "_storage", None))
    return [(part, kind, _items(part, kind)) for part in parts for kind in KEPT if isinstance(part, kind)]


def _items(container: Any, kind: Any) -> list[Any]:
    return list(dict.items(container)) if kind is dict else list(kind.__iter__(container))


def _refill(container: Any, kind: Any, items: list[Any]) -> None:
    """Restore the items if they differ, without the wrappers' own methods, which record each change."""
    now = _items(container, kind)
    if [*map(_identity, now)] != [*map(_identity, items)]:
        kind.clear(container)
        (kind.update if kind in (dict, set) else kind.extend)(container, items)


def _identity(item: Any) -> Any:
    return tuple(map(id, item)) if isinstance(item, tuple) else id(item)


LEAST = 3  # rows, however small a slice of the training will be
QUOTED = 150  # characters of an error
MEMORY = ("ResourceExhausted", "OutOfMemory", "MemoryError")  # in the names of errors
# In their texts: those of core/diagnosis/signatures.py that mean a lack of memory, as a test holds.
WORDS = re.compile(
    r"RESOURCE_EXHAUSTED|out of memory|OutOfMemory|OOM when allocating|can't allocate memory|ALLOC_FAILED"
    r"|bad_alloc|\[metal::malloc\]|Invalid buffer size",
    re.IGNORECASE,
)


class Enough(BaseException):
    """Ends the step that was begun for a comparison; the script does not catch it as an Exception."""


class SliceVerdict(NamedTuple):
    """The result for a model.  `reason`: why its batches stay whole, "" if slices are equivalent."""

    kind: str  # of the batches to which it applies
    reason: str


class Framework:
    """What slices and their comparison need of a framework: three of its functions, and those below."""

    def __init__(self, map_structure: Any, concatenate: Any, zeros_like: Any) -> None:
        self.map_structure, self.concatenate, self.zeros_like = map_structure, concatenate, zeros_like

    def mapped(self, change: Callable[[Any], Any], data: Any) -> Any:
        """Return the structure `data` with each leaf changed; a leaf that is None stays."""
        return self.map_structure(lambda leaf: None if leaf is None else change(leaf), data)

    def train(self, model: Any, arguments: Any, batch: Any) -> Any:
        """Run the step of a model as its train function does, but outside of any graph."""
        raise NotImplementedError

    def build(self, model: Any, arguments: Any, batch: Any) -> None:
        """Create what the first step would create, and change nothing else; JAX and torch have created it before."""

    def kept(self, model: Any, *, weights: bool) -> Any:
        """Return the values of all variables that a step can change; `weights`: with the trained ones."""

    def put_back(self, before: Any) -> None:
        """Set the variables to the values that `kept` returned."""

    @contextmanager
    def preserved(self, model: Any) -> Iterator[Any]:
        """Restore all that a step can change after the body."""
        before = self.kept(model, weights=True)
        try:
            yield before
        finally:
            self.put_back(before)


class Slices:
    """Decides which models of the process are trained in slices."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.announcer = announcements.Announcer(context)
        self._lookahead = Lookahead(context)
        self._verdicts: WeakKeyDictionary[Any, SliceVerdict] = WeakKeyDictionary()
        # The train function for which each model was prepared.
        self._functions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        # Models whose step is in a graph as a whole, before the comparison.
        self._traced: WeakSet[Any] = WeakSet()
        self._comparison: Optional[SliceComparison] = None
        self._is_remaking = False

    def prepare(self, model: Any, framework: Framework, fit_begins: bool) -> None:
        """Have the batches of the next step compared, unless they were: a fit that begins can have other data."""
        function = _made(model)
        same = self._functions.get(model) is function
        if function is None or self._is_remaking or (same and not fit_begins):
            return
        if not same:
            self._verdicts.pop(model, None)  # it was compiled again: the loss can be different
        if self._lookahead.arrange(model, lambda batches: self._look(model, framework, batches)):
            self._functions[model] = function
        else:
            self.stay_whole(model, announcements.REPLICAS)

    def reason(self, model: Any) -> str:
        """Return why the batches of `model` stay whole, "" if slices are equivalent."""
        verdict = self._verdicts.get(model)
        if verdict is not None:
            return verdict.reason
        if isinstance(vars(model).get(NAME), NextCall):  # its first batch has not been compared yet
            self._traced.add(model)
            return announcements.TOO_EARLY
        return announcements.UNSEEN

    def comparison(self, model: Any) -> Optional[SliceComparison]:
        """Return the comparison of `model` that is running, None if there is none."""
        there = self._comparison
        return there if there is not None and there.model is model else None

    def stay_whole(self, model: Any, reason: str, kind: str = "") -> None:
        """Train the batches of `model` whole from now on, and report why.  `kind`: of the compared batches."""
        self._verdicts[model] = SliceVerdict(kind, reason)
        self.announcer.whole(model, reason)

    def pass_over(self, model: Any) -> None:
        """Ignore a model whose step cannot be sliced; `Announcer.unreached` reports it."""
        self._verdicts[model] = SliceVerdict("", announcements.OUT_OF_REACH)

    def _look(self, model: Any, framework: Framework, batches: list[Any]) -> None:
        if not batches:
            return
        before = self._verdicts.get(model)
        comparison = SliceComparison(model, self.context.slices)
        self._comparison = comparison
        try:
            with self.context.phase("first run"):
                comparison.run(framework, self._lookahead.arguments, batches[0], before.kind if before else None)
        finally:
            self._comparison = None
        if comparison.known:
            return
        if comparison.reason:
            self.stay_whole(model, comparison.reason, comparison.kind)
        else:
            self._verdicts[model] = SliceVerdict(comparison.kind, "")
            self.announcer.sliced(model, comparison.sentence())
        # The reason for which the graph of its step, if there is one, was traced with whole batches; "": with slices.
        traced = before.reason if before else comparison.reason
        if model in self._traced:
            traced = announcements.TOO_EARLY
        self._traced.discard(model)
        if bool(traced) != bool(comparison.reason):
            self._is_remaking = True
            try:
                model.make_train_function(force=True)
            finally:
                self._is_remaking = False
            self._functions[model] = _made(model)


begin = Slices


class SliceComparison:
    """The comparison of one model, and its result: `reason`, and the layers and metrics that slices change."""

    def __init__(self, model: Any, slices: int) -> None:
        self.model = model
        self.slices = slices
        self.kind = ""
        self.building = False  # the step only runs so that all variables exist; nothing is compared
        self.known = False  # batches of this kind were compared before
        self.reason = announcements.NEVER_CALLED
        self.rows = 0
        self.draws = Draws()
        self.normalisations: list[str] = []
        self.metrics: list[str] = []
        self._kind_before: Optional[str] = None

    def run(self, framework: Framework, arguments: tuple[Any, ...], batch: Any, kind: Optional[str]) -> None:
        """Begin a step with `batch`; the wrapper of the framework's step calls `compare`.  `kind`: compared before."""
        self._kind_before = kind
        try:
            self.building = True
            framework.build(self.model, arguments, batch)
            self.building = False
            with (
                undone(own_objects(self.model)),
                framework.preserved(self.model) if batch_structure.is_own(self.model) else nullcontext(),
            ):
                framework.train(self.model, arguments, batch)
        except Enough:
            pass
        except Exception as error:
            self.reason = "its step fails for a comparison (%s)" % described(error)

    def compare(self, step_rows: Any, data: Any) -> None:
        """Compare rows of `data`, the batch that the framework's own step got; always raises Enough."""
        self.kind = step_rows.kind(data)
        self.known = self.kind == self._kind_before
        if self.known:
            raise Enough
        self.normalisations = [layer.name for layer in batch_structure.normalisations(self.model)]
        reason = self._obstacle(step_rows, data)
        if not reason:
            size = -(-self.rows // self.slices)  # of a slice in the training
            self.rows = min(self.rows, max(LEAST, min(step_rows.most, size)))
            try:
                reason = self._compared(step_rows, step_rows.some(data, self.rows))
            except Exception as error:
                fixed = batch_structure.fixed_size(self.model)
                if fixed > self.rows:
                    reason = "the model has a fixed batch size of %d" % fixed
                else:
                    reason = "its step fails with %d rows (%s)" % (self.rows, described(error))
        self.reason = reason
        raise Enough

    def _obstacle(self, step_rows: Any, data: Any) -> str:
        rows = [(name, step_rows.step.rows(leaf)) for name, leaf in batch_structure.leaves(data)]
        layer = batch_structure.stateful(self.model)
        if layer:
            return "the layer %r is stateful: it keeps its state from one batch to the next" % layer
        found = batch_structure.obstacle(rows)
        self.rows = 0 if found else rows[0][1]
        return found or ("a batch has a single row" if self.rows < 2 else "")  # noqa: PLR2004

    def _compared(self, step_rows: Any, data: Any) -> str:
        """Return why slices differ; "" if they do not.  The first pair of outcomes that is finite decides."""
        tries: list[tuple[bool, bool]] = [(True, True), (False, True), (False, False)]
        for blank, scaled in tries:
            try:
                given = step_rows.blanked(data) if blank else data
                with step_rows.neutral(self.draws):
                    whole = step_rows.outcome(given, None, scaled)
                    sliced = step_rows.outcome(given, step_rows.cuts(self.rows), scaled)
            except Exception:
                if blank:
                    continue
                raise
            if is_finite(whole) and not (blank and is_zero(whole)):
                break
        else:
            return "the loss of its first rows is not a number, so that nothing can be compared"
        if not whole.gradients or is_zero(whole):
            return "the gradients of its first rows are zero, so that nothing can be compared"
        if step_rows.uneven:
            return "masked losses of several outputs have different shares of the batch"
        if not is_finite(sliced):
            return "the loss of single rows is not a number"
        half = batch_structure.is_half(self.model)
        found = difference(whole, sliced, step_rows.names, half=half)
        if found and self.draws.real:
            names = _listed(sorted(self.draws.real))
            return "%s draws random numbers that a comparison cannot fix" % names
        self.metrics = unlike_logs(whole, sliced)
        return found

    def sentence(self) -> str:
        """Return the report that the model trains in slices, with the layers and metrics that this changes."""
        said = announcements.SLICED.format(slices=self.slices, rows=self.rows)
        drawing = sorted(self.draws.layers)
        if self.normalisations:
            said += announcements.NORMALISED.format(layers=_listed(self.normalisations))
        if drawing:
            drawn = announcements.DRAWN if len(drawing) == 1 else announcements.DRAWN_BY_SEVERAL
            said += drawn.format(layers=_listed(drawing))
        if self.metrics:
            said += announcements.LOGGED.format(metrics=_listed(self.metrics))
        return said + (announcements.ROUNDED if batch_structure.is_half(self.model) else "")


def _made(model: Any) -> Any:
    """Return the train function that Keras made, also if NextCall replaces it now."""
    there = vars(model).get(NAME)
    return there.original if isinstance(there, NextCall) else there


def _listed(names: Iterable[str]) -> str:
    return listed(list(dict.fromkeys(names)), 3)


def described(error: BaseException) -> str:
    """Return an error for a sentence: its class and the beginning of its first line."""
    lines = [line for line in re.sub("\033\\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    said = [line.strip() for line in lines if not line.startswith("Exception encountered when calling")]
    return "%s: %s" % (type(error).__name__, said[0][:QUOTED]) if said else type(error).__name__


def is_lack_of_memory(error: BaseException) -> bool:
    """Return whether an error is a lack of memory; a whole batch would need more of it."""
    names = " ".join(kind.__name__ for kind in type(error).__mro__)
    return any(name in names for name in MEMORY) or WORDS.search(str(error)) is not None
