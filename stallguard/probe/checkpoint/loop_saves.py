"""Saves of a loop that a library runs (Hugging Face's Trainer, Lightning, mlx-lm): when, on order, and the last.

What a checkpoint of that loop has in it, the module of the library says.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Callable

from .. import patches, wire
from ..beats import EPOCH_END
from . import announcements
from .saved_generation import AttemptRecords
from .schedule import CheckpointSchedule, SaveReport
from .sigterm import SigtermHandler

if TYPE_CHECKING:
    from ..context import Context
    from ..patches import Function, Maker

STOP, SAVE = wire.COMMANDS.index("stop"), wire.COMMANDS.index("save")


class LoopSaves:
    """The saves of all such loops in one process."""

    def __init__(self, context: Context) -> None:
        settings = context.settings
        self._context = context
        self.folder = AttemptRecords(context.checkpoint_directory, context.place, context.resuming).folder
        self.pace = CheckpointSchedule(settings.checkpoint_every, settings.checkpoint_cost, time.monotonic())
        self.report = SaveReport(context)
        self.sigterm = SigtermHandler(context.request_attention, context.mail.own_thread)
        self.stopped = False  # the last checkpoint was made
        self._process = os.getpid()

    @property
    def is_over(self) -> bool:
        """Whether this process makes no more checkpoints: its last one was made, or it was forked."""
        return self.stopped or os.getpid() != self._process

    def guarded(self, where: str, action: Callable[[], Any]) -> Any:
        """Return what `action` returns; None if it raises."""
        try:
            with self._context.own_work():
                return action()
        except Exception as error:
            self._context.surprise(where, error)
            return None

    @property
    def must_end(self) -> bool:
        """Whether the process is to end after its next checkpoint."""
        return self.sigterm.asked or self._context.get("command") == STOP

    def after_step(self, action: Callable[..., object]) -> Maker:
        """Return a maker of a wrapper that calls action(*the call's arguments) after a step, if it may have to save.

        That is if a save is due, an epoch has ended, or attention was requested: by an order, by SIGTERM, and once a
        second.  It runs in each step, so it looks itself (beats.py: `step_begins`).
        """
        context, beats, pace, sigterm = self._context, self._context.beats, self.pace, self.sigterm
        clock = time.monotonic

        def make(original: Function) -> Function:
            @patches.removes_its_own
            def hooked(*args: Any, **named: Any) -> Any:
                try:
                    result = original(*args, **named)
                except BaseException as error:
                    patches.remove(error)
                    raise
                if beats.attention or clock() >= pace.next or beats._phase == EPOCH_END:  # a property is a call
                    beats.attention = sigterm.asked  # until the process ends
                    try:
                        action(*args, **named)
                    except Exception as error:
                        context.surprise(original.__name__, error)
                return result

            return hooked

        return make

    def is_ordered(self) -> bool:
        """Return whether the supervisor has ordered a checkpoint; the order is taken."""
        ordered = self._context.get("command") == SAVE
        if ordered:
            self._context.set("command", 0)
        return ordered

    def save(self, make: Callable[[], Any], folder: str) -> bool:
        """Make a generation in `folder`; an error becomes a note, and an earlier one is kept.  Return whether made."""
        began, made = time.monotonic(), False
        self.sigterm.saving = True
        try:
            with self._context.own_work(), self._context.phase("checkpoint"):
                make()
            made = True
            self.report.saved(began)
            self._context.saved()
        except Exception as error:
            self.report.failed(error, folder)
        self.sigterm.saving = False
        self.pace.saved(began, time.monotonic())
        return made

    def end(self, saved: bool, stop: Callable[[], None], library: str) -> None:
        """End the process after its last save: the script must not use a half-trained model.

        `stop`: has the library end the training by itself, if nothing was saved.
        """
        self.stopped = True
        self._context.flag(wire.FLAG_STOP_ASKED)
        if not saved:
            stop()
            self._context.note("stop", "asked %s to end this training after the step" % library)
        elif not self.sigterm.asked:
            self._context.say("stop", announcements.STOPPED, saved=1)
            self.sigterm.wait()
        if self.sigterm.asked:
            self.sigterm.die()
