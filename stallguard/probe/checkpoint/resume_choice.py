"""Selects the generation that a fit continues from, and reports each time that it is not the newest one.

First the newest generation.  If only the place in the data is in doubt, the newest one made between two epochs.
Otherwise none: the fit trains from its beginning.  The setting checkpoint.inexact (STALLGUARD_INEXACT) changes this:
"stop" ends the process instead of falling back, "continue" keeps the generation despite the doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from . import announcements
from .saved_generation import StartOver

if TYPE_CHECKING:
    from ..context import Context
    from .earlier_attempts import Records
    from .fit import Fit
    from .saved_generation import Saved


class ResumeChoice:
    """The selection for all fits of one process.  `end_process` is called if an inexact resume is not allowed."""

    def __init__(self, context: Context, records: Records, end_process: Callable[[], None]) -> None:
        self._context = context
        self._records = records
        self._end_process = end_process
        self._inexact = context.environment.get("STALLGUARD_INEXACT") or "fallback"
        self.trained_again = False  # an earlier fit was trained again in this attempt

    def first(self, fit: Fit, epochs: int) -> Saved | None:
        """Return the generation from which a fit of `epochs` epochs continues, None if it has none."""
        complaints: list[str] = []
        newest = next(self._records.found(fit.ordinal, complaints), None)
        chosen = newest
        if newest is not None and not newest.serves(epochs):  # the script asks for fewer epochs than before
            chosen = next((one for one in self._records.found(fit.ordinal, []) if one.serves(epochs)), None)
            if chosen is None:
                chosen = self.after(
                    fit,
                    StartOver(announcements.SHORTER % (newest.epoch, announcements.counted(epochs, "epoch"))),
                )
            else:
                self._records.forget_from(fit.ordinal + 1)
        for complaint in complaints:
            self._context.note("resume", complaint + "; the previous one is used")
        if chosen is None and self._records.later(fit.ordinal):
            self.trained_again = True
            self._context.note("resume", announcements.AGAIN % fit.ordinal)
        return chosen

    def after(self, fit: Fit, reason: StartOver) -> Saved | None:
        """Return the generation to use after `reason` excluded the last one; None: the fit's own beginning."""
        before = fit.past.epoch if fit.saved is not None else 0
        if self._inexact == "stop":
            self._context.say("inexact-stop", announcements.STOPS % (fit.ordinal, reason))
            self._end_process()
        if reason.between_epochs:
            for saved in self._records.found(fit.ordinal, []):
                if saved.between_epochs and saved.epoch <= before and not saved.unkept and not saved.finished:
                    saved.verified = False
                    self._context.say("inexact", announcements.BACK % (fit.ordinal, saved.epoch + 1, reason))
                    return saved
        text = announcements.STARTS_OVER if fit.skipping is None else announcements.TRAINED_AGAIN
        dropped = self._records.forget_from(fit.ordinal) - 1
        later = announcements.LATER % announcements.counted(dropped, "later fit") if dropped > 0 else ""
        self._context.say("inexact", text % (fit.ordinal, reason) + later)
        return None

    def doubt(self, fit: Fit, reason: str, between_epochs: bool = False) -> None:
        """Raise StartOver because the resume is not exact; only report it if the settings allow that."""
        if self._inexact != "continue":
            raise StartOver(reason, between_epochs)
        self._context.say("inexact", announcements.ALL_THE_SAME % (fit.ordinal, reason))
