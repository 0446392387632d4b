"""Trains each batch of a loop of the script's own in parts of its rows: `stallguard.track(..., loss="mean")`.

The body of the loop runs once for each part, with the same step number.  What belongs to the batch takes effect once:

- before the first gradient of a body it runs with the first part (`optimizer.zero_grad()` at the top);
- after it, with the last one (`optimizer.step()`, a scheduler's step, clipping, `zero_grad()` at the end).

The others pass it by.  The gradients of a part are multiplied by its share of the batch's rows, so that their sum is
the gradient of the whole batch, if the loss is a mean over rows.  Only the script knows that: without its word nothing
is divided.  loop_torch.py and loop_mlx.py say what is passed by, and find what this cannot do: gradients that the
script changes, values that change with each forward pass, an update that cannot be passed by.

The first batch is a trial: if something is found in it, all is put back, the batch is trained whole, and so are the
others.  Slices count as effective from the update of that batch on.  What is found later is noted as inexact.
"""

from __future__ import annotations

import threading
from collections import UserDict
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol

from .. import libraries, wire
from ..checkpoint import random_state
from . import announcements, slice_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..context import Context

_here = threading.local()


class Part:
    """One part while the body of the loop runs on it; `weight`: of its gradients in those of the batch."""

    def __init__(self, loop: LoopParts, index: int, count: int, weight: float) -> None:
        self.loop = loop
        self.weight = weight
        self.is_first, self.is_last = index == 0, index == count - 1
        self.graded = 0  # calls that computed gradients
        self.updates = 0  # calls of an optimizer
        self.trouble = ""
        self.inside = False  # a call that is handled runs: what it calls is part of it
        self.known: dict[int, Any] = {}  # arrays of MLX that are gradients as they were computed, by id()
        self.values: list[Any] = []  # with the losses they belong to
        self.is_clipped = False  # they are the sum over the parts already

    @property
    def is_effective(self) -> bool:
        """Whether a call that belongs once to a batch takes effect now."""
        if self.trouble and self.loop.is_trial:
            return False  # all is put back, and the batch is trained whole
        return self.is_last if self.graded else self.is_first

    def grades(self) -> None:
        """Note a call that computes gradients."""
        if self.updates:
            self.trouble = self.trouble or announcements.SEVERAL_UPDATES
        self.graded += 1

    def updates_now(self) -> bool:
        """Note a call of an optimizer; return whether it takes effect."""
        self.updates += 1
        if not self.graded:
            self.trouble = self.trouble or announcements.NOT_GRADED
            return False
        if self.is_effective:
            self.loop.takes_effect()
        return self.is_effective


def current() -> Part | None:
    """Return the part that this thread trains, None outside of one."""
    part: Part | None = getattr(_here, "part", None)
    return part


class Watch(Protocol):
    """What a library's objects among those that were handed over show."""

    def obstacle(self) -> str:
        """Return why their batches cannot be divided, "" if nothing is known against it."""

    def begins(self, *, trial: bool) -> None:
        """Note the state at the beginning of a batch; with `trial`, so that it can be put back."""

    def changed(self, part: Part) -> str:
        """Return what the body changed in a part that it must not change, "" if nothing."""

    def put_back(self) -> None:
        """Undo what a trial changed."""


class LoopParts:
    """The parts of one loop's batches."""

    def __init__(self, context: Context, objects: tuple[Any, ...], loss: str, watches: list[Watch]) -> None:
        """`loss`: what it is over the rows of a batch, "mean" or "sum"; "" if the script does not say."""
        self._context, self._loss = context, loss
        self._containers = [one for one in objects if type(one) in (dict, list)]
        self.watches = watches
        self._is_whole = False
        self.is_trial = True  # of the first batch
        self._has_updated = False  # in this batch
        self._count = 1  # parts of a batch
        self.sums: list[Any] = []  # of the gradients of MLX, for each call of an optimizer in a body

    @property
    def is_dividing(self) -> bool:
        """Whether the batches are divided here: the script must not do it once more."""
        return bool(self._loss) and self._context.slices > 1 and not self._is_whole

    @property
    def is_whole(self) -> bool:
        """Whether each batch from here on stays whole."""
        return self._is_whole or self._context.slices == 1

    def takes_effect(self) -> None:
        """Store in the record that batches are trained in parts: the update of one follows."""
        self._has_updated = True
        self._context.set("slices", self._count)
        self._context.flag(wire.FLAG_SMALLER_BATCH)

    def end(self) -> None:
        """Close a part that the script has left: it broke out of the loop."""
        part = current()
        if part is None or part.loop is not self:
            return
        _here.part = None
        if part.graded or not part.is_first:
            self._context.note("inexact", announcements.LEFT)

    def of(self, batch: Any, number: int) -> Iterator[tuple[int, Any]]:
        """Yield (number, part) for each part of a batch; the batch itself if it stays whole."""
        if self.is_whole:
            yield number, batch
            return
        if not self._loss:
            yield number, batch
            self._is_whole = True
            if self._context.get("slices") <= 1:  # it does not divide its batches itself
                self._stay_whole(announcements.NO_WORD)
            return
        try:
            sizes, why = self._sizes(batch)
            began = random_state.capture() if sizes and self.is_trial else {}
            for watch in self.watches if sizes else ():
                watch.begins(trial=self.is_trial)
        except Exception as error:
            self._context.surprise("dividing a batch", error)
            sizes, why = [], "%s: %s" % (type(error).__name__, error)
        if not sizes:
            self._stay_whole(why)
            yield number, batch
            return
        yield from self._divided(batch, number, sizes, began)

    def _divided(
        self, batch: Any, number: int, sizes: list[int], began: dict[str, Any]
    ) -> Iterator[tuple[int, Any]]:  # fmt: skip
        if self.is_trial:
            self._count = len(sizes)
        self._has_updated = False
        rows, begin, why, draws = sum(sizes), 0, "", False
        held = [copy(one) for one in self._containers] if self.is_trial else []
        calls: tuple[int, int] | None = None
        self.sums = []
        for index, size in enumerate(sizes):
            weight = size / rows if self._loss == "mean" else 1.0
            _here.part = part = Part(self, index, len(sizes), weight)
            try:
                yield number, taken(batch, begin, size)
            except GeneratorExit:
                self.end()
                raise
            _here.part = None
            begin += size
            why = why or part.trouble or self._found(part, calls)
            calls = calls or (part.graded, part.updates)
            if not self.is_trial:
                continue
            now = random_state.capture()
            draws = draws or not all(random_state.same(began, now, name) for name in began)
            if why:
                break
        self.sums = []
        if not why and self.is_trial:
            self.is_trial = False
            self.takes_effect()
            text = announcements.LOOP_SLICED % (self._count, self._loss)
            self._context.note("micro", text + (announcements.LOOP_DRAWS if draws else ""), factor=self._count)
        elif why and (not self.is_trial or self._has_updated):
            self._stay_whole(why)
            self._context.note("inexact", announcements.LOOP_INEXACT % (number + 1, why))
        elif why:
            self._put_back(held, began)
            self._stay_whole(why)
            if why == announcements.ADDS_UP:
                self._context.note("inexact", announcements.TWICE % (number + 1))
            yield number, batch

    def _put_back(self, containers: list[Any], generators: dict[str, Any]) -> None:
        """Undo what a trial changed, but for what lies deeper in containers, as lists of what was logged."""
        for watch in self.watches:
            watch.put_back()
        for one, before in zip(self._containers, containers):
            one.clear()
            (one.update if isinstance(one, dict) else one.extend)(before)
        random_state.restore(generators)

    def _sizes(self, batch: Any) -> tuple[list[int], str]:
        """Return the rows of each part, or none and why the batch stays whole."""
        leaves = list(_leaves(batch))
        other = next((type(one).__name__ for one in leaves if not _has_rows(one)), "")
        counts = {len(one) for one in leaves} if not other else set()
        if libraries.have_peers():
            return [], announcements.OTHER_PROCESSES
        if not self.watches:
            return [], announcements.NO_LIBRARY
        why = next((why for why in (watch.obstacle() for watch in self.watches) if why), "")
        if why or other or len(counts) != 1:
            return [], why or (announcements.NO_ROWS % other if other else announcements.OTHER_ROWS)
        first, size, others = slice_plan.plan(counts.pop(), self._context.slices)
        sizes = [first] + [size] * others
        return (sizes, "") if sum(sizes) > 1 or not self.is_trial else ([], announcements.ONE_ROW)

    def _found(self, part: Part, calls: tuple[int, int] | None) -> str:
        """Return what is wrong after a part, "" if nothing; `calls`: those of the first part."""
        if not part.graded and self.is_trial:
            return announcements.NO_GRADIENT
        if calls is not None and calls != (part.graded, part.updates):
            return announcements.UNLIKE
        try:
            return next((why for why in (watch.changed(part) for watch in self.watches) if why), "")
        except Exception as error:
            self._context.surprise("after a part of a batch", error)
            return "%s: %s" % (type(error).__name__, error)

    def _stay_whole(self, reason: str) -> None:
        self._is_whole = True
        announcements.stay_whole(self._context, reason)


def _has_rows(leaf: Any) -> bool:
    return bool(getattr(leaf, "shape", ())) and hasattr(type(leaf), "__getitem__")


def _leaves(batch: Any) -> Iterator[Any]:
    """Yield what is in a batch: tensors, and what else its containers hold."""
    if isinstance(batch, (dict, UserDict)):
        for one in batch.values():
            yield from _leaves(one)
    elif isinstance(batch, (list, tuple)):
        for one in batch:
            yield from _leaves(one)
    elif batch is not None:
        yield batch


def taken(batch: Any, begin: int, size: int) -> Any:
    """Return `size` rows of each tensor in a batch from row `begin` on, in containers of the same kinds."""
    if isinstance(batch, UserDict):
        made = copy(batch)
        made.data = {key: taken(one, begin, size) for key, one in batch.items()}
        return made
    if isinstance(batch, dict):
        part = copy(batch)
        part.update({key: taken(one, begin, size) for key, one in batch.items()})
        return part
    if isinstance(batch, (list, tuple)):
        items = [taken(one, begin, size) for one in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return None if batch is None else batch[begin : begin + size]
