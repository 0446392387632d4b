"""Slices of a batch in the loops of libraries on torch, and the share of each, found by a comparison.

Such a loop computes the gradients of a batch, which torch adds to those that are there, and updates later.  So its step
runs once for each slice, with the loss times the slice's share, and the loop does not see that: its batches, their
order, its updates, schedules, logs and checkpoints stay as they are.

The share depends on the loss, and nothing in the model says which is right (SHARES).  So before the first step in
slices, up to five rows of the real batch go through the step, once together and once in slices of one and two rows.
The share with which both agree is used; if none does, batches stay whole.  The last row has fewer targets then, so that
a mean over targets is none over rows.  Random draws are the same for each row meanwhile, as for Keras (compare.py), and
all is put back: gradients, buffers, generators, attributes of the script's objects.  A buffer that the step changes, as
batch normalisation does, keeps batches whole.

A copy of all gradients would take as much memory as the model, while memory is short.  So of each gradient its sums
along each dimension are compared.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Callable, NamedTuple
from weakref import WeakKeyDictionary

from .. import libraries
from ..checkpoint.announcements import listed
from . import announcements, batch_structure, slice_plan
from .compare import FLOAT, HALF, LEAST, MOST, SUMMED, described, is_lack_of_memory, undone
from .deferred_update import Draws, shadowed
from .slices_torch import alike

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .compare import Slices

MOST_ROWS = 5  # that are compared
FLOOR = 1e-6  # of all gradients: a difference that is rounding, of a gradient that is zero
IGNORED = -100  # the target that the losses of torch leave out
TARGETS = ("labels", "label", "targets", "target", "y", "2")  # their names in a batch; the second of a pair
PLAIN = (str, bytes, int, float, bool, type(None))
SHARES: dict[str, Callable[[Any, int], float]] = {  # what a slice has of what the loss is divided by
    "whole": lambda _data, _rows: 1.0,  # the loss adds up, or is divided by what the whole batch has
    "rows": lambda _data, rows: float(rows),
    "targets": lambda data, _rows: _count(targets_of(data)),
    "shifted": lambda data, _rows: _count(targets_of(data), first=1),  # of a language model
}
CHANGED = "%r changes with each call: slices would change it more often, from fewer rows"
COUNT = "{slices}"  # in what is said of a finding: the number of slices, which can grow later
NO_MEAN = "its loss is no sum and no mean over rows or targets"


class Slice(NamedTuple):
    """A part of a batch, its share of the loss, and its rows."""

    data: Any
    share: float
    rows: int


class Finding(NamedTuple):
    """How batches of one kind are divided: `share`, of SHARES; or `reason`: why they stay whole."""

    share: str
    reason: str
    said: str = ""


class StaysWhole(Exception):
    """A batch that is to be trained again in slices has to stay whole; its text is the reason."""


class Shares:
    """Divides the batches of trainers, by what a comparison has found for each kind of batch of each trainer."""

    def __init__(self, slices: Slices) -> None:
        self.context = slices.context
        self.announcer = slices.announcer
        self.retries = False  # a batch is trained again, after a lack of memory: only what succeeds is reported
        self.said = ""  # what is true of the slices in which it is trained
        self._found: WeakKeyDictionary[Any, dict[str, Finding]] = WeakKeyDictionary()

    def divide(
        self, trainer: Any, model: Any, data: Any, step: Callable[[Any], Any], *, obstacle: str, half: bool
    ) -> list[Slice]:
        """Return the slices of a batch, none if it stays whole; if it is trained again, StaysWhole is raised instead.

        `step` computes the gradients of a part, and returns its loss.  `obstacle`: why this trainer's batches cannot be
        divided, "" if they can.  `half`: whether it computes in 16 bits.
        """
        leaves = list(leaves_of(data))
        rows, reason = rows_of(leaves)
        known = self._found.setdefault(trainer, {})
        kind = repr([(name, type(leaf).__name__, str(getattr(leaf, "dtype", "")), extent(leaf) == rows)
                     for name, leaf in leaves])  # fmt: skip
        reason = obstacle or reason
        found = Finding("", reason) if reason else known.get(kind)
        if found is None:
            found = self._compared(trainer, model, data, rows, step, half=half)
        if self.retries:
            if found.reason:
                raise StaysWhole(found.reason)
            known[kind], self.said = found, found.said
        elif reason or kind not in known:
            known[kind] = found
            if found.reason:
                self.announcer.whole(model, found.reason)
                self.context.flush()  # before the record of the step, which would show a loop that no slices reach
            else:
                self.announcer.sliced(model, found.said.replace(COUNT, str(self.context.slices)))
        if found.reason or rows < 2:  # noqa: PLR2004
            return []
        first, size, others = slice_plan.plan(rows, self.context.slices)
        return list(_divided(data, [first] + [size] * others, found.share))

    def _compared(self, trainer: Any, model: Any, data: Any, rows: int, step: Any, *, half: bool) -> Finding:
        if rows < 2:  # noqa: PLR2004
            return Finding("", "a batch has a single row")
        size = -(-rows // self.context.slices)
        most = min(rows, max(LEAST, min(MOST_ROWS, size)))
        for count in dict.fromkeys((most, 2)):
            try:
                with self.context.own_work(), self.context.phase("first run"):
                    return _Comparison(trainer, model, step, half=half).run(data, rows, count)
            except Exception as error:
                if not is_lack_of_memory(error):
                    return Finding("", "its step fails with %d rows (%s)" % (count, described(error)))
            empty_caches()
        return Finding("", "memory is too short to compare two of its rows")


def leaves_of(data: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Return (name, leaf) of all in a batch: the name is a key, or a position from 1 on."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from leaves_of(value, str(key))
    elif _is_structure(data):
        for place, value in enumerate(data):
            yield from leaves_of(value, str(place + 1))
    else:
        yield name, data


def mapped(change: Callable[[Any], Any], data: Any) -> Any:
    """Return the structure `data` with each leaf changed."""
    if isinstance(data, Mapping):
        return type(data)({key: mapped(change, value) for key, value in data.items()})  # type: ignore[call-arg]
    if _is_structure(data):
        parts = [mapped(change, value) for value in data]
        return type(data)(*parts) if hasattr(data, "_fields") else type(data)(parts)
    return change(data)


def _is_structure(data: Any) -> bool:
    """Return whether a list or tuple has parts of a batch; one of strings or numbers has a value for each row."""
    return isinstance(data, (list, tuple)) and not all(isinstance(one, PLAIN) for one in data)


def extent(leaf: Any) -> int | None:
    """Return the rows of a leaf, None if it has none."""
    if isinstance(leaf, (list, tuple)):
        return len(leaf)
    shape: Any = getattr(leaf, "shape", ())
    return int(shape[0]) if len(shape) else None


def rows_of(leaves: list[tuple[str, Any]]) -> tuple[int, str]:
    """Return the rows of a batch, and why it cannot be divided, "" if it can."""
    tensor: Any = sys.modules["torch"].Tensor
    for name, leaf in leaves:
        dense = not isinstance(leaf, tensor) or str(leaf.layout) == "torch.strided"
        if not isinstance(leaf, (tensor, list, tuple, *PLAIN)) or not dense:
            return 0, "%r is no dense tensor" % (name or type(leaf).__name__)
    parts = [(name, extent(leaf)) for name, leaf in leaves if extent(leaf) is not None]
    counts = [count for _, count in parts]
    rows = max(counts, key=lambda count: (counts.count(count), -(count or 0)), default=0) or 0
    return rows, batch_structure.obstacle([*parts])


def _divided(data: Any, sizes: list[int], share: str) -> Iterator[Slice]:
    """Return the parts of these sizes, without those that have no share of the loss."""
    every, begin = sum(sizes), 0
    whole = SHARES[share](data, every)
    for size in sizes:
        rows = slice(begin, begin + size)
        part = mapped(lambda leaf: leaf if extent(leaf) is None else leaf[rows], data)  # noqa: B023
        begin += size
        own = SHARES[share](part, size)
        if own:
            yield Slice(part, own / whole, size)


def targets_of(data: Any) -> Any:
    """Return the tensor of a batch with a whole number for each target, None if there is none."""
    torch: Any = sys.modules["torch"]
    found = {name: leaf for name, leaf in leaves_of(data) if getattr(leaf, "dtype", None) is torch.int64}
    return next((found[name] for name in TARGETS if name in found and extent(found[name])), None)


def _count(targets: Any, first: int = 0) -> float:
    if targets is None or (first and targets.dim() == 1):
        return 0.0
    return float((targets[..., first:] != IGNORED).sum())


def _blanked(data: Any) -> Any:
    """Return the rows with fewer targets in the last one."""
    targets = targets_of(data)
    if targets is None:
        return data
    fewer = targets.clone()
    fewer[-1, ..., fewer.shape[-1] // 2 :] = IGNORED
    return mapped(lambda leaf: fewer if leaf is targets else leaf, data)


class _Outcome(NamedTuple):
    """The loss of some rows; of each gradient its length and its sums along each dimension, on the CPU."""

    loss: float
    sums: dict[str, tuple[float, list[Any]]]


class _Comparison:
    """Compares rows of one batch of one model."""

    def __init__(self, trainer: Any, model: Any, step: Callable[[Any], Any], *, half: bool) -> None:
        self.torch: Any = sys.modules["torch"]
        self.model, self.step = model, step
        self.owners = [one for one in (trainer, *model.modules()) if libraries.of_class(type(one)) is None]
        parameters = list(model.parameters())
        self.half = half or any(one.dtype.itemsize < 4 for one in parameters)  # noqa: PLR2004
        self.is_cpu = all(one.device.type == "cpu" for one in parameters)
        self.draws = Draws()

    def run(self, data: Any, rows: int, count: int) -> Finding:
        """Return what `count` rows of a batch show; all is as before then."""
        places = [place * (rows - 1) // (count - 1) for place in range(count)]

        def some(leaf: Any) -> Any:
            if isinstance(leaf, (list, tuple)):
                return type(leaf)(leaf[place] for place in places)
            return leaf if extent(leaf) is None else leaf[places]

        real = mapped(some, data)
        with undone(self.owners), self._neutral(), alike(self.torch, self.draws):
            for given in (_blanked(real), real):
                try:
                    share, reason = self._share(given, count)
                except Exception as error:
                    if given is real or is_lack_of_memory(error):
                        raise
                    continue
                if not reason:
                    break
        if reason:
            names = listed(sorted(self.draws.real), 3)
            random = "%s draws random numbers that a comparison cannot fix" % names
            return Finding("", random if self.draws.real and reason == NO_MEAN else reason)
        said = announcements.SLICED.format(slices=COUNT, rows=count)
        drawing = [*(name for name, _, _ in self._dropping()), *self.draws.layers]
        drawn = announcements.DRAWN if len(drawing) == 1 else announcements.DRAWN_BY_SEVERAL
        said += drawn.format(layers=listed(drawing, 3)) if drawing else ""
        return Finding(share, "", said + (announcements.ROUNDED if self.half else ""))

    def _share(self, data: Any, count: int) -> tuple[str, str]:
        """Return the first share with which the slices come to the same as the rows together, or why none does."""
        with buffers_kept(self.model) as changed:
            whole = self._outcome(data)
        if changed:
            return "", CHANGED % changed[0]
        every = sum(length**2 for length, _ in whole.sums.values()) ** 0.5
        if not every < float("inf"):
            return "", "the loss of its first rows is not a number, so that nothing can be compared"
        if not every:
            return "", "the gradients of its first rows are zero, so that nothing can be compared"
        sizes = [1] + [2] * (count // 2 - (not count % 2)) + [1] * (not count % 2)
        parts = [(part.data, part.rows) for part in _divided(data, sizes, "whole")]
        outcomes = [self._outcome(part) for part, _ in parts]
        part = HALF if self.half else FLOAT if self.is_cpu else MOST / SUMMED
        for share, of in SHARES.items():
            total = of(data, count)
            weights = [of(part, rows) / total for part, rows in parts] if total else []
            if weights and self._agree(whole, outcomes, weights, part, every):
                return share, ""
        return "", NO_MEAN

    def _agree(
        self, whole: _Outcome, outcomes: list[_Outcome], weights: list[float], part: float, every: float
    ) -> bool:
        """Return whether the weighted sum of the outcomes is the whole one, within rounding."""
        pairs = [(weight, one) for weight, one in zip(weights, outcomes) if weight]
        losses = [weight * one.loss for weight, one in pairs]
        if not abs(sum(losses) - whole.loss) <= part * max(1e-7, abs(whole.loss), *map(abs, losses)):
            return False
        if {name for _, one in pairs for name in one.sums} != set(whole.sums):
            return False
        summed = part if self.half else part * SUMMED
        for name, (length, sums) in whole.sums.items():
            limit = summed * length + FLOOR * every
            for place, total in enumerate(sums):
                apart = total - sum(weight * one.sums[name][1][place] for weight, one in pairs if name in one.sums)
                if not float(apart.norm()) <= limit:
                    return False
        return True

    def _outcome(self, data: Any) -> _Outcome:
        """Train some rows, and return what that comes to."""
        kept = [(one, one.grad) for one in self.model.parameters()]
        try:
            for one, _ in kept:
                one.grad = None
            loss = self.step(data)
            return _Outcome(float(loss), {
                name: self._sums(one.grad) for name, one in self.model.named_parameters() if one.grad is not None
            })  # fmt: skip
        finally:
            for one, before in kept:
                one.grad = before

    def _sums(self, gradient: Any) -> tuple[float, list[Any]]:
        gradient, exact = gradient.detach(), self.torch.float32
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        length = float(self.torch.linalg.vector_norm(gradient, dtype=exact))
        dimensions = range(gradient.dim())
        sums = [
            gradient.sum([other for other in dimensions if other != one], dtype=exact) for one in dimensions
        ] if gradient.dim() > 1 else [gradient]  # fmt: skip
        return length, [one.cpu().double() for one in sums]

    def _dropping(self) -> list[tuple[str, Any, str]]:
        """Return the layers that drop values: name, layer, and its attribute that says how many."""
        kinds: Any = self.torch.nn.modules
        rates = {kinds.dropout._DropoutNd: "p", kinds.rnn.RNNBase: "dropout", kinds.MultiheadAttention: "dropout"}
        return [
            (name or type(one).__name__, one, rate)
            for name, one in self.model.named_modules()
            for kind, rate in rates.items()
            if isinstance(one, kind) and getattr(one, rate)
        ]

    @contextmanager
    def _neutral(self) -> Iterator[None]:
        """Have no layer drop values during the body: a step can compute a layer again in another thread."""
        with ExitStack() as stack:
            for _, one, rate in self._dropping():
                stack.enter_context(shadowed(one, {rate: 0.0}))
            yield


@contextmanager
def buffers_kept(model: Any) -> Iterator[list[str]]:
    """Put the buffers back after the body; the list has the names of those that it changed."""
    torch: Any = sys.modules["torch"]
    before = [(name, one, one.clone()) for name, one in model.named_buffers()]
    changed: list[str] = []
    try:
        yield changed
    finally:
        with torch.no_grad():
            for name, one, value in before:
                if not torch.equal(one, value):
                    changed.append(name)
                    one.copy_(value)


def empty_caches() -> None:
    """Give back what torch keeps of the device's memory."""
    torch: Any = sys.modules["torch"]
    for name in ("cuda", "mps", "xpu"):
        devices = getattr(torch, name, None)
        if devices is not None and devices.is_available():
            devices.empty_cache()
