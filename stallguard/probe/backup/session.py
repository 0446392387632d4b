"""The backup of one process: counts fits, decides when to save, resumes each fit in its turn.

Nothing here may raise into the script: a save that fails becomes a note, a state that does not fit makes its
fit start over.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Callable
from weakref import WeakKeyDictionary

from . import records, seeds, words
from .farewell import Farewell
from .fit import Fit, StartOver
from .pace import EVERY, SHARE, Pace

if TYPE_CHECKING:
    from ..context import Context

At = Callable[[int], Any]
SOON = 1.0  # s: a save due within that is looked for at each batch, else once a second


class Session:
    """What the hooks of every framework share."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.fit: Fit | None = None
        self.stopped = False
        self._ordinal = 0
        self._models: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._histories: dict[str, Any] = {}
        self._records = records.Records(context.backup_directory, context.resuming)
        every = records.number(context.environment.get("STALLGUARD_CHECKPOINT_EVERY"), EVERY)
        share = records.number(context.environment.get("STALLGUARD_CHECKPOINT_COST"), SHARE)
        self.pace = Pace(every, share, time.monotonic())
        self.farewell = Farewell(context.attend, context.mail.own_thread)
        self._complained = False
        self._stopping = False
        self._process = os.getpid()
        self._seed = self.guarded("the run's seed", lambda: seeds.of_run(context.backup_directory))
        context.after_batch.append(self.batch_ended)
        context.before_stop.append(self.stop)

    def seed(self, place: int) -> int | None:
        """Return the run's seed for its `place`-th use, None where there is none."""
        return None if self._seed is None else seeds.derived(self._seed, place)

    def free(self) -> bool:
        """Whether a fit that begins now is the outermost one, in the process that this is about."""
        return self.fit is None and not self.stopped and os.getpid() == self._process

    def run(self, model: Any, start: At, last: int, obstacle: str) -> Any:
        """Run one outermost fit: `start(epoch)` calls the framework's own, beginning at `epoch`.

        `last`: the epoch that ends it.  `obstacle`: why it is left alone, "" where it is not.
        """
        self._ordinal += 1
        if obstacle:
            self.context.note("resume", obstacle)
            return start(0)
        began = time.monotonic()
        self.fit = fit = self._opened(model)
        self.guarded("waiting for SIGTERM", self.farewell.arm)
        try:
            history = self._started(fit, start, last)
        finally:
            self.fit = None
            self.guarded("no longer waiting for SIGTERM", self.farewell.disarm)
        self._finish(fit, history, time.monotonic() - began)
        return history

    def _opened(self, model: Any) -> Fit:
        number = self._models.setdefault(model, len(self._models))
        store = self._records.store(self._ordinal)
        saved, complaints = self._records.read(self._ordinal, number)
        for complaint in complaints:
            self.context.note("resume", complaint + "; the one before it is used")
        return Fit(model, self._ordinal, number, store, saved)

    def _started(self, fit: Fit, start: At, last: int) -> Any:
        if fit.saved is None:
            return start(0)
        try:
            return start(last if fit.saved.over else fit.saved.epoch)
        except StartOver as reason:
            self.context.note("resume", words.STARTS_OVER % (fit.ordinal, reason))
            fit.forget()
            return start(0)

    def _finish(self, fit: Fit, history: Any, seconds: float) -> None:
        if self.stopped:
            return
        self._histories[str(fit.ordinal)] = records.history_of(history)
        if fit.saved is not None and fit.saved.ended:
            self._restored_end(fit, history)
        elif self.pace.at_end(time.monotonic(), seconds):
            self.save(fit, finished=True)

    def _restored_end(self, fit: Fit, history: Any) -> None:
        self.context.note("resume", words.FINISHED % fit.ordinal)
        self.guarded("restoring a finished fit", lambda: fit.restore_end(history))

    def guarded(self, where: str, action: Callable[[], Any]) -> Any:
        """Return action(), or None where it fails: a guest never raises."""
        try:
            return action()
        except Exception as error:
            self.context.surprise(where, error)
            return None

    def batch_ended(self, callbacks: Any) -> None:
        """A batch ended (called now and then): save where it is time to, or where the end was asked for."""
        fit = self.fit
        if fit is None or self.stopped:
            return
        if callbacks is not fit.callbacks:  # a list inside a callback: the fit's own batch ends after it
            self.context.attend()
            return
        fit.count(self.context.index)
        if self._stopping or self.farewell.asked:
            self._last(fit)
        elif time.monotonic() >= self.pace.next and not fit.at_seam():
            self.save(fit)
        if time.monotonic() >= self.pace.next - SOON:
            self.context.attend()

    def epoch_ended(self, fit: Fit, epoch: int) -> None:
        """The callbacks of an epoch's end have run: save where the pace allows."""
        if self.stopped:
            return
        fit.epoch_ended(epoch)
        if self.farewell.asked:
            self._last(fit)
        elif self.pace.due(time.monotonic(), seam=True):
            self.save(fit)

    def stop(self, callbacks: Any) -> None:
        """Make a last checkpoint: the training is about to be ended after this batch (after `batch_ended`)."""
        fit = self.fit
        if fit is None or self.stopped:
            return
        if callbacks is fit.callbacks:
            self._last(fit)
        else:
            self._stopping = True  # the fit's own batch is trained, but not counted: its end comes next

    def _last(self, fit: Fit) -> None:
        if not self.stopped:
            self.save(fit)
        self.stopped = True
        if self.farewell.asked:
            self.farewell.die()

    def save(self, fit: Fit, finished: bool = False) -> None:
        """Write a generation; what goes wrong becomes a note, and the one before stays."""
        began = time.monotonic()
        self.farewell.saving = True
        try:
            with self.context.phase("checkpoint"):
                fit.save(finished, self._histories)
        except Exception as error:
            self._complain(error)
        else:
            self._complained = False
            self.context.add("saves")
        self.farewell.saving = False
        self.pace.saved(began, time.monotonic())

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            self.context.note("save", words.NOT_SAVED % error)
            if not isinstance(error, OSError):
                self.context.surprise("saving a checkpoint", error)
