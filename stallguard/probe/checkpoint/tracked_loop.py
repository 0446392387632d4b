"""`stallguard.track(model, optimizer, ..., data, epochs=10)`: a loop of the script's own goes on exactly where it was.

    for epoch, batches in stallguard.track(model, optimizer, loader, epochs=10):
        for step, (x, y) in batches:

A checkpoint is made between two batches, or two epochs, when the schedule says so: the objects, all random generators,
and the position.  The data of an epoch are drawn again from the generators, those handed over too, as they were when
the epoch's data were opened, as many batches as were trained; then the objects and the generators get the values of the
checkpoint.  So a shuffled order, the draws of a dataset in worker processes, and dropout go on as they would have.
What the script's code before the inner loop does to those objects in a resumed epoch is overwritten.

If batches are to be smaller and the script says what its loss is over rows, each is yielded in parts
(microbatch/loop_parts.py); all else here counts whole batches.

The first batch that is trained after a checkpoint is compared with that which was trained after it before.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, Protocol

from .. import beats, libraries, wire
from . import (
    announcements,
    encoding,
    identity,
    object_kinds,
    random_state,
    script_state,
    tensors,
    tracked_jax,
    tracked_mlx,
    tracked_torch,
)
from .generations import DAMAGE, NEXT, CheckpointStore
from .saved_generation import are_of_others
from .schedule import CheckpointSchedule, SaveReport
from .script_state import ScriptState
from .tracked_objects import Filling, Kept, Packed, PlainState, TreesState, generators_in, kept, named_in, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..context import Context
    from .object_walk import Walk

_END = object()
_SOURCE = wire.SLOT["source"]
_NOT_COUNTED = (beats.NONE, beats.HAND)  # by a hook
_BEGINNING = {"fit": 1, "epoch": 0, "batch": 0}  # facts of a note: nothing is left of an earlier attempt


class Parts(Protocol):
    """How batches are divided (microbatch/loop_parts.py)."""

    @property
    def is_whole(self) -> bool:
        """Whether each batch from here on stays whole."""

    def of(self, batch: Any, number: int) -> Iterator[tuple[int, Any]]:
        """Yield (number, part) for each part of a batch, or the batch itself."""

    def end(self) -> None:
        """Close a part that the script has left."""


class TrackedLoop:
    """One loop: what the script handed over, where it is, and its checkpoints."""

    def __init__(
        self,
        context: Context,
        folder: str,
        pace: CheckpointSchedule,
        objects: tuple[Any, ...],
        parts: Parts | None = None,
    ) -> None:
        """`folder`: of its checkpoints, "" for none; `parts`: in which batches are trained, None: as they are.

        Raises TypeError for an object that cannot be kept.
        """
        self._context = context
        self._store = CheckpointStore(folder) if folder else None
        self._pace = pace
        self._objects, self._make, self._data = _checked(objects)
        self._handed, self._given = objects[:-1], objects[-1]
        self._names = ["%s.%s" % (type(one).__module__, type(one).__qualname__) for one in objects]
        self._report = SaveReport(context)
        self._parts = parts
        self._script = (
            ScriptState(context, pace, self._store.files, self._enter, self._enter_data) if self._store else None
        )
        self._at: tuple[int, int | None] = (
            0,
            None,
        )  # epochs that ended; batches of the next one, None if it has not begun
        self._begun: Any = None  # the generators as this epoch's data were opened
        self._has_trained = False  # a batch, since the objects got their values
        # The checkpoint, until the loop is there: it is read anew for each write, because objects can take parts of it.
        self._resumed: tuple[dict[str, Any], list[Any]] | None = None
        self._made = ""  # the generation whose next batch is not known yet
        self.saves = self._store is not None and not self._is_refused()

    def _is_refused(self) -> bool:
        if not libraries.have_peers():
            return False
        self._report.refused(announcements.PEERS, self._store.folder if self._store else "")
        return True

    # --- what the script's code keeps itself: in modules, and in what their functions reach ----------------------

    def _enter(self, walked: Walk) -> None:
        modules: list[tuple[str, Any]] = []
        for number, one in enumerate(self._handed, 1):
            walked.know(one, "object %d" % number)
            if tracked_torch.is_module(one) or tracked_mlx.is_module(one):
                modules += script_state.modules_of(one, "object %d" % number)
            else:
                for named in named_in([one]):
                    walked.enter(named, named.__qualname__)
        if tracked_torch.is_loader(self._given):
            script_state.know_loader(walked, self._given)
        script_state.know_modules(walked, modules)
        script_state.enter_modules(walked, modules, _names_of_library)

    def _enter_data(self, walked: Walk) -> None:
        for number, one in enumerate(self._handed, 1):
            walked.know(one, "object %d" % number)
        data = self._given
        if tracked_torch.is_loader(data):
            script_state.enter_loader(walked, data)
        elif object_kinds.is_of_script(data):
            walked.enter(data, script_state.DATA)

    def _quietly(self, where: str, action: Callable[[ScriptState], object]) -> None:
        """Do something with what the script's code keeps; an error of its objects does not stop the loop."""
        if self._script is not None and self.saves:
            try:
                with self._context.own_work():
                    action(self._script)
            except Exception as error:
                self._context.surprise(where, error)

    # --- checkpoints --------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Write the newest intact checkpoint of an earlier attempt into the objects.  Raises what an object raises."""
        if self._store is None or not self.saves:
            return
        try:
            self._store.check_room()
        except OSError as error:
            self._report.failed(error, self._store.folder)
        damaged: list[str] = []
        state = self._chosen(self._store, damaged) if self._context.resuming else None
        self._quietly("noting files", lambda script: script.listen(state is not None))
        self._quietly("noting what the script keeps", ScriptState.begin)
        if state is not None and self._resumed is not None:
            self._said(self._resumed[0], damaged)
            self._write(state, last=False)

    def _chosen(self, store: CheckpointStore, damaged: list[str]) -> dict[str, Any] | None:
        """Return the state of the newest intact checkpoint; None, which is said, if there is none of this loop."""
        for facts, blobs in store.found(damaged):
            try:
                state: dict[str, Any] = unpacked(facts, blobs)
                is_alike = (facts.get("of"), facts.get("objects")) == (self._context.place, self._names)
                if not is_alike or not all(one.fits(now) for one, now in zip(self._objects, state["objects"])):
                    self._context.note(
                        "inexact", announcements.LOOP_STARTS_OVER % announcements.OTHER_OBJECTS, **_BEGINNING
                    )
                    return None
            except (*DAMAGE, encoding.NotPlain) as error:
                damaged.append(announcements.DAMAGED % ("of the loop", "%s: %s" % (type(error).__name__, error)))
                continue
            self._resumed = (facts, blobs)
            self._at = (state["at"][0], state["at"][1])
            return state
        if damaged:
            self._context.note("inexact", announcements.LOOP_STARTS_OVER % "; ".join(damaged), **_BEGINNING)
        elif are_of_others(self._context):
            self._context.note("inexact", announcements.OF_OTHERS % "the script's loop")
        return None

    def _said(self, facts: dict[str, Any], damaged: list[str]) -> None:
        """Note where the loop goes on, and what is not as it was."""
        reasons = identity.differences(facts)
        epoch, batch = self._at
        where = (
            announcements.IN_EPOCH % (epoch + 1, batch) if batch is not None else announcements.AT_EPOCH % (epoch + 1)
        )
        text = "; ".join([*reasons, where, *(announcements.PREVIOUS % one for one in damaged)])
        self._context.note("inexact" if reasons else "resume", text)

    def _write(self, state: dict[str, Any], *, last: bool) -> None:
        """Write a state into the objects.  `last`: the script's code does nothing between this and its next batch."""
        self._has_trained = False
        with self._context.phase("checkpoint"):
            filling = Filling()
            for one, saved in zip(self._objects, state["objects"]):
                if isinstance(one, PlainState):
                    one.write(saved, filling)
                else:
                    one.write(saved)
            if self._data is not None:
                self._data.write(state["data"])
            random_state.restore(state["random"])
            if self._resumed is not None:
                kept = script_state.kept_in(*self._resumed)
                self._quietly("restoring what the script keeps", lambda script: script.restore(kept, last=last))
            self._context.restored()

    def tick(self, asked: bool = False, between_epochs: bool = False) -> None:
        """Save, if a checkpoint is due, or the supervisor has asked for one."""
        now = time.monotonic()
        if asked or self._pace.due(now, between_epochs):
            self.save(now)

    def save(self, began: float) -> None:
        """Save now; never raises."""
        if self._store is None or not self.saves or self._is_refused():
            self._pace.saved(began, time.monotonic())
            return
        try:
            with self._context.own_work(), self._context.phase("checkpoint"):
                self._made = self._store.write(*self._state(), between_epochs=self._at[1] is None)
            self._report.saved(began)
            self._context.saved()
        except Exception as error:
            self._report.failed(error, self._store.folder)
        self._pace.saved(began, time.monotonic())

    def _state(self) -> tuple[dict[str, Any], list[Any]]:
        of_jax = [one for one in self._objects if isinstance(one, TreesState)]
        if self._has_trained and of_jax and all(one.is_unchanged for one in of_jax):
            raise ValueError(announcements.NOT_ASSIGNED)
        packed = Packed()
        try:
            code = packed.code({
                "at": self._at,
                "objects": [one.read() for one in self._objects],
                "random": random_state.capture(),
                "data": None if self._data is None else self._data.read(),
                "begun": self._begun,
            })  # fmt: skip
        except encoding.NotPlain:
            for number, one in enumerate(self._objects, 1):
                try:
                    Packed(dry=True).code(one.read())
                except encoding.NotPlain as error:
                    raise ValueError(announcements.HOLDS_NOW % (number, error)) from error
            raise  # of what the data are drawn from
        facts, blobs = packed.facts(code)
        losses = self._context.losses
        facts = {
            **facts, "finite": None if not losses.known else not losses.broken, "of": self._context.place,
            "objects": self._names, "script": identity.script(), "versions": identity.versions(),
        }  # fmt: skip
        kept = script_state.Kept({}, []) if self._script is None else self._script.read()
        return script_state.joined(facts, blobs, kept)

    def finite(self) -> str:
        """Return when the newest checkpoint with a finite loss was made, in words; "" if there is none."""
        found = None if self._store is None else self._store.finite()
        return "" if found is None else announcements.FINITE_LOOP % announcements.clock(found[1])

    def forget(self) -> None:
        """Remove the checkpoints."""
        if self._store is not None:
            self._store.forget()

    # --- the loop -----------------------------------------------------------------------------------------------

    def epochs(self, epochs: Iterable[Any], between: Callable[[TrackedLoop, bool], None]) -> Iterator[Any]:
        """Yield (epoch, its batches) from where the loop goes on; `between` is called after each batch and epoch."""
        first = self._at[0]
        index = -1
        try:
            for index, epoch in enumerate(range(epochs) if isinstance(epochs, int) else epochs):
                if index < first:
                    continue
                if index > first:
                    self._at, self._begun = (index, None), None
                    between(self, True)
                elif self._resumed is not None:
                    # The script's code since the objects were handed over has changed them.
                    self._write(unpacked(*self._resumed), last=self._at[1] is None)
                    if self._at[1] is None:
                        self._resumed = None
                yield epoch, self.batches(between)
                if self._parts is not None:
                    self._parts.end()
            if index >= first:
                self._at, self._begun = (index + 1, None), None
                between(self, True)
        finally:
            self._quietly("ending", ScriptState.end)

    def batches(self, between: Callable[[TrackedLoop, bool], None]) -> Iterator[tuple[int, Any]]:
        """Yield (number, batch) of the epoch that runs, from where the loop goes on."""
        resumed = self._resumed
        index, trained = self._at[0], self._at[1] or 0
        self._begun = unpacked(*resumed)["begun"] if resumed else self._generators()
        if not resumed:
            self._quietly("noting the data", ScriptState.data_open)
        else:
            kept = script_state.kept_in(*resumed)
            self._quietly("restoring the data", lambda script: script.restore_opening(kept))
            random_state.restore(self._begun["random"])
            for one, state in zip(generators_in(self._handed), self._begun.get("own", ())):
                random_state.write(state.of, state.state, one)
            for (holder, at, _), key in zip(tracked_jax.keys_in(self._handed), self._begun.get("keys", ())):
                holder[at] = tracked_jax.placed(key)
            if self._data is not None:
                self._data.write(self._begun["data"])
        drawn = iter(self._make())
        if resumed:
            self._skip(drawn, trained)
            self._write(unpacked(*resumed), last=True)
            self._resumed = None
        expected = resumed[0][NEXT].get("batch") if resumed else None
        counts = self._context.beats
        parts = None if self._parts is None or self._parts.is_whole else self._parts
        while True:
            batch = next(drawn, _END)
            if self._made or expected:
                self._compare(batch, expected)
                expected = None
            if batch is _END:
                return
            if parts is None:
                yield trained, batch
            else:
                yield from parts.of(batch, trained)
            if counts.slots[_SOURCE] in _NOT_COUNTED:
                counts.beat(beats.HAND)
            self._has_trained = True
            trained += 1
            self._at = (index, trained)
            between(self, False)

    def _generators(self) -> dict[str, Any]:
        found = map(random_state.read, generators_in(self._handed))
        return {
            "random": random_state.capture(),
            "own": [random_state.GeneratorState(*one) for one in found if one is not None],
            "keys": [tracked_jax.copied(key) for _, _, key in tracked_jax.keys_in(self._handed)],
            "data": None if self._data is None else self._data.read(),
        }

    def _skip(self, drawn: Iterator[Any], count: int) -> None:
        """Draw the batches that were trained before."""
        with self._context.phase("input"):
            for number in range(count):
                if next(drawn, _END) is _END:
                    self._context.note("inexact", announcements.ENDED % ("%d batches" % number, count))
                    return
                self._context.add("skipped")
                self._context.moved()

    def _compare(self, batch: Any, expected: str | None) -> None:
        """Compare a batch with that which was trained at this place before; record it for the newest checkpoint."""
        with self._context.own_work():
            try:
                found = tensors.END if batch is _END else tensors.fingerprint_of(batch)
            except Exception:  # of objects that are no arrays: they cannot be compared
                found = ""
            if expected and found and found != expected:
                index, trained = self._at[0] + 1, (self._at[1] or 0) + 1
                self._context.note("inexact", announcements.ORDER % (trained, index, ""))
            try:
                if self._made and self._store is not None:
                    self._store.annotate(self._made, {"batch": found})
            except OSError:  # the checkpoint holds without it
                pass
            self._made = ""


def _names_of_library(module: Any) -> set[str]:
    return tracked_mlx.names_of_module() if tracked_mlx.is_module(module) else tracked_torch.names_of_module()


def _checked(objects: tuple[Any, ...]) -> tuple[list[Kept], Callable[[], Any], Kept | None]:
    """Return how the objects are kept, what opens the data of an epoch, and how the data's generators are kept."""
    if not objects:
        raise TypeError("stallguard.track needs the objects to keep, and at last the data of an epoch")
    found = []
    for number, one in enumerate(objects, 1):
        try:
            if number == len(objects) and not tracked_torch.is_loader(one):
                _check_data(one)
                continue
            kept_as = kept(one)
            Packed(dry=True).code(kept_as.read())
        except Exception as error:
            name = "%s, of type %s" % (number, type(one).__name__)
            raise TypeError("stallguard.track cannot keep object %s: %s" % (name, error)) from error
        found.append(kept_as)
    data = objects[-1]
    loader = found.pop() if tracked_torch.is_loader(data) else None
    return found, (lambda: data) if hasattr(data, "__iter__") else data, loader


def _check_data(value: Any) -> None:
    """Raise TypeError for the last object if each epoch cannot draw its batches from it anew."""
    is_state = isinstance(value, (dict, str)) or any(one.kept(value) for one in (tracked_torch, tracked_mlx))
    if is_state or hasattr(value, "__next__") or not (hasattr(value, "__iter__") or callable(value)):
        raise TypeError("the last one must give the batches of each epoch anew: a DataLoader, a list, a function")
