"""The checkpoints of one process: counts fits, decides when to save, resumes each fit in its turn.

A fit that earlier attempts left something of is called with its newest generation.  What speaks against that raises
StartOver, as early as it is known: another model before anything is restored, other data before the first batch is
trained.  Then everything that was restored is undone, and the fit is called again with the next thing that is right: a
generation made between two epochs if only the place in the data is in doubt, else none.  Each such step is said first.

Nothing of ours may raise into the script: a save that fails becomes a note.  What the script's own pipeline, callbacks
and model raise passes through.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Callable

from ..lookahead import Lookahead
from . import (
    announcements,
    data_order,
    dataset_caches,
    earlier_attempts,
    fast_forward,
    fingerprint,
    identity,
    pipelines,
)
from .fit import Fit, callbacks_of
from .opened_files import Openings
from .saved_generation import Saved, StartOver
from .saver import Saver
from .schedule import EVERY, SHARE, Pace
from .sigterm import Farewell

if TYPE_CHECKING:
    from ..context import Context
    from .fit_call import Call

SOON = 1.0  # s: a save due within that is looked for at each batch, else once a second
PRINT_EVERY = 2.0  # s between two fingerprints of epochs' first batches
MOST = 1_000_000_000  # bytes of callbacks' own data in a checkpoint


class Session:
    """What the hooks of every framework share."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.fit: Fit | None = None
        self.stopped = False
        environment = context.environment
        self.inexact = environment.get("STALLGUARD_INEXACT") or "fallback"
        self._ordinal = 0
        self._records = earlier_attempts.Records(context.backup_directory, context.place, context.resuming)
        self._locks = dataset_caches.Locks(self._records.folder, time.time())
        every = earlier_attempts.number(environment.get("STALLGUARD_CHECKPOINT_EVERY"), EVERY)
        share = earlier_attempts.number(environment.get("STALLGUARD_CHECKPOINT_COST"), SHARE)
        self.pace = Pace(every, share, time.monotonic())
        self.farewell = Farewell(context.attend, context.mail.own_thread)
        self.openings = Openings(self)
        self.lookahead = Lookahead(context)
        self.lookahead.passes = (StartOver,)
        most = int(earlier_attempts.number(environment.get("STALLGUARD_CHECKPOINT_MOST"), MOST))
        self._saver = Saver(context, self.pace, self.farewell, self.lookahead, most)
        self.epoch_of: Any = None  # the framework's own generator of a fit's epochs
        self._undo: Callable[[], None] | None = None
        self._script: dict[str, int] = {}
        self._drawn: set[int] = set()  # fits whose pipelines draw what nothing can repeat
        self._trained_again = False  # whether an earlier fit had to be trained again in this attempt
        self._printed = 0.0
        self._stopping = False
        self._has_own_backup = False  # the running fit has a BackupAndRestore of the script's
        self._process = os.getpid()
        self._seed = data_order.of_process(context)
        context.after_batch.append(self.batch_ended)
        context.before_stop.append(self.stop)

    def seed(self, place: int) -> int | None:
        """Return the process' seed for its `place`-th use, None if there is none."""
        return None if self._seed is None else data_order.derived(self._seed, place)

    def free(self) -> bool:
        """Whether a fit that begins now is the outermost one, in the process that this is about."""
        return self.fit is None and not self.stopped and os.getpid() == self._process

    def guarded(self, where: str, action: Callable[[], Any]) -> Any:
        """Return action(), or None if it fails: nothing of ours may raise into the script."""
        try:
            return action()
        except Exception as error:
            self.context.surprise(where, error)
            return None

    # ---- a call of fit --------------------------------------------------------------------------------------

    def run(self, call: Call) -> Any:
        """Run one outermost fit."""
        self._ordinal += 1
        if call.obstacle:
            self._has_own_backup = call.obstacle == announcements.OWN_BACKUP
            inexact = self._has_own_backup and self.context.resuming
            self.context.note("inexact" if inexact else "resume", call.obstacle)
            try:
                return call.start(call.first)
            finally:
                self._has_own_backup = False
        for lock in self.guarded("removing locks of caches", self._locks.release) or ():
            self.say("resume", dataset_caches.REMOVED % lock)
        began = time.monotonic()
        store = self._records.store(self._ordinal)
        self.fit = fit = Fit(call.model, self._ordinal, store, call.first, call.epochs, call.site)
        fit.process = {**identity.of_process(self.context.place), "script": self._files()}
        fit.seeds, fit.validation = self.context.seeds, call.validation
        self.openings.begin()
        self.guarded("waiting for SIGTERM", self.farewell.arm)
        fit.files.begin()
        try:
            try:
                history = self._resumed(fit, call)
            finally:
                fit.files.end()
                self.fit, self._undo = None, None
            now = time.monotonic()
            due = self.farewell.asked or self.pace.at_end(now, now - began)
            if due and not self.stopped and fit.skipping is None:
                self._saver.save(fit, self.openings.others, history)
        finally:
            self.guarded("no longer waiting for SIGTERM", self.farewell.disarm)
        return history

    def _files(self) -> dict[str, int]:
        if not self._script:
            self._script = self.guarded("reading the script's files", identity.script) or {}
        return self._script

    def _resumed(self, fit: Fit, call: Call) -> Any:
        """Call the framework's fit with what was saved of it, and again with less of it if that is wrong."""
        complaints: list[str] = []
        saved = newest = next(self._records.found(fit.ordinal, complaints), None)
        if newest is not None and not newest.serves(call.epochs):
            saved = self._shorter(fit, call, newest)
        for complaint in complaints:
            self.context.note("resume", complaint + "; the one before it is used")
        if saved is None and self._records.later(fit.ordinal):
            self._trained_again = True
            self.context.note("resume", announcements.AGAIN % fit.ordinal)
        while True:
            fit.take(saved)
            try:
                if saved is None:
                    if self.context.resuming:
                        self.guarded("cutting files", fit.files.rewind)
                    return call.start(call.first)
                return self._skipped(fit, call) if saved.is_over(call.epochs) else call.start(saved.epoch)
            except StartOver as reason:
                self._take_back()
                saved = self._instead(fit, reason)

    def _shorter(self, fit: Fit, call: Call, newest: Saved) -> Saved | None:
        """Return what the script can go on from that asks for fewer epochs now than were trained."""
        for saved in self._records.found(fit.ordinal, []):
            if saved.serves(call.epochs):
                self._records.forget_from(fit.ordinal + 1)
                return saved
        return self._instead(fit, StartOver(announcements.SHORTER % (newest.epoch, call.epochs)))

    def _take_back(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None:
            self.guarded("undoing what was restored", undo)

    def _instead(self, fit: Fit, reason: StartOver) -> Saved | None:
        """Return the next generation that is right, None if only the fit's own beginning is; says which and why."""
        before = fit.past.epoch if fit.saved is not None else 0
        if self.inexact == "stop":
            self.say("inexact-stop", announcements.STOPS % (fit.ordinal, reason))
            self.farewell.die()
        if reason.seam:
            for saved in self._records.found(fit.ordinal, []):
                if saved.seam and saved.epoch <= before and not saved.unkept and not saved.finished:
                    saved.verified = False
                    self.say("inexact", announcements.BACK % (fit.ordinal, saved.epoch + 1, reason))
                    return saved
        dropped = self._records.forget_from(fit.ordinal) - 1
        later = announcements.LATER % dropped if dropped > 0 else ""
        self.say("inexact", announcements.STARTS_OVER % (fit.ordinal, reason) + later)
        return None

    def _skipped(self, fit: Fit, call: Call) -> Any:
        """Give a fit that is over what its end left behind; no callback of its begins or ends again."""
        fit.skipping = callbacks_of(call.callbacks)
        for callback in fit.skipping:
            self.guarded("showing a callback its model", lambda: _introduce(callback, call.model))  # noqa: B023
        history = call.skip()
        self._restore(fit)
        fit.restore_end(history)
        self.context.note("resume", announcements.FINISHED % fit.ordinal)
        return history

    def doubt(self, fit: Fit, reason: str, seam: bool = False) -> None:
        """Something keeps a resume from being exact: raises StartOver, or goes on if the settings say so."""
        if self.inexact != "continue":
            raise StartOver(reason, seam)
        self.say("inexact", announcements.ALL_THE_SAME % (fit.ordinal, reason))

    def say(self, kind: str, text: str, **facts: object) -> None:
        """Have a sentence on its way to the supervisor before anything else happens."""
        self.context.note(kind, text, **facts)
        self.guarded("sending a note", self.context.flush)

    # ---- events of the framework's loop ---------------------------------------------------------------------

    def begins(
        self, fit: Fit, callbacks: Any, prepare: Callable[[Fit], None], advance: Callable[[Fit], None]
    ) -> None:
        """The loop is set up, and the script's callbacks begin next; raises StartOver.

        `prepare(fit)` creates the variables that a resumed fit restores; `advance(fit)` gets the data of a fit that is
        over to where they were at its end.
        """
        fit.callbacks = fit.skipping if fit.skipping is not None else callbacks
        fit.rate = self.guarded("reading the learning rate", lambda: identity.rate(fit.model))
        if fit.ordinal > 1:
            fit.start = self.guarded("reading the model's beginning", lambda: identity.start(fit.model)) or ""
        if fit.saved is None:
            return
        prepare(fit)
        refusal = fit.check(start=self._trained_again)
        if refusal:
            self.doubt(fit, refusal)
        before = fit.past.resize(fit.batch())
        if before:
            self.context.note("resume", announcements.RESIZED % (fit.batch(), before))
        if fit.past.unkept:
            self.doubt(fit, announcements.STATE % announcements.described(fit.past.unkept))
        if fit.past.facts["draws"] and fit.skipping is None:
            self.say(
                "inexact",
                "fit %d: %s" % (fit.ordinal, announcements.KERNELS % ", ".join(fit.past.facts["draws"])),
            )
        if fit.past.finished and fit.skipping is None:
            self.context.note("resume", announcements.LONGER % (fit.ordinal, fit.past.epoch, fit.epochs))
            self._records.forget_from(fit.ordinal + 1)  # they follow from the shorter training
        for notice in fit.notices:
            self.say("resume", "fit %d: %s" % (fit.ordinal, notice))
        if fit.skipping is not None:
            fit.begin()
            advance(fit)

    def began(self, fit: Fit) -> None:
        """The script's callbacks have begun: their state is what the saved one replaces; raises StartOver."""
        if fit.skipping is not None:
            return
        unknown = self.guarded("looking at what the script keeps", fit.begin)
        if unknown is None:
            fit.broken = True  # without a baseline a checkpoint would lack state without a message
        elif unknown:
            self.context.beyond(announcements.KEPT_NOT % announcements.listed(unknown))
        self._name_limits(fit)
        self.guarded("noting caches", lambda: self._locks.note(fit.datasets()))
        if fit.saved is not None:
            self.context.restored()
            self._restore(fit, self._keep_undo)
            if fit.past.seam:  # the callbacks of its next epoch draw first, then its data
                self.guarded("restoring the generators", fit.restore_generators)

    def _restore(self, fit: Fit, undo: Callable[[Callable[[], None]], None] | None = None) -> None:
        try:
            fit.restore(undo)
        except OSError as error:
            self.say("inexact", announcements.FILES % (fit.ordinal, error))

    def _keep_undo(self, undo: Callable[[], None]) -> None:
        self._undo = undo

    def _name_limits(self, fit: Fit) -> None:
        for sentence in (
            self.guarded("reading the pipeline", lambda: pipelines.limits(fit.iterator, fit.model)) or ()
        ):
            self.context.beyond(sentence)
            if sentence.startswith(announcements.UNSTABLE[:40]):
                self._drawn.add(fit.ordinal)
            if fit.saved is not None and sentence != announcements.WORKERS:
                self.say("inexact", "fit %d: %s" % (fit.ordinal, sentence))

    def epoch_began(self, fit: Fit) -> None:
        """The script's callbacks have seen an epoch begin; raises StartOver."""
        if fit.saved is not None and not fit.begun:
            fit.begun = True
            if (
                not fit.past.seam
            ):  # they had seen it before the save, and what they do then must not be done twice
                self._restore(fit)
        now = time.monotonic()
        if now - self._printed > PRINT_EVERY:
            self._printed = now
            self.guarded("looking at the first batch", lambda: self._print(fit))

    def _print(self, fit: Fit) -> None:
        place = "%d:0" % fit.epoch
        if fit.saved is None or fit.resumed:
            self.lookahead.arrange(fit.model, lambda batches: fit.seen(place, fast_forward.print_of(batches)))

    def passed_over(self) -> None:
        """A batch was drawn and is not trained."""
        self.context.add("skipped")
        self.context.moved()

    def compare(self, fit: Fit, place: str, batches: list[Any]) -> None:
        """Compare the batch at a place with the fingerprint that was kept of it; raises StartOver if it is another."""
        saved = fit.past
        wanted = saved.prints.get(place)
        if wanted is None or not saved.verified:
            return
        found = self.guarded("comparing a batch", lambda: fast_forward.print_of(batches))
        if found is None or not fingerprint.differ(wanted, found, fit.ordinal in self._drawn):
            return
        saved.verified = False  # said once
        epoch, batch = place.split(":")
        self.doubt(
            fit,
            announcements.ORDER % (int(batch) + 1, int(epoch) + 1, pipelines.reason(fit.iterator)),
            seam=True,
        )

    def resumed(self, fit: Fit) -> None:
        """Everything is where it was; the next batch is trained."""
        fit.resumed = True
        batches = fit.executions * fit.per_execution
        fast_forward.check_next(self, fit)
        text = announcements.resumed(fit.ordinal, fit.epoch, batches, fit.past.made)
        self.say("resume", text, fit=fit.ordinal, epoch=fit.epoch, batch=batches)

    @property
    def resuming(self) -> bool:
        """Whether the running fit has a saved state."""
        return self.fit is not None and self.fit.saved is not None

    def batch_ended(self, callbacks: Any) -> None:
        """A batch ended (called now and then): save if it is time to, or if the end was asked for."""
        fit = self.fit
        if fit is None or self.stopped:
            return
        if callbacks is not fit.callbacks:  # a list inside a callback: the fit's own batch ends after it
            self.context.attend()
            return
        fit.count(self.context.index)
        self._settle(fit)
        if self._stopping or self.farewell.asked:
            self._last(fit)
        elif time.monotonic() >= self.pace.next and not fit.at_seam():
            self._saver.save(fit, self.openings.others)
        if time.monotonic() >= self.pace.next - SOON:
            self.context.attend()

    def _settle(self, fit: Fit) -> None:
        """A batch was trained after a resume: what was restored is needed no more."""
        if fit.saved is not None and fit.resumed and fit.saved.arrays:
            fit.saved.drop()
            self._undo = None

    def epoch_ended(self, fit: Fit, epoch: int) -> None:
        """The callbacks of an epoch's end have run: save if the pace allows.

        Not after the last one: how the fit ends is part of what it leaves, and is saved in a moment.
        """
        if self.stopped:
            return
        fit.epoch_ended(epoch)
        if fit.epoch >= fit.epochs or getattr(fit.model, "stop_training", False):
            return
        if self.farewell.asked:
            self._last(fit)
        elif self.pace.due(time.monotonic(), seam=True):
            self._saver.save(fit, self.openings.others)

    def stop(self, callbacks: Any) -> None:
        """Make a last checkpoint: the training is about to be ended after this batch (after `batch_ended`).

        A fit with a BackupAndRestore of the script's ends as it is: that callback removes its backup if Keras ends it.
        """
        fit = self.fit
        if fit is None and self._has_own_backup:
            self.say("stop", announcements.OWN_STOPPED, saved=1)
            self.farewell.wait()
        if fit is None or self.stopped:
            return
        if callbacks is fit.callbacks:
            self._last(fit)
        else:
            self._stopping = True  # the fit's own batch is trained, but not counted: its end comes next

    def _last(self, fit: Fit) -> None:
        """Make the last checkpoint.  The process ends there: the script must not go on with a model half trained.

        If the checkpoint is not complete the script goes on, as what it makes of its model is all that there is.
        """
        saved = not self.stopped and self._saver.save(fit, self.openings.others, last=True)
        self.stopped = True
        if saved and not self.farewell.asked:
            self.say("stop", announcements.STOPPED, saved=1)
            self.farewell.wait()
        if self.farewell.asked:
            self.farewell.die()


def _introduce(callback: Any, model: Any) -> None:
    """Give a callback that does not begin its model; Keras' TensorBoard would begin new files."""
    if type(callback).__name__ != "TensorBoard":
        callback.set_model(model)
