"""Selects the generation that a fit continues from, and says in one sentence how the fit goes on.

First the newest generation.  If only the place in the data is in doubt, the newest one made between two epochs.
Otherwise none: the fit trains from its beginning.  The setting checkpoint.inexact changes this:
"stop" ends the process instead of falling back, "continue" keeps the generation despite the doubt.

What is not as before is found at several moments: as the fit begins, as its data are drawn again, in the batch that is
trained next.  It is collected, and said when it is known how the fit goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from . import announcements
from .saved_generation import StartOver, are_of_others

if TYPE_CHECKING:
    from ..context import Context
    from .fit import Fit
    from .saved_generation import AttemptRecords, Saved


class ResumeChoice:
    """The selection for all fits of one process.  `end_process` is called if an inexact resume is not allowed."""

    def __init__(self, context: Context, records: AttemptRecords, end_process: Callable[[], None]) -> None:
        self._context = context
        self._records = records
        self._end_process = end_process
        self._inexact = context.settings.checkpoint_inexact
        self.trained_again = False  # an earlier fit was trained again in this attempt
        self._excluded: list[str] = []  # why the generations before the present one are not used
        self._back = False  # the present one was made at the beginning of its epoch, and is used instead of a newer one
        self._inexactly: list[str] = []  # what is not exact in this resume
        self._exactly: list[str] = []  # what else is to be said of it
        # A sentence whose last doubt is not cleared yet.
        self._waiting: tuple[str, dict[str, Any]] | None = None

    def first(self, fit: Fit, epochs: int) -> Saved | None:
        """Return the generation from which a fit of `epochs` epochs continues, None if it has none."""
        self._excluded, self._back, self._inexactly, self._exactly, self._waiting = [], False, [], [], None
        complaints: list[str] = []
        newest = next(self._records.found(fit.ordinal, complaints), None)
        chosen = newest
        if newest is not None and not newest.serves(epochs):  # the script asks for fewer epochs than before
            chosen = next((one for one in self._records.found(fit.ordinal, []) if one.serves(epochs)), None)
            if chosen is None:
                chosen = self.after(
                    fit, StartOver(announcements.SHORTER % (newest.epoch, announcements.counted(epochs, "epoch")))
                )
            else:
                self._records.forget_from(fit.ordinal + 1)
        for complaint in complaints if chosen is not None else ():
            self.remark(announcements.PREVIOUS % complaint)
        self.trained_again |= chosen is None and self._records.later(fit.ordinal)
        if newest is None and complaints:
            text = announcements.STARTS_OVER % (fit.ordinal, "; ".join(complaints))
            self._context.say("inexact", text, fit=fit.ordinal, epoch=fit.first, batch=0)
        elif chosen is None and self._records.later(fit.ordinal):
            self._context.note("resume", announcements.AGAIN % fit.ordinal)
        elif newest is None and fit.ordinal == 1 and are_of_others(self._context):
            self._context.say("inexact", announcements.OF_OTHERS % "the training")
        return chosen

    def after(self, fit: Fit, reason: StartOver) -> Saved | None:
        """Return the generation to use after `reason` excluded the last one; None: the fit's own beginning."""
        before = fit.past.epoch if fit.saved is not None else 0
        self._waiting = None
        if str(reason) not in self._excluded:
            self._excluded.append(str(reason))
        why = ", and ".join(self._excluded)
        if self._inexact == "stop":
            self._context.say("inexact-stop", announcements.STOPS % (fit.ordinal, why))
            self._end_process()
        if reason.between_epochs:
            for saved in self._records.found(fit.ordinal, []):
                is_earlier = saved.epoch < before or (saved.epoch == before and not self._back)
                if saved.between_epochs and is_earlier and not saved.unkept and not saved.finished:
                    saved.verified = False
                    self._back = True
                    return saved
        text = announcements.STARTS_OVER if fit.skipping is None else announcements.TRAINED_AGAIN
        dropped = self._records.start_over(fit.ordinal)
        later = announcements.LATER % announcements.counted(dropped, "later fit") if dropped > 0 else ""
        text = text % (fit.ordinal, why) + later
        stays = fit.past.facts.get("stays") if fit.saved is not None else None
        if stays:
            text += "; " + announcements.STAYED % announcements.described(stays)
        self._context.say("inexact", text, fit=fit.ordinal, epoch=fit.first, batch=0)
        return None

    def doubt(self, fit: Fit, reason: str, between_epochs: bool = False) -> None:
        """Raise StartOver because the resume is not exact; only report it if the settings allow that."""
        if self._inexact != "continue":
            raise StartOver(reason, between_epochs)
        self.inexact(announcements.ALL_THE_SAME % (fit.ordinal, reason))

    def inexact(self, reason: str) -> None:
        """Have the sentence on this resume say what is not exact."""
        if reason not in self._inexactly:
            self._inexactly.append(reason)

    def remark(self, text: str) -> None:
        """Have the sentence on this resume say something that leaves it exact."""
        if text not in self._exactly:
            self._exactly.append(text)

    def goes_on(self, fit: Fit, how: str, facts: dict[str, Any]) -> None:
        """Note that the fit goes on from its generation, in words; `say` says so.  `facts`: its position, if known."""
        if self._back:
            how = announcements.BACK % (fit.ordinal, fit.past.epoch + 1, ", and ".join(self._excluded))
        self._waiting = how, facts

    def say(self) -> None:
        """Say the one sentence on this resume, if one waits: no doubt is left."""
        if self._waiting is None:
            return
        (how, facts), self._waiting = self._waiting, None
        text = "; ".join([*self._inexactly, how, *self._exactly])
        self._context.say("inexact" if self._back or self._inexactly else "resume", text, **facts)
