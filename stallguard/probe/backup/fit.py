"""One call of `fit`: where it is, what of it is saved, and how it takes up a saved state again.

Knows variables, callbacks and counters, no framework's loop: keras3.py and keras2.py call in from theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import encoding, randomness, tensors, variables
from .attributes import Watched

if TYPE_CHECKING:
    from .store import Store

FORMAT = 1
DATA_LIMIT = 16 << 20  # bytes of a dataset's own arrays that count as its state (an order of indices)


class StartOver(Exception):
    """A saved state that does not fit this call; it is trained from its beginning."""


class Saved:
    """A generation read back.  `own`: of this fit itself, not of a later one of the same model."""

    def __init__(self, facts: dict[str, Any], blobs: list[memoryview], own: bool = True) -> None:
        if facts.get("format") != FORMAT:
            raise StartOver("its format is another one")
        self.facts = facts
        self.own = own
        self.arrays = tensors.unpack(facts["tensors"], blobs)
        self.epoch: int = facts["epoch"]
        self.executions: int = facts["executions"]
        self.drawn: int = facts["drawn"]
        self.ended: bool = facts["finished"] or not own
        self.over: bool = self.ended or facts["stop"]  # no epoch is left to train
        self.histories: dict[str, Any] = encoding.decode(facts["histories"], self.arrays)

    def resize(self, batch: int) -> int:
        """Count in batches of `batch` samples from now on; return the size before where that is another one."""
        before = self.facts.get("batch") or 0
        if not batch or not before or batch == before:
            return 0
        self.executions = self.executions * before // batch
        self.drawn = self.drawn * before // batch
        return int(before)

    def state(self) -> list[Any]:
        """Return the values of `variables.state`."""
        return self.arrays[: self.facts["state"]]

    def metrics(self) -> list[Any]:
        """Return the values of `variables.metrics`."""
        return self.arrays[self.facts["state"] : self.facts["state"] + self.facts["metrics"]]

    def watched(self) -> list[tuple[str, dict[str, Any]]]:
        """Return (class name, changed attributes) of callbacks and dataset."""
        return self.facts["watched"] if self.own else []

    def random(self, moment: str) -> dict[str, Any]:
        """Return the generators' states at "open" (of the data's iterator) or "now" (of the save)."""
        found: dict[str, Any] = encoding.decode(self.facts["random"][moment], self.arrays)
        return found


class Fit:
    """A running fit.  `executions`: calls of the train function in this epoch; `drawn`: batches from `source`."""

    def __init__(self, model: Any, ordinal: int, number: int, store: Store, saved: Saved | None) -> None:
        """`ordinal`: the how manieth fit of the script; `number`: the how manieth model it fits."""
        self.model = model
        self.ordinal = ordinal
        self.number = number
        self.store = store
        self.saved = saved
        self.callbacks: Any = None
        self.epoch = 0
        self._watched: list[Watched] = []
        self._restart()

    def _restart(self) -> None:
        self.iterator: Any = None
        self.source: Any = None
        self.executions = 0
        self.drawn = 0
        self.per_execution = 1
        self.opened: dict[str, Any] = {}
        self.openings = 0
        self.order: Any = None
        self.blind = False  # whether an epoch of unknown length must not be resumed inside
        self.complete = False  # whether this epoch came to its count of batches
        self.ends: list[bool] = [] if self.saved is None else list(self.saved.facts["ends"])
        self.passed = False  # whether the batches of earlier attempts have been passed over
        self.resumed = False  # whether training has begun again after that

    def forget(self) -> None:
        """Start over: nothing saved fits."""
        self.saved = None
        self.callbacks = None
        self._restart()

    def restore_variables(self) -> None:
        """Set weights and optimizer; raises StartOver where they are not those of this model."""
        if self.saved is None:
            return
        try:
            variables.build_optimizer(self.model)
            variables.assign(variables.state(self.model), self.saved.state())
        except variables.Unlike as error:
            raise StartOver(str(error)) from error

    def watch(self, callbacks: list[Any]) -> None:
        """Note how callbacks and dataset look as training begins; give the callbacks their saved state."""
        self._watched = [
            Watched(_dataset(self.iterator), DATA_LIMIT),
            *(Watched(callback) for callback in callbacks),
        ]
        self._restore_watched(slice(1, None))

    def restore_opening(self) -> None:
        """Set the generators as they were when the data's iterator opened."""
        if self.saved is not None:
            randomness.restore(self.saved.random("open"))

    def restore_data(self) -> None:
        """Give the dataset its saved state: after its epochs were gone through once more."""
        self._restore_watched(slice(0, 1))

    def _restore_watched(self, which: slice) -> None:
        if self.saved is None:
            return
        for watched, (kind, state) in zip(self._watched[which], self.saved.watched()[which]):
            if kind == type(watched.subject).__name__:
                watched.restore(state, self.saved.arrays)

    def restore_end(self, history: Any) -> None:
        """Give a fit that was finished before, and ran no epoch now, what its end left behind."""
        if self.saved is None or not self.saved.ended:
            return
        variables.assign(variables.state(self.model), self.saved.state())
        epochs, logs = self.saved.histories.get(str(self.ordinal), ([], {}))
        history.epoch, history.history = list(epochs), dict(logs)
        if self.saved.own:
            randomness.restore(self.saved.random("now"))

    def restore_metrics(self) -> bool:
        """Set the accumulators of the epoch's logs; False where they cannot be."""
        if self.saved is None or not self.saved.executions:
            return True
        try:
            variables.assign(variables.metrics(self.model), self.saved.metrics())
        except variables.Unlike:
            return False
        return True

    def restore_randomness(self, after_opening: dict[str, Any]) -> None:
        """Set the generators as they were at the save, except those that the pipeline itself draws from.

        `after_opening`: their states now, after the batches were passed over.  A generator that moved since
        the iterator opened belongs to the pipeline, and is where it must be.
        """
        if self.saved is None:
            return
        opened, now = self.saved.random("open"), self.saved.random("now")
        theirs = {name for name in ("python", "numpy") if not randomness.same(opened, after_opening, name)}
        randomness.restore({name: state for name, state in now.items() if name not in theirs})

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

    @property
    def past(self) -> Saved:
        """The saved state, in code that runs only where there is one."""
        if self.saved is None:
            raise LookupError("nothing was saved of this fit")
        return self.saved

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
        self.epoch, self.executions = epoch + 1, 0
        self.ends.append(self.complete)

    def batches(self) -> int:
        """Return the batches of an epoch, 0 where not known yet."""
        handler = self.iterator
        return getattr(handler, "num_batches", None) or getattr(handler, "inferred_steps", None) or 0

    def batch(self) -> int:
        """Return the samples of a batch, 0 where only the data know."""
        found = getattr(_adapter(self.iterator), "batch_size", None)
        return (found() if callable(found) else found) or 0

    def at_seam(self) -> bool:
        """Whether this was the epoch's last batch: its end is the better moment to save.

        Where nobody knows the last one, every batch may be it; JAX fails in an epoch that trains none.
        """
        if not self.batches():
            return self.blind
        return self.batches() <= self.executions * self.per_execution

    def save(self, finished: bool = False, histories: dict[str, Any] | None = None) -> None:
        """Write a generation.  Raises OSError and whatever a framework raises: the caller guards."""
        variables.synchronise(self.model)
        state = variables.values(variables.state(self.model))
        metrics = variables.values(variables.metrics(self.model)) if self.executions else []
        arrays = state + metrics
        facts = {
            "format": FORMAT,
            "model": type(self.model).__name__,
            "number": self.number,
            "epoch": self.epoch,
            "executions": self.executions,
            "drawn": self.drawn,
            "batch": self.batch(),
            "ends": self.ends,
            "length": getattr(self.iterator, "_num_batches", getattr(self.iterator, "_inferred_steps", None)),
            "finished": finished,
            "stop": not self.executions and bool(getattr(self.model, "stop_training", False)),
            "state": len(state),
            "metrics": len(metrics),
            "watched": [[type(w.subject).__name__, w.changed(arrays)] for w in self._watched],
            "random": {
                "open": encoding.encode(self.opened, arrays),
                "now": encoding.encode(randomness.capture(), arrays),
            },
            "histories": encoding.encode(histories or {}, arrays),
        }
        facts["tensors"], blobs = tensors.pack(arrays)
        self.store.write(facts, blobs)


def _adapter(iterator: Any) -> Any:
    """Return what turns the script's data into batches, behind an epoch iterator of Keras 3 or 2."""
    return getattr(iterator, "data_adapter", None) or getattr(iterator, "_adapter", None)


def _dataset(iterator: Any) -> Any:
    """Return the script's own dataset object behind an epoch iterator: its order is its state."""
    adapter = _adapter(iterator)
    return getattr(adapter, "py_dataset", None) or getattr(adapter, "_keras_sequence", None)
