"""One call of `fit`: where it is, what of it is saved, and how it takes up a saved state again.

Knows variables, callbacks and counters, no framework's loop: keras3.py and keras2.py call in from theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import announcements, identity, object_state, pipelines, random_state, variables
from .object_state import Baseline, NoPlace, Return
from .object_walk import Walk
from .saved_generation import Saved, StartOver
from .written_files import Files

if TYPE_CHECKING:
    from collections.abc import Callable

    from .store import Store

BIG = 16 << 20  # bytes of a dataset's own arrays that may be its state; more is its data
CALLBACKS = "callbacks["  # begins the paths of what callbacks hold


class Fit:
    """A running fit.  `executions`: calls of the train function in this epoch; `drawn`: batches from `source`."""

    def __init__(self, model: Any, ordinal: int, store: Store, first: int, epochs: int, site: str) -> None:
        """`ordinal`: its place among the script's fits; `first`, `epochs`: its initial epoch and the last's end."""
        self.model = model
        self.ordinal = ordinal
        self.store = store
        self.files = Files(store.files)
        self.first = first
        self.epochs = epochs
        self.site = site
        self.saved: Saved | None = None
        self.process: dict[str, Any] = {}  # identity.of_process, identity.script
        self.validation: Any = None  # data, as the script gave them
        self.seeds: Any = None  # of what the script leaves unseeded
        self.identity: dict[str, Any] | None = None
        self.take(None)

    def take(self, saved: Saved | None) -> None:
        """Begin with a saved state, or with none."""
        self.saved = saved
        self.callbacks: Any = None
        self.iterator: Any = None
        self.source: Any = None
        self.epoch = self.first
        self.executions = 0
        self.drawn = 0
        self.per_execution = 1
        self.opened: dict[str, Any] = {}
        self.data_opened: tuple[list[Any], list[Any]] = ([], [])
        self.openings = 0
        self.order: Any = None
        self.blind = False  # whether an epoch of unknown length must not be resumed inside
        self.complete = False  # whether this epoch came to its count of batches
        self.ends: list[list[Any]] = [] if saved is None else [list(end) for end in saved.ends]
        self.prints: dict[str, str] = {}
        self.passed = False  # whether the batches of earlier attempts have been passed over
        self.resumed = False  # whether training has begun again after that
        self.begun = False  # whether the saved state has been restored after the first epoch began
        self.measured = False  # whether the metrics have been restored (Keras 2)
        self.baseline: Baseline | None = None
        self.data_baseline: Baseline | None = None
        self.rate: Any = None  # learning rate that the script sets
        self.start = ""  # identity.start
        self.notices: list[str] = []
        self.skipping: list[Any] | None = None  # the callbacks of a fit that is over and trains nothing
        self.draws: list[str] | None = None
        self.broken = False  # whether nothing can be saved of it

    @property
    def past(self) -> Saved:
        """The saved state, in code that runs only if there is one."""
        if self.saved is None:
            raise LookupError("nothing was saved of this fit")
        return self.saved

    # ---- the state of objects -------------------------------------------------------------------------------

    def walk(self) -> tuple[Walk, Walk]:
        """Return the walks over the input pipeline, and over model and callbacks but for what the pipeline has."""
        data, state = Walk(), Walk()
        for walked in (data, state):
            for name, group in variables.of_model(self.model).items():
                for index, variable in enumerate(group):
                    walked.know(variable, "%s[%d]" % (name, index))
            walked.know(self.model, "model")
        pipelines.enter(self.iterator, data)
        for path, value in data.objects.items():
            state.know(value, path)
        state.enter_model(self.model, "model")
        pipelines.enter_validation(self.validation, state)
        for index, callback in enumerate(callbacks_of(self.callbacks)):
            state.enter(callback, "%s%d]" % (CALLBACKS, index))
        return data, state

    def datasets(self) -> list[Any]:
        """Return the pipelines of tf.data that it draws from; what else it may draw from as well."""
        return [pipelines.dataset_of(self.iterator), self.validation]

    def begin(self) -> list[str]:
        """Training begins: take the baselines.  Return the kinds of objects that cannot be kept, for a message."""
        data, state = self.walk()
        self.data_baseline, self.baseline = Baseline(data), Baseline(state)
        unknown = ["%s (%s)" % (path, kind) for path, kind in state.unkept.items()]
        return unknown if state.complete else [*unknown, announcements.TOO_MANY]

    def readable(self) -> bool:
        """Whether all that the script's functions in the pipeline keep can be read."""
        baseline = self.data_baseline
        return baseline is not None and not baseline.named and baseline.walked.complete

    def groups(self, state: Walk, metrics: bool) -> variables.Groups:
        """Return the variables of the training by group, those of the epoch's logs only if asked for."""
        groups = variables.of_model(self.model)
        known = {id(variable) for group in groups.values() for variable in group}
        for path, optimizer in state.optimizers:
            found = [one for one in variables.of_optimizer(optimizer) if id(one) not in known]
            groups["optimizer " + path] = found
        if metrics:
            groups[variables.METRICS] = variables.metrics(self.model)
        return groups

    def data_state(self, data: Walk) -> tuple[list[Any], list[Any]]:
        """Return (entries, arrays) of what the pipeline's functions and objects became since the fit began.

        What cannot be kept, or is too large to be an order of the data, the fingerprints will show.
        """
        arrays: list[Any] = []
        changed = self.data_baseline.changed(data) if self.data_baseline is not None else []
        return object_state.keep(data, changed, arrays, BIG)[0], arrays

    # ---- restoring ------------------------------------------------------------------------------------------

    def check(self, start: bool) -> str:
        """Return why the saved state is that of something else, "" if it is this fit's.

        `start`: the model must begin this fit as it did then, for an earlier fit was trained again.
        Raises StartOver if the state has no place in this fit, whatever the settings are.
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
        if start and self.past.identity["start"] != self.start:
            return comparison.refusal or announcements.OTHER_START
        return comparison.refusal

    def identified(self) -> dict[str, Any]:
        """Return what tells this fit from every other one (identity.py); computed once."""
        if self.identity is None:
            self.identity = {
                **self.process,
                **identity.of_fit(self.model, self.iterator, self.site),
                "rate": self.rate,
                "start": self.start,
            }
        return self.identity

    def missing(self) -> str:
        """Return which of the variables that were saved do not exist yet, as the end of a sentence; "" if all do.

        What callbacks make as they begin is not looked for.
        """
        _, state = self.walk()
        saved = {name: group for name, group in self.past.groups().items() if CALLBACKS not in name}
        difference = variables.differences(self.groups(state, metrics=variables.METRICS in saved), saved)
        if difference:
            return difference
        entries = [entry for entry in self.past.facts["entries"] if entry[0].startswith("model")]
        try:
            Return(entries, self.past.arrays, state).check()
        except NoPlace as error:
            return "there is no %s" % error
        return ""

    def restore(self, undo: Callable[[Callable[[], None]], None] | None = None) -> None:
        """Give model, optimizers and callbacks their saved state; raises StartOver, changing nothing, if that fails.

        `undo` is called with a function that brings back what was there.  Raises OSError if a file of the callbacks'
        cannot be given its content.
        """
        saved = self.past
        _, state = self.walk()
        groups = self.groups(state, metrics=False)
        values = {name: arrays for name, arrays in saved.groups().items() if name != variables.METRICS}
        entries = saved.facts["entries"]
        if self.skipping is not None:  # those that Keras adds are not there
            mine = tuple("%s%d]" % (CALLBACKS, index) for index in range(len(self.skipping)))
            entries = [one for one in entries if not one[0].startswith(CALLBACKS) or one[0].startswith(mine)]
        way = Return(entries, saved.arrays, state)
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
            rate.assign(self.rate)  # the script sets another one now
        way.apply()
        self.files.restore(saved.facts["files"], state, callbacks_of(self.callbacks))

    def _undoing(self, groups: variables.Groups, way: Return) -> Callable[[], None]:
        """Return a function that brings model, callbacks, pipeline and generators back to what they are now."""
        before = {name: variables.values(group) for name, group in groups.items()}
        copies: list[Any] = []
        copies_of_data: list[Any] = []
        entries, random = way.undo(copies), random_state.capture()
        data, _ = self.walk()
        kept, _ = object_state.keep(data, list(data.slots), copies_of_data, BIG)

        def undo() -> None:
            variables.assign(groups, before)
            data, state = self.walk()
            Return(entries, copies, state).apply()
            Return(kept, copies_of_data, data).apply()
            random_state.restore(random)

        return undo

    def restore_data(self) -> None:
        """Give the pipeline's functions and objects the state that they had when the saved iterator opened."""
        data, _ = self.walk()
        way = Return(self.past.facts["data"], self.past.arrays, data)
        try:
            way.check()
        except NoPlace as error:
            raise StartOver("the input pipeline has no %s here" % error, seam=True) from error
        way.apply()

    def restore_metrics(self) -> None:
        """Set the accumulators of the epoch's logs."""
        arrays = self.past.groups().get(variables.METRICS)
        if arrays:
            variables.assign({variables.METRICS: variables.metrics(self.model)}, {variables.METRICS: arrays})

    def restore_end(self, history: Any) -> None:
        """Give a fit that was finished before, and ran no epoch now, what its end left behind."""
        saved = self.past
        epochs, logs = saved.decoded("history")
        history.epoch, history.history = list(epochs), dict(logs)
        if hasattr(self.model, "stop_training"):
            self.model.stop_training = saved.stopped
        self.restore_generators()
        self.restore_uses()

    def restore_generators(self) -> None:
        """Set the random generators as they were at the save."""
        random_state.restore(self.past.random("now"))

    def restore_uses(self) -> None:
        """Let unseeded generators get the seeds that come next."""
        if self.seeds is not None:
            self.seeds.resume(self.past.facts["uses"])

    # ---- counting -------------------------------------------------------------------------------------------

    def opening(self, source: Any, before: dict[str, Any]) -> None:
        """Note that batches now come from `source`; `before`: the generators before it opened."""
        if source is not self.source:
            self.turn(source)
            self.drawn = 0
            self.opened = before

    def turn(self, source: Any) -> None:
        """Count an iterator that batches are drawn from; an order of our own goes on to its next."""
        if source is not self.source:
            self.source = source
            self.openings += 1
            if self.order is not None:
                self.order.turn(self.openings)

    def count(self, index: int) -> None:
        """Take over how far this epoch is: `index` is Keras' number of the batch that ended last, from 0, or -1.

        Of several batches in one execution that is the first or the last (Keras 3), or the last (Keras 2, where
        an execution counts as its batches).
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
        """Keep the fingerprint of the batch at a place."""
        self.prints[place] = print_

    def place(self) -> str:
        """Return the place of the batch that comes next: epoch and batch, from 0."""
        return "%d:%d" % (self.epoch, self.executions * self.per_execution)

    def batches(self) -> int:
        """Return the batches of an epoch, 0 if not known yet."""
        handler = self.iterator
        return getattr(handler, "num_batches", None) or getattr(handler, "inferred_steps", None) or 0

    def batch(self) -> int:
        """Return the samples of a batch, 0 if only the data know."""
        found = getattr(pipelines.adapter_of(self.iterator), "batch_size", None)
        return (found() if callable(found) else found) or 0

    def at_seam(self) -> bool:
        """Whether this was the epoch's last batch: its end is the better moment to save.

        If the last one is not known, every batch can be it; JAX fails in an epoch that trains none.
        """
        if not self.batches():
            return self.blind
        return self.batches() <= self.executions * self.per_execution

    def note_data(self) -> None:
        """The data's iterator is about to open: keep what the pipeline's functions and objects are like."""
        if self.data_baseline is not None and self.data_baseline.digests:
            self.data_opened = self.data_state(self.walk()[0])


def callbacks_of(callbacks: Any) -> list[Any]:
    """Return the callbacks that a script gave: none, one, a list, or a CallbackList."""
    found = getattr(callbacks, "callbacks", callbacks)
    return list(found) if isinstance(found, (list, tuple)) else [found] if found is not None else []


def history_of(history: Any) -> list[Any]:
    """Return [epochs, logs] of a History."""
    return [list(getattr(history, "epoch", [])), dict(getattr(history, "history", {}))]
