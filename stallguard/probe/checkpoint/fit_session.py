"""The checkpoints of one process: counts the calls of fit, decides when to save, resumes each fit.

A fit of which an earlier attempt left a generation is called with the newest one.  A reason against using it raises
StartOver as early as it is known: a different model before anything is restored, different data before the first batch
is trained.  Then all that was restored is undone, and the fit is called again with the generation that
resume_choice.py selects next.  What the script's own pipeline, callbacks and model raise reaches the script.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Callable

from .. import wire
from ..lookahead import Lookahead
from . import announcements, datasets, fit_start, identity, pipelines, saved_generation, tensors, variables
from .datasets import Openings
from .fit import Fit, callbacks_of
from .object_state import ObjectBaseline
from .resume_choice import ResumeChoice
from .saved_generation import StartOver
from .saver import CheckpointSaver
from .schedule import CheckpointSchedule
from .sigterm import SigtermHandler

if TYPE_CHECKING:
    from ..context import Context
    from .fit_start import FitCall

SAVE = wire.COMMANDS.index("save")
SETTLE = 2.0  # s that the report of a broken loss waits for a generation that is being written
SOON = 1.0  # s before a save is due, from which on each batch is checked; before that, one a second
SLOWER = 10  # times, at most, that reading takes as long again for a finished fit
FINGERPRINT_EVERY = 2.0  # s at least between two fingerprints of the first batch of an epoch
MOST = 1_000_000_000  # bytes at most of the callbacks' own data in a checkpoint


class CheckpointSession:
    """The state that the checkpoint hooks of all frameworks share."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.fit: Fit | None = None
        self.stopped = False  # the last checkpoint was made, or tried: no other follows
        self._ordinal = 0  # outermost fits so far
        self._records = saved_generation.AttemptRecords(context.checkpoint_directory, context.place, context.resuming)
        self._locks = datasets.Locks(self._records.folder, time.time())
        settings = context.settings
        self.pace = CheckpointSchedule(settings.checkpoint_every, settings.checkpoint_cost, time.monotonic())
        self.sigterm_handler = SigtermHandler(context.request_attention, context.mail.own_thread)
        self._choice = ResumeChoice(context, self._records, self.sigterm_handler.die)
        self.openings = Openings(context, lambda: self.fit)
        self.lookahead = Lookahead(context)
        self.lookahead.passes = (StartOver,)
        self._saver = CheckpointSaver(
            context, self.pace, self.sigterm_handler, self.lookahead, settings.checkpoint_most
        )
        self.epoch_of: Any = None  # the framework's own generator of a fit's epochs
        self._undo: Callable[[], None] | None = None  # reverses what was restored in the running fit
        self._script: dict[str, int] = {}  # identity.script, read once
        self._drawn: set[int] = set()  # fits whose pipelines draw random values that cannot be repeated
        self._fingerprinted = 0.0  # when the first batch of an epoch was last read for its fingerprint
        # A fit inside a callback was asked to stop: the outer fit's batch is trained, and `batch_ended` saves after it.
        self._stops_after_batch = False
        self._has_own_backup = False  # the script's own BackupAndRestore is in the running fit
        self._process = os.getpid()
        context.after_batch.append(self.batch_ended)
        context.before_stop.append(self.stop)
        context.losses.checkpoint = self.finite_checkpoint

    def free(self) -> bool:
        """Return whether a fit that begins now is the outermost one, in the process of this session."""
        return self.fit is None and not self.stopped and os.getpid() == self._process

    def guarded(self, where: str, action: Callable[[], Any]) -> Any:
        """Return action(); if it raises, report the error and return None."""
        try:
            with self.context.own_work():
                return action()
        except Exception as error:
            self.context.surprise(where, error)
            return None

    def digested(self, action: Callable[[float], Any]) -> Any:
        """Return action(seconds): what it reads of the script's objects in full takes `seconds` at most."""
        began = time.monotonic()
        try:
            return action(self.pace.allowance(began))
        finally:
            self.pace.digested(time.monotonic() - began)

    def finite_checkpoint(self) -> str:
        """Return which is the newest generation with finite values, of this fit or of one before it; "" if none is."""
        self._saver.settle(SETTLE)
        for ordinal in range(self._ordinal, 0, -1):
            found = self._records.store(ordinal).finite()
            if found is not None:
                return announcements.finite(ordinal, *found)
        return ""

    # ---- a call of fit --------------------------------------------------------------------------------------

    def run(self, call: FitCall) -> Any:
        """Run one outermost fit."""
        self._ordinal += 1
        if call.obstacle:
            call.checked()  # nothing of it is ever given up
            self._has_own_backup = call.obstacle == announcements.OWN_BACKUP
            if self._has_own_backup:
                kind = "inexact" if self.context.resuming else "resume"
                self.context.note(kind, call.obstacle, backup=1)
            else:
                self._saver.refuse(call.obstacle, self._records.store(self._ordinal))
            try:
                return call.start(call.first)
            finally:
                self._has_own_backup = False
        self.context.hook_installed("checkpoint")  # not before: a loop of the script's own beside Keras is not saved
        for lock in self.guarded("removing locks of caches", self._locks.release) or ():
            self.context.say("resume", datasets.REMOVED % lock)
        began = time.monotonic()
        store = self._records.store(self._ordinal)
        self.fit = fit = Fit(call, self._ordinal, store)
        if not self._script:
            self._script = self.guarded("reading the script's files", identity.script) or {}
        fit.process = {**identity.of_process(self.context.place), "script": self._script}
        fit.seeds = self.context.seeds
        self._saver.begins(fit)
        self.openings.begin()
        self.guarded("waiting for SIGTERM", self.sigterm_handler.arm)
        self.guarded("listening for files", fit.files.begin)
        try:
            try:
                history = self._resumed(fit, call)
            finally:
                fit.files.end()
                self.fit, self._undo = None, None
            now = time.monotonic()
            due = self.sigterm_handler.asked or self.pace.at_end(now, now - began)
            if due and not self.stopped and fit.skipping is None:
                self._saver.save(fit, self.openings.others, history)
        finally:
            self.guarded("no longer waiting for SIGTERM", self.sigterm_handler.disarm)
        return history

    def _resumed(self, fit: Fit, call: FitCall) -> Any:
        """Call the framework's fit with a saved state, again with the next one if that state proves wrong."""
        saved = self._choice.first(fit, call.epochs)
        while True:
            fit.take(saved)
            try:
                if saved is None:
                    if self.context.resuming:
                        self.guarded("cutting files", fit.files.rewind)
                    return call.start(call.first)
                if saved.is_over(call.epochs):
                    return self._skipped(fit, call)
                self.guarded("cutting files", fit.files.cut_to_beginning)
                return call.start(saved.epoch)
            except StartOver as reason:
                self.context.add("fits", -1)  # the same fit begins again, and its batches are trained again
                undo, self._undo = self._undo, None
                if undo is not None:
                    self.guarded("undoing what was restored", undo)
                    self.guarded("resetting metrics", lambda: variables.reset_emptied_metrics(fit.model))
                saved = self._choice.after(fit, reason)

    def _skipped(self, fit: Fit, call: FitCall) -> Any:
        """Restore the end of a fit that an earlier attempt finished; its callbacks neither begin nor end again."""
        fit.skipping = callbacks_of(call.callbacks)
        for callback in fit.skipping:
            if type(callback).__name__ != "TensorBoard":  # it would open new files
                self.guarded("setting the model of a callback", lambda: callback.set_model(call.model))  # noqa: B023
        history = call.skip()
        self._restore(fit)
        fit.restore_end(history)
        self._choice.goes_on(fit, announcements.FINISHED % fit.ordinal, {})
        self._choice.say()
        return history

    # ---- events of the framework's loop ---------------------------------------------------------------------

    def begins(self, fit: Fit, callbacks: Any, prepare: Callable[[Fit], None], advance: Callable[[Fit], None]) -> None:
        """Handle the start of the loop, before the script's callbacks begin; raises StartOver.

        `prepare(fit)` creates the variables that a resumed fit restores.  `advance(fit)` moves the data of a finished
        fit to the position that they had at its end.
        """
        fit.callbacks = fit.skipping if fit.skipping is not None else callbacks
        fit.rate = self.guarded("reading the learning rate", lambda: identity.rate(fit.model))
        self.guarded("noting files", fit.files.loop_begins)
        self._read_start(fit)
        if fit.saved is None:
            fit.call.checked()
            return
        prepare(fit)
        refusal = fit.check(start=self._choice.trained_again)
        if refusal:
            self._choice.doubt(fit, refusal)
        before = fit.past.resize(fit.batch())
        if before:
            self._choice.remark(announcements.RESIZED % (fit.batch(), before))
        if fit.past.unkept:
            self._choice.doubt(fit, announcements.STATE % announcements.described(fit.past.unkept))
        if fit.past.facts["draws"] and fit.skipping is None:
            self._choice.inexact(announcements.KERNELS % ", ".join(fit.past.facts["draws"]))
        if fit.past.facts.get("finite") is False:
            finite = self.guarded("looking for finite values", self.finite_checkpoint) or ""
            kept = announcements.BEFORE_IT % finite if finite else announcements.NONE_BEFORE_IT
            self.context.say("nonfinite-checkpoint", announcements.NOT_FINITE % (fit.ordinal, kept))
        if fit.past.finished and fit.skipping is None:
            trained = announcements.counted(fit.past.epoch, "epoch")
            self._choice.remark(announcements.LONGER % (fit.ordinal, trained, fit.epochs))
            # What later fits saved depends on the shorter training.
            self._records.forget_from(fit.ordinal + 1)
        for notice in fit.notices:
            self._choice.inexact(notice)
        if fit.past.facts.get("named"):
            self._choice.remark(announcements.AS_MADE % announcements.listed(fit.past.facts["named"]))
        if fit.skipping is None:
            then = fit.past.identity.get("start")
            if fit_start.is_known(then) and not fit_start.same_values(then, fit.start):
                self._choice.remark(announcements.CONTINUES % fit.ordinal)
            return
        self.digested(fit.begin)
        self._limits(fit, list)
        if not fit.first_batch and not (fit.start or {}).get("whole"):
            self._choice.doubt(fit, announcements.START_UNKNOWN)
        self._undo = self.guarded("noting the pipeline's state", fit.undoing_data)
        self.guarded("noting the pipeline's state", fit.note_first)
        advance(fit)
        fit.call.checked()
        self._undo = None
        found = fit_start.computed(fit.past.identity.get("start"), fit.start)
        if found:
            self._choice.remark(announcements.COMPUTED % announcements.listed(found))

    def _read_start(self, fit: Fit) -> None:
        """Read how a fit starts, and report what takes too long to read; as much as then if it was finished then."""
        then: Any = fit.past.identity.get("start") if fit.skipping is not None else None

        def read(seconds: float) -> Any:
            most = max(seconds, SLOWER * then["seconds"]) if fit_start.is_known(then) else seconds
            arguments = {**fit.call.arguments, "callbacks": callbacks_of(fit.call.callbacks)}
            walks = fit.walk()
            fit.entering = [ObjectBaseline(one) for one in walks] if fit.skipping is None else []
            return fit_start.of(fit.model, walks, arguments, most)

        fit.start = self.guarded("reading how a fit starts", lambda: self.digested(read))
        if fit.start is not None and fit.start["partly"]:
            self.context.beyond(announcements.START_UNREAD % (fit.start["partly"] >> 20, fit.ordinal))

    def compare_first(self, fit: Fit, batch: Any) -> None:
        """Compare the first batch of a finished fit, None if there is none; raises StartOver if it differs."""
        found = self.guarded(
            "comparing a batch", lambda: tensors.fingerprint_of_first([] if batch is None else [batch])
        )
        if found is not None and tensors.fingerprints_differ(fit.first_batch, found, fit.ordinal in self._drawn):
            self._choice.doubt(fit, announcements.OTHER_FIRST)

    def began(self, fit: Fit) -> None:
        """Restore the saved state after the script's callbacks have begun; raises StartOver."""
        if fit.skipping is not None:
            return
        unknown: list[str] = []
        try:
            with self.context.own_work():
                unknown = self.digested(fit.begin)
        except Exception as error:
            fit.broken = True  # without a baseline a checkpoint could lack state unnoticed
            self._saver.complain(error, fit.store)
        if unknown:
            self.context.beyond(announcements.KEPT_NOT % announcements.listed(unknown))
        for sentence in self._limits(fit, fit.shared):
            self.context.beyond(sentence)
            if fit.saved is not None and sentence != announcements.WORKERS:
                self._choice.inexact(sentence)
        self.guarded("noting caches", lambda: self._locks.note([pipelines.dataset_of(fit.iterator), fit.validation]))
        if fit.saved is not None:
            self.context.restored()
            self._restore(fit, self._keep_undo)
            fit.restore_now()
            if fit.past.between_epochs:  # its next epoch draws for its callbacks first, then for its data
                self.guarded("restoring the generators", fit.restore_generators)
            fit.call.checked()

    def _limits(self, fit: Fit, shared: Callable[[], list[str]]) -> list[str]:
        """Return what a resume cannot restore of a fit's data; note whether they are drawn anew."""
        found: list[str] | None = self.guarded(
            "reading the pipeline", lambda: pipelines.limits(fit.iterator, fit.model, shared())
        )
        if any(sentence.startswith(announcements.UNSTABLE[:40]) for sentence in found or ()):
            self._drawn.add(fit.ordinal)
        return found or []

    def _restore(self, fit: Fit, undo: Callable[[Callable[[], None]], None] | None = None) -> None:
        """Restore the saved state; a file that cannot be restored is only reported.  `undo`: as for Fit.restore."""
        try:
            with self.context.own_work():
                fit.restore(undo)
        except OSError as error:
            self._choice.inexact(announcements.FILES % error)

    def _keep_undo(self, undo: Callable[[], None]) -> None:
        self._undo = undo

    def epoch_began(self, fit: Fit) -> None:
        """Handle the begin of an epoch, after the script's callbacks; raises StartOver."""
        if fit.saved is not None and not fit.begun:
            fit.begun = True
            # Inside an epoch the callbacks had begun it before the save: this undoes their second begin.
            if not fit.past.between_epochs:
                self._restore(fit)
                if fit.passed:  # Keras 2: the data are at their place before an epoch begins
                    self.digested(fit.restore_trained)
                else:
                    fit.restore_now()
        now = time.monotonic()
        # Without the first batch, a finished fit is skipped only if its data can be read in full.
        only_drawn = fit.saved is None and not fit.first_batch and not (fit.start or {}).get("whole")
        if now - self._fingerprinted > FINGERPRINT_EVERY or only_drawn:
            self._fingerprinted = now
            # In Keras 2 the data of a resumed epoch are at their place here: its first batch does not come again.
            if (fit.saved is None or fit.resumed) and not fit.executions:
                place = "%d:0" % fit.epoch
                self.guarded(
                    "looking at the first batch",
                    lambda: self.lookahead.arrange(
                        fit.model, lambda batches: fit.seen(place, tensors.fingerprint_of_first(batches))
                    ),
                )

    def passed_over(self) -> None:
        """Count a batch that was drawn to be skipped."""
        self.context.add("skipped")
        self.context.moved()

    def compare(self, fit: Fit, place: str, batches: list[Any]) -> None:
        """Compare the batch at a place with its kept fingerprint; raises StartOver if they differ."""
        saved = fit.past
        wanted = saved.prints.get(place)
        if wanted is None or not saved.verified:
            return
        found = self.guarded("comparing a batch", lambda: tensors.fingerprint_of_first(batches))
        if found is None or not tensors.fingerprints_differ(wanted, found, fit.ordinal in self._drawn):
            return
        saved.verified = False  # reported once
        epoch, batch = place.split(":")
        where = pipelines.source(fit.iterator, fit.ordinal in self._drawn, self.context.seeds is not None)
        text = announcements.ORDER % (int(batch) + 1, int(epoch) + 1, where)
        self._choice.doubt(fit, text, between_epochs=True)

    def resumed(self, fit: Fit) -> None:
        """Handle the end of the resume: all state is restored, and the next batch is trained."""
        fit.resumed = True
        batches = fit.executions * fit.per_execution
        self.context.epoch_goes_on(batches)
        place = fit.place()
        text = announcements.resumed(fit.ordinal, fit.epoch, batches, fit.past.made)
        self._choice.goes_on(fit, text, {"fit": fit.ordinal, "epoch": fit.epoch, "batch": batches})

        def look(found: list[Any]) -> None:
            self.compare(fit, place, found)
            self._choice.say()

        # The batch that would have been trained next is compared with its fingerprint.
        if place not in fit.past.prints or not self.lookahead.arrange(fit.model, look):
            self._choice.say()

    def logs_before(self, model: Any) -> Any:
        """Return what the step of the last batch returned, if a resumed epoch of this model has no batch left.

        Else None.  If no checkpoint keeps that, the results of the model's metrics, said.
        """
        fit = self.fit
        if fit is None or fit.model is not model or fit.saved is None:
            return None
        if fit.past.between_epochs or fit.epoch != fit.past.epoch:
            return None
        kept = fit.past.facts.get("logs")
        if kept is None:
            self.context.say("inexact", announcements.NO_LOGS % (fit.ordinal, fit.epoch + 1))
        logs = None if kept is None else self.guarded("reading logs", lambda: fit.past.decoded("logs"))
        return logs or model.get_metrics_result()

    @property
    def resuming(self) -> bool:
        """Whether the running fit has a saved state."""
        return self.fit is not None and self.fit.saved is not None

    def batch_ended(self, callbacks: Any, logs: Any) -> None:
        """Save after a batch if a save is due or the process is to end; not called after each.  `logs`: of the step."""
        fit = self.fit
        if fit is None or self.stopped:
            return
        if callbacks is not fit.callbacks:  # of a fit inside a callback: the outer batch ends later
            self.context.request_attention()
            return
        fit.count(self.context.index)
        fit.logs = logs
        self._choice.say()  # no batch came of which to look at the fingerprint
        if fit.saved is not None and fit.resumed and fit.saved.arrays:  # trained since: no undo after this
            fit.saved.drop()
            self._undo = None
        if self.context.get("command") == SAVE:
            self.context.set("command", 0)
            self.pace.ask(time.monotonic())
        if self._stops_after_batch or self.sigterm_handler.asked:
            self._save_and_end(fit)
        elif time.monotonic() >= self.pace.next and not fit.is_last_batch_of_epoch():
            self._saver.save(fit, self.openings.others)
        if time.monotonic() >= self.pace.next - SOON:
            self.context.request_attention()

    def epoch_ended(self, fit: Fit, epoch: int) -> None:
        """Save after the callbacks of an epoch's end if a save is due; after the last one `run` saves."""
        if self.stopped:
            return
        fit.epoch_ended(epoch)
        if fit.epoch >= fit.epochs or getattr(fit.model, "stop_training", False):
            return
        if self.sigterm_handler.asked:
            self._save_and_end(fit)
        elif self.pace.due(time.monotonic(), between_epochs=True):
            self._saver.save(fit, self.openings.others)

    def stop(self, callbacks: Any) -> None:
        """Make the last checkpoint: the training is to end after this batch.  Called after `batch_ended`.

        A fit with the script's own BackupAndRestore is not ended by Keras, because that callback would remove its
        backup: the process waits for SIGTERM instead.
        """
        fit = self.fit
        if fit is None and self._has_own_backup:
            self.context.say("stop", announcements.OWN_STOPPED, saved=1)
            self.sigterm_handler.wait()
        if fit is None or self.stopped:
            return
        if callbacks is fit.callbacks:
            self._save_and_end(fit)
        else:
            self._stops_after_batch = True

    def _save_and_end(self, fit: Fit) -> None:
        """Make the last checkpoint and end the process: the script must not use a half-trained model.

        If the checkpoint is incomplete, the script continues, because its own results are then the only ones.
        """
        saved = not self.stopped and self._saver.save(fit, self.openings.others, last=True)
        self.stopped = True
        if saved and not self.sigterm_handler.asked:
            self.context.say("stop", announcements.STOPPED, saved=1)
            self.sigterm_handler.wait()
        if self.sigterm_handler.asked:
            self.sigterm_handler.die()


begin = CheckpointSession


def patch_datasets(session: CheckpointSession, module: Any) -> None:
    """Wrap how datasets are made and opened; `module`: tensorflow.python.data.ops.dataset_ops."""
    session.openings.patch(module)
