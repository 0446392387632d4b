"""What `import stallguard` in a training script reaches when the probe is in."""

from __future__ import annotations

import os
from time import monotonic

from . import wire
from .beats import HAND, NAMED
from .monotonic import monotonic_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .checkpoint.manual import Manual
    from .context import Context

_EXPECT = wire.SLOT["expect_ns"]
STOP = wire.COMMANDS.index("stop")


class Script:
    """The script's own word."""

    def __init__(self, context: Context, appear: Callable[[], None]) -> None:
        """`appear`: called first, so that the supervisor knows of this process."""
        self._context = context
        self._appear = appear
        self._checkpoints: list[Manual] = []
        self._ending = False

    def cut(self) -> int:
        """Return the parts that the script cuts a batch into now."""
        self._appear()
        self._in_effect()
        return self._context.asked

    def _in_effect(self) -> None:
        if self._context.asked > 1:
            self._context.set("factor", self._context.asked)
            self._context.flag(wire.FLAG_SMALLER_BATCH)

    def batch_size(self, rows: int) -> int:
        """Return the rows of a batch in this attempt; Keras' batches are not sliced from now on."""
        self._appear()
        context = self._context
        smaller = max(1, rows // context.asked)
        if smaller < rows and not context.smaller:
            context.smaller = True
            self._in_effect()
            context.note("micro", "the script was given batches of %d rows instead of %d" % (smaller, rows))
        return smaller

    def beat(self, count: int) -> None:
        """`count` batches ended; between two of them is the moment for a checkpoint that is due."""
        self._context.beats.trains()
        self._context.beats.beat(HAND, count)
        if self._checkpoints and not self._context.beats.fitting and self._context.get("command") == STOP:
            self._end()
        for checkpoint in self._checkpoints:
            checkpoint.tick()

    def _end(self) -> None:
        """Save, and end by the signal that would come anyway: a loop of the script's own hears no other word."""
        if self._ending:
            return
        import signal  # costs a start two milliseconds, and is wanted once in a night

        self._ending = True
        for checkpoint in self._checkpoints:
            checkpoint.save(monotonic())
        self._context.flag(wire.FLAG_STOP_ASKED)
        self._context.note("stop", "saved the loop's state, and asked the script to end by SIGTERM", saved=1)
        os.kill(os.getpid(), signal.SIGTERM)

    def checkpoint(self, save: Callable[[str], Any], load: Callable[[str], Any], name: str) -> bool:
        """Let `save` write checkpoints from now on; whether `load` was given one of an earlier attempt."""
        self._context.beats.trains()
        folder = self._context.backup_directory
        if not folder:
            return False
        from .checkpoint import earlier_attempts, schedule
        from .checkpoint.manual import Manual

        context = self._context
        pace = schedule.of_environment(context.environment, monotonic())
        mine = earlier_attempts.Records(folder, context.place, context.resuming).folder
        place = os.path.join(mine, "manual-%d" % (len(self._checkpoints) + 1))
        checkpoint = Manual(context, place, pace, save, name)
        self._checkpoints.append(checkpoint)
        self._context.took("backup")
        return checkpoint.load(load)

    def enter(self, name: str, seconds: float) -> tuple[int, int]:
        """A phase of the script's begins; `seconds` > 0: it may take so long.  Returns a state for `leave`."""
        self._appear()
        beats = self._context.beats
        expected = beats.slots[_EXPECT]
        if seconds > 0:
            beats.slots[_EXPECT] = monotonic_ns() + int(seconds * 1e9)
        self._context.note("phase", name, seconds="%g" % seconds)
        return beats.enter(NAMED), expected

    def leave(self, state: tuple[int, int]) -> None:
        """The phase ended."""
        before, expected = state
        self._context.beats.slots[_EXPECT] = expected
        self._context.beats.leave(before)
