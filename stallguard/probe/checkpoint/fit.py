"""One call of `fit`: its position, the state that is saved of it, and the restoring of a saved state.

It uses variables, callbacks and counters, but no framework's loop: keras_hooks.py calls it from theirs.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from . import announcements, fit_start, identity, object_kinds, object_state, pipelines, random_state, variables
from .object_state import NoPlace, ObjectBaseline, Restoration
from .object_walk import ALIAS, GENERATORS, NOT_READ, Walk
from .saved_generation import Saved, StartOver
from .written_files import WrittenFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from .fit_start import FitCall
    from .generations import CheckpointStore

BIG = 16 << 20  # bytes of a dataset's own arrays that can be its state; larger ones are its data
CALLBACKS = "callbacks["  # beginning of the paths of callbacks' attributes


class Fit:
    """A running fit.  `executions`: calls of the train function in this epoch; `drawn`: batches from `source`."""

    def __init__(self, call: FitCall, ordinal: int, store: CheckpointStore) -> None:
        """`ordinal`: its number among the script's fits."""
        self.call = call
        self.model = call.model
        self.ordinal = ordinal
        self.store = store
        self.files = WrittenFiles(store.files)
        self.first = call.first
        self.epochs = call.epochs
        self.site = call.site
        self.saved: Saved | None = None
        self.process: dict[str, Any] = {}  # identity.of_process, identity.script
        self.validation = call.validation  # data, as the script passed them
        self.seeds: Any = None  # for what the script does not seed
        self.identity: dict[str, Any] | None = None
        self.reads: dict[str, bool] = {}  # as for Walk
        self.take(None)

    def take(self, saved: Saved | None) -> None:
        """Begin from a saved state, or without one."""
        self.saved = saved
        self.callbacks: Any = None
        self.iterator: Any = None
        self.source: Any = None
        self.epoch = self.first
        self.executions = 0
        self.logs: Any = None  # what the step of the last batch returned
        self.drawn = 0
        self.per_execution = 1
        self.opened: dict[str, Any] = {}
        self.opened_after = 0  # epochs that had ended when `source` opened
        self.data_opened: tuple[list[Any], list[Any]] = ([], [])
        self.data_at_opening: ObjectBaseline | None = None  # None: as `data_baseline`
        self.data_first: tuple[list[Any], list[Any]] = ([], [])  # of what `restore_now` changes, or of all
        self.entered: tuple[list[Any], list[Any]] = ([], [])  # of the pipeline's objects, as the epoch began
        self.entered_random: dict[str, Any] = {}
        self.entered_walk: Walk | None = None
        self.openings = 0
        self.order: Any = None
        self.blind = False  # an epoch of unknown length must not be resumed inside
        self.complete = False  # this epoch reached its number of batches
        self.ends: list[list[Any]] = [] if saved is None else [list(end) for end in saved.ends]
        self.prints: dict[str, str] = {}
        self.passed = False  # the batches of earlier attempts have been skipped
        self.resumed = False  # training has begun again after that
        self.begun = False  # the first epoch has begun, and its saved state has been restored
        self.measured = False  # the metrics have been restored (Keras 2)
        self.baseline: ObjectBaseline | None = None
        self.data_baseline: ObjectBaseline | None = None
        self.entering: list[ObjectBaseline] = []  # of `walk`, before the callbacks begin
        self.set_at_begin: set[str] = set()  # paths of what changed while the callbacks began
        self.rate: Any = None  # learning rate that the script sets
        self.start: dict[str, Any] | None = None  # fit_start.of; None: not known
        # Of the fit's first batch, in the attempt that trained it: its fingerprint, "" if not known, and the generators
        # as the data opened.
        self.first_batch: str = "" if saved is None else saved.facts.get("first", "")
        self.first_opened: dict[str, Any] = {} if saved is None else saved.random("first")
        self.notices: list[str] = []
        self.skipping: list[Any] | None = None  # the callbacks of a finished fit, which is not trained again
        self.draws: list[str] | None = None
        self.named: list[str] = []  # what of the script's objects cannot be kept
        self.broken = False  # no checkpoints can be made of it

    @property
    def past(self) -> Saved:
        """The saved state; raises LookupError if there is none."""
        if self.saved is None:
            raise LookupError("nothing was saved of this fit")
        return self.saved

    # ---- the state of objects -------------------------------------------------------------------------------

    def walk_data(self, deadline: float = NOT_READ) -> Walk:
        """Return a walk over the input pipeline.  `deadline`: as for Walk."""
        data = self._walk(deadline)
        data.of_pipeline = True
        pipelines.enter(self.iterator, data)
        return data

    def _walk(self, deadline: float) -> Walk:
        walked = Walk({} if deadline == NOT_READ else self.reads, deadline)
        for name, group in variables.of_model(self.model).items():
            for index, variable in enumerate(group):
                walked.know(variable, "%s[%d]" % (name, index))
        walked.know(self.model, "model")
        return walked

    def walk(self, seconds: float = NOT_READ) -> tuple[Walk, Walk]:
        """Return walks over the pipeline, and over all else.  `seconds`: to read arrays that were not read before."""
        deadline = time.monotonic() + seconds
        data, state = self.walk_data(deadline), self._walk(deadline)
        for path, value in data.objects.items():
            state.know(value, path)
        state.enter_model(self.model, "model")
        pipelines.enter_validation(self.validation, state)
        for index, callback in enumerate(callbacks_of(self.callbacks)):
            state.enter(callback, "%s%d]" % (CALLBACKS, index))
        return data, state

    def begin(self, seconds: float) -> list[str]:
        """Take the baselines as training begins.  Return the kinds of objects that cannot be kept, for a message."""
        data, state = self.walk(seconds)
        self.data_baseline, self.baseline = ObjectBaseline(data), ObjectBaseline(state)
        for before, walked in zip(self.entering, (data, state)):
            self.set_at_begin.update(before.set_since(walked))
        self.entering = []
        unknown = ["%s (%s)" % (path, kind) for path, kind in state.unkept.items()]
        unread = {**data.unread, **state.unread}
        unknown += [announcements.unread(path, size) for path, size in unread.items()]
        # Of the pipeline, what drawing its batches again does not surely bring back.
        self.named = unknown + [
            "%s (%s)" % (path, kind)
            for path, kind in data.unkept.items()
            if not object_kinds.is_drawn(data.objects.get(path))
        ]
        changing = self.files.changing(state, callbacks_of(self.callbacks))
        files = ["%s (%s)" % (os.path.basename(path), how) for path, how in changing.items()]
        return [*unknown, *files, *([] if state.complete else [announcements.TOO_MANY])]

    def shared(self) -> list[str]:
        """Return what a pipeline that draws ahead and the training both draw from, as far as the walks show it."""
        if self.data_baseline is None or self.baseline is None or not pipelines.draws_ahead(self.iterator):
            return []
        data, state = self.data_baseline.walked, self.baseline.walked
        models = tuple(variables.of_model(self.model))
        found = [
            path
            for path, slot in state.slots.items()
            if slot.kind == ALIAS
            and slot.digest in data.objects
            and (type(slot.value).__name__ in GENERATORS or random_state.read(slot.value) is not None)
        ]
        found += [
            path
            for path, slot in data.slots.items()
            if slot.kind == ALIAS and slot.digest.startswith(models) and object_kinds.is_variable(slot.value)
        ]
        return sorted({*found, *(data.modules & state.modules)})

    def readable(self) -> bool:
        """Return whether the whole state of the script's functions in the pipeline can be read."""
        baseline = self.data_baseline
        return baseline is not None and not baseline.named and baseline.walked.complete

    def groups(self, state: Walk, metrics: bool) -> variables.Groups:
        """Return the variables of the training by group; `metrics`: with those of the epoch's logs."""
        groups = variables.of_model(self.model)
        known = {id(variable) for group in groups.values() for variable in group}
        for path, optimizer in state.optimizers:
            found = [one for one in variables.of_optimizer(optimizer) if id(one) not in known]
            groups["optimizer " + path] = found
        if metrics:
            groups[variables.METRICS] = variables.metrics(self.model)
        return groups

    def data_state(self, data: Walk) -> tuple[list[Any], list[Any]]:
        """Return (entries, arrays) of what changed in the pipeline's functions and objects since the fit began.

        State that cannot be kept, or that is too large to be an order of the data, is left out: if it matters, the
        fingerprints will differ.
        """
        return self._kept(data, self.data_baseline)

    def data_at_end(self, data: Walk) -> tuple[list[Any], list[Any]]:
        """Return the same for a fit that is finished: its callbacks will not begin again, so what they set is in it."""
        entries, arrays = self.data_state(data)
        known = {one[0] for one in entries}
        others = [path for path in data.slots if path in self.set_at_begin and path not in known]
        return entries + object_state.keep(data, others, arrays, BIG)[0], arrays

    def data_since_opening(self, data: Walk) -> tuple[list[Any], list[Any]]:
        """Return the same of what changed since the iterator opened: by the pipeline, ahead, and by the training."""
        return self._kept(data, self.data_at_opening or self.data_baseline)

    def _kept(self, data: Walk, since: ObjectBaseline | None) -> tuple[list[Any], list[Any]]:
        arrays: list[Any] = []
        return object_state.keep(data, since.changed(data) if since else [], arrays, BIG, since)[0], arrays

    # ---- restoring ------------------------------------------------------------------------------------------

    def check(self, start: bool) -> str:
        """Return why the saved state does not belong to this fit, "" if it does.  Raises StartOver if it never can.

        `start`: the model must begin this fit with the same values as then, because an earlier fit was trained again.
        """
        comparison = identity.compare(self.past.identity, self.identified())
        if comparison.foreign:
            raise StartOver(comparison.refusal)
        groups = self.past.groups()
        saved = {name: groups[name] for name in (variables.MODEL, variables.OPTIMIZER) if name in groups}
        difference = variables.differences(variables.of_model(self.model), saved)
        if difference:
            raise StartOver(difference)
        self.notices = comparison.notices
        stays = self.past.facts.get("stays")
        if stays:
            self.notices = [*self.notices, announcements.STAYED % announcements.described(stays)]
        if comparison.refusal:
            return comparison.refusal
        if self.skipping is not None:
            return fit_start.difference(self.past.identity, self.identified())
        if start and not fit_start.same_values(self.past.identity.get("start"), self.start):
            return announcements.OTHER_START
        return ""

    def identified(self) -> dict[str, Any]:
        """Return the identity of this fit (identity.py); computed once."""
        if self.identity is None:
            self.identity = {
                **self.process,
                **identity.of_fit(self.model, self.iterator, self.site),
                "rate": self.rate,
                "start": self.start,
            }
        return self.identity

    def missing(self) -> str:
        """Return which saved variables do not exist yet, "" if all do; callbacks create theirs as they begin."""
        _, state = self.walk()
        saved = {name: group for name, group in self.past.groups().items() if CALLBACKS not in name}
        difference = variables.differences(self.groups(state, metrics=variables.METRICS in saved), saved)
        if difference:
            return difference
        entries = [entry for entry in self.past.facts["entries"] if entry[0].startswith("model")]
        try:
            Restoration(entries, self.past.arrays, state).check()
        except NoPlace as error:
            return "there is no %s" % error
        return ""

    def restore(self, undo: Callable[[Callable[[], None]], None] | None = None) -> None:
        """Restore model, optimizers and callbacks; raise StartOver, and change nothing, if that is not possible.

        `undo` is called with a function that reverses this.  Raises OSError for a file of the callbacks.
        """
        saved = self.past
        _, state = self.walk()
        groups = self.groups(state, metrics=False)
        values = {name: arrays for name, arrays in saved.groups().items() if name != variables.METRICS}
        entries = saved.facts["entries"]
        if self.skipping is not None:  # the callbacks that Keras adds do not exist here
            mine = tuple("%s%d]" % (CALLBACKS, index) for index in range(len(self.skipping)))
            entries = [one for one in entries if not one[0].startswith(CALLBACKS) or one[0].startswith(mine)]
        way = Restoration(entries, saved.arrays, state)
        try:
            way.check()
        except NoPlace as error:
            raise StartOver("there is no %s here" % error) from error
        difference = variables.differences(groups, values)
        if difference:
            raise StartOver(difference)
        if undo is not None:
            undo(self._undoing(groups, way))
        variables.assign(groups, values)
        rate = variables.rate_of(getattr(self.model, "optimizer", None))
        if rate is not None and self.rate != saved.identity["rate"]:
            rate.assign(self.rate)  # the script sets a different one now
        try:
            way.apply()
        except NoPlace as error:
            raise StartOver("it cannot be restored here: %s" % error) from error
        self.files.restore(saved.facts["files"], state, callbacks_of(self.callbacks))

    def _undoing(self, groups: variables.Groups, way: Restoration) -> Callable[[], None]:
        before = {name: variables.values(group) for name, group in groups.items()}
        copies: list[Any] = []
        entries, undo_data = way.undo(copies), self.undoing_data()

        def undo() -> None:
            variables.assign(groups, before)
            way.put_back()
            _, state = self.walk()
            try:
                Restoration(entries, copies, state, own=True).apply()
            finally:  # what one object refuses is reported, and all others are as they were
                undo_data()

        return undo

    def undoing_data(self) -> Callable[[], None]:
        """Return a function that restores the present state of pipeline and generators."""
        kept, random = self._whole_data(), random_state.capture()

        def undo() -> None:
            try:
                Restoration(*kept, self.walk_data(), own=True).apply()
            finally:
                random_state.restore(random)

        return undo

    def note_first(self) -> None:
        """Note the pipeline's present state: what drawing changes of it, and no save has, returns to it."""
        self.data_first = self._whole_data()

    def _whole_data(self) -> tuple[list[Any], list[Any]]:
        copies: list[Any] = []
        data = self.walk_data()
        return object_state.keep(data, list(data.slots), copies, BIG)[0], copies

    def restore_now(self) -> None:
        """Restore what the pipeline's functions and objects were at the save, for the callbacks that begin."""
        saved = self.past
        copies: list[Any] = []
        both = [*saved.facts["data"], *saved.facts.get("data_now", [])]
        entries = list({one[0]: one for one in both}.values())  # the later one of a path
        if not self.data_first[0]:
            self.data_first = Restoration(entries, saved.arrays, self.walk_data()).undo(copies), copies
        self._restore_data(entries, saved.arrays)

    def enter(self, seconds: float) -> None:
        """Note the state with which a resumed fit reaches its first epoch.  `seconds`: as for `walk`."""
        arrays: list[Any] = []
        self.entered_walk = data = self.walk_data(time.monotonic() + seconds)
        self.entered = object_state.keep(data, list(data.slots), arrays, BIG)[0], arrays
        self.entered_random = random_state.capture()

    def restore_opening(self, seconds: float) -> None:
        """Restore what the saved iterator read as it opened: the pipeline's objects, the generators.  See `walk`."""
        saved = self.past
        self._restore_data(*self.data_first, own=True)
        self._restore_data(saved.facts["data"], saved.arrays)
        random_state.restore(saved.random("open"))
        self.data_at_opening = ObjectBaseline(self.walk_data(time.monotonic() + seconds))

    def restore_entered(self) -> None:
        """Restore the state with which the fit reached its first epoch, whose iterator opens next."""
        self._restore_data(*self.entered, own=True)
        random_state.restore(self.entered_random)

    def restore_trained(self, seconds: float) -> list[str]:
        """Restore what the training has made of the pipeline's objects since the iterator opened.

        Not what the pipeline has changed itself, if it works ahead of the training: drawing has restored that.  Return
        the paths of what the training changed while the pipeline worked ahead.  `seconds`: as for `walk`.
        """
        entries, arrays = self.entered
        ahead, before = pipelines.draws_ahead(self.iterator), self.data_at_opening
        drawn: set[str] = set()
        if ahead and before is not None:
            drawn = set(before.changed(self.walk_data(time.monotonic() + seconds)))
        self._restore_data([one for one in entries if one[0] not in drawn], arrays, own=True)
        if not ahead or before is None or self.entered_walk is None:
            return []
        slots = self.entered_walk.slots
        changed = [
            path
            for path in before.changed(self.entered_walk)
            if type(slots[path].digest) is not object and before.has_changed(slots[path])
        ]
        return [p for p in changed if p not in drawn and pipelines.makes_batches_of(self.iterator, slots[p])]

    def _restore_data(self, entries: list[Any], arrays: list[Any], *, own: bool = False) -> None:
        way, why = Restoration(entries, arrays, self.walk_data(), own=own), "has no %s here"
        try:
            way.check()
            why = "cannot be restored here: %s"
            way.apply()
        except NoPlace as error:
            raise StartOver("the input pipeline " + why % error, between_epochs=True) from error

    def restore_metrics(self) -> None:
        """Restore the accumulators of the epoch's logs."""
        arrays = self.past.groups().get(variables.METRICS)
        if arrays:
            variables.assign({variables.METRICS: variables.metrics(self.model)}, {variables.METRICS: arrays})

    def restore_end(self, history: Any) -> None:
        """Restore the history and the generators of a fit that was finished before and ran no epoch now."""
        saved = self.past
        epochs, logs = saved.decoded("history")
        history.epoch, history.history = list(epochs), dict(logs)
        if hasattr(self.model, "stop_training"):
            self.model.stop_training = saved.stopped
        self.restore_generators()
        self.restore_uses()

    def restore_generators(self) -> None:
        """Set the random generators to their state at the save."""
        random_state.restore(self.past.random("now"))

    def restore_uses(self) -> None:
        """Continue the sequence of seeds for unseeded generators."""
        if self.seeds is not None:
            self.seeds.resume(self.past.facts["uses"])

    # ---- counting -------------------------------------------------------------------------------------------

    def opening(self, source: Any, before: dict[str, Any]) -> None:
        """Register `source` as the iterator of the batches; `before`: the generators before it opened."""
        if source is not self.source:
            self.turn(source)
            self.drawn = 0
            self.opened, self.opened_after = before, len(self.ends)
            self.first_opened = self.first_opened or before

    def continues(self) -> bool:
        """Return whether the next epoch draws from the iterator of this one (`repeat` and `steps_per_epoch`)."""
        return self.source is not None and pipelines.next_source(self.iterator, self.source) is self.source

    def turn(self, source: Any) -> None:
        """Count an iterator of the batches, and advance the seeded order of arrays."""
        if source is not self.source:
            self.source = source
            self.openings += 1
            if self.order is not None:
                self.order.turn(self.openings)

    def count(self, index: int) -> None:
        """Set the position in this epoch: `index` is Keras' number of the batch that ended last, from 0, or -1.

        With several batches in one execution it is the number of the first or the last (Keras 3), or of the last
        (Keras 2, where an execution counts as its batches).
        """
        if index >= 0:
            executions = index // self.per_execution + 1
            self.drawn += (executions - self.executions) * self.per_execution
            self.executions = executions

    def epoch_ended(self, epoch: int) -> None:
        """Count an epoch; `epoch` is its index."""
        self.ends.append([self.complete, self.executions * self.per_execution])
        self.epoch, self.executions = epoch + 1, 0

    def seen(self, place: str, print_: str) -> None:
        """Store the fingerprint of the batch at a place."""
        self.prints[place] = print_
        if place == "%d:0" % self.first:
            self.first_batch = self.first_batch or print_

    def place(self) -> str:
        """Return the place of the next batch: epoch and batch, from 0."""
        return "%d:%d" % (self.epoch, self.executions * self.per_execution)

    def batches(self) -> int:
        """Return the batches of an epoch, 0 if not known yet."""
        handler = self.iterator
        return getattr(handler, "num_batches", None) or getattr(handler, "inferred_steps", None) or 0

    def batch(self) -> int:
        """Return the samples of a batch, 0 if only the data show them."""
        found = getattr(pipelines.adapter_of(self.iterator), "batch_size", None)
        return (found() if callable(found) else found) or 0

    def is_last_batch_of_epoch(self) -> bool:
        """Return whether it is better to save after this epoch's end: this was its last batch.

        If its length is not known, every batch can be the last; JAX fails in an epoch without a batch.
        """
        if not self.batches():
            return self.blind
        return self.batches() <= self.executions * self.per_execution

    def note_data(self, seconds: float) -> None:
        """Store the state of the pipeline's functions, objects and files, before the data's iterator opens."""
        self.files.data_open(again=False)
        if self.data_baseline is not None and self.data_baseline.digests:
            data = self.walk_data(time.monotonic() + seconds)
            self.data_opened, self.data_at_opening = self.data_state(data), ObjectBaseline(data)


def callbacks_of(callbacks: Any) -> list[Any]:
    """Return the callbacks that a script passed: none, one, a list, or a CallbackList."""
    found = getattr(callbacks, "callbacks", callbacks)
    return list(found) if isinstance(found, (list, tuple)) else [found] if found is not None else []
