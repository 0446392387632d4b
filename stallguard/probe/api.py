"""The functions behind `import stallguard` in a training script that runs with the probe."""

from __future__ import annotations

import os
from time import monotonic

from . import wire
from .beats import HAND, NAMED, monotonic_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Callable

    from .checkpoint.manual import Manual
    from .checkpoint.schedule import CheckpointSchedule
    from .checkpoint.tracked_loop import TrackedLoop
    from .context import Context
    from .microbatch.loop_parts import LoopParts

_EXPECT, _COMMAND = wire.SLOT["expect_ns"], wire.SLOT["command"]
STOP, SAVE = wire.COMMANDS.index("stop"), wire.COMMANDS.index("save")


class ScriptApi:
    """The calls that the script makes."""

    def __init__(self, context: Context, appear: Callable[[], None]) -> None:
        """`appear` is called first: it connects this process to the supervisor."""
        self._context = context
        self._appear = appear
        self._checkpoints: list[Manual] = []
        self._tracked = 0
        self._parts: list[LoopParts] = []  # of the loops that were handed over
        self._ending = False

    def cut(self) -> int:
        """Return into how many parts the script must divide a batch."""
        self._appear()
        if any(parts.is_dividing for parts in self._parts):
            return 1
        self._in_effect()
        return self._context.asked

    def _in_effect(self) -> None:
        if self._context.asked > 1:
            self._context.set("slices", self._context.asked)
            self._context.flag(wire.FLAG_SMALLER_BATCH)

    def batch_size(self, rows: int) -> int:
        """Return the rows of a batch in this attempt; from then on Keras' batches are not sliced."""
        self._appear()
        context = self._context
        smaller = max(1, rows // context.asked)
        if smaller < rows and not context.smaller:
            context.smaller = True
            self._in_effect()
            plural = "" if smaller == 1 else "s"
            text = "the script was given batches of %d row%s instead of %d" % (smaller, plural, rows)
            context.note("micro", text)
        return smaller

    def beat(self, count: int) -> None:
        """Count `count` finished batches; save a checkpoint if one is due, or if the training is to stop."""
        self._context.beats.mark_training()
        self._context.beats.beat(HAND, count)
        self._save(self._checkpoints)

    def _save(self, checkpoints: Sequence[Manual | TrackedLoop], between_epochs: bool = False) -> None:
        """Save if a checkpoint is due, or if the training is to stop."""
        command = self._context.get("command") if checkpoints and not self._ending else 0
        if command == STOP and not self._context.beats.fitting:
            import signal  # 2 ms at the start of each process, and needed once in a run

            self._ending = True
            for checkpoint in checkpoints:
                checkpoint.save(monotonic())
            self._context.flag(wire.FLAG_STOP_ASKED)
            self._context.note("stop", "saved the loop's state, and sent SIGTERM to the script", saved=1)
            os.kill(os.getpid(), signal.SIGTERM)  # nothing else ends a loop of the script's own
        if command == SAVE:
            self._context.set("command", 0)
        for checkpoint in checkpoints:
            checkpoint.tick(command == SAVE, between_epochs)

    def checkpoint(self, save: Callable[[str], Any], load: Callable[[str], Any], name: str) -> bool:
        """Have `save` write checkpoints from now on; return whether `load` read one of an earlier attempt."""
        self._context.beats.mark_training()
        folder = self._context.checkpoint_directory
        if not folder:
            return False
        from .checkpoint.manual import Manual

        context = self._context
        place = self._folder("manual-%d" % (len(self._checkpoints) + 1))
        checkpoint = Manual(context, place, self._pace(), save, name)
        self._checkpoints.append(checkpoint)
        context.losses.checkpoint = checkpoint.finite
        self._context.hook_installed("checkpoint")
        return checkpoint.load(load)

    def track(self, objects: tuple[Any, ...], epochs: Any, loss: str = "") -> Iterator[Any]:
        """Return the loop over `epochs` and the batches of each, or over the batches alone if `epochs` is None.

        `loss`: what it is over the rows of a batch, "mean" or "sum"; "": not known, so batches stay whole.

        The loop begins where an earlier attempt of this run saved it.  Raises TypeError for an object that cannot be
        kept, and what an object raises that is given its earlier state.
        """
        from .checkpoint.tracked_loop import TrackedLoop

        self._context.beats.mark_training()
        self._tracked += 1
        folder = self._folder("tracked-%d" % self._tracked) if self._context.checkpoint_directory else ""
        parts = self._in_parts(objects, loss)
        beats, pace = self._context.beats, self._pace()
        loop = TrackedLoop(self._context, folder, pace, objects, parts)
        self._context.losses.checkpoint = loop.finite
        if loop.saves:
            self._context.hook_installed("checkpoint")
        loop.load()

        def between(loop: TrackedLoop, epochs: bool) -> None:
            if epochs or beats.slots[_COMMAND] or monotonic() >= pace.next:
                self._save([loop], epochs)

        return loop.batches(between) if epochs is None else loop.epochs(epochs, between)

    def _in_parts(self, objects: tuple[Any, ...], loss: str) -> LoopParts:
        """Return how the batches of a loop are divided."""
        from .microbatch import loop_mlx, loop_parts, loop_torch

        watches = [one.watch(objects) for one in (loop_torch, loop_mlx)] if self._context.slices > 1 and loss else []
        parts = loop_parts.LoopParts(self._context, objects, loss, [one for one in watches if one is not None])
        self._parts.append(parts)
        return parts

    def _folder(self, name: str) -> str:
        from .checkpoint.saved_generation import AttemptRecords

        context = self._context
        mine = AttemptRecords(context.checkpoint_directory, context.place, context.resuming).folder
        return os.path.join(mine, name)

    def _pace(self) -> CheckpointSchedule:
        from .checkpoint.schedule import CheckpointSchedule

        settings = self._context.settings
        return CheckpointSchedule(settings.checkpoint_every, settings.checkpoint_cost, monotonic())

    def enter(self, name: str, seconds: float) -> tuple[int, int]:
        """Begin a phase that the script names; `seconds` > 0: how long it can take.  Return a state for `leave`."""
        self._appear()
        beats = self._context.beats
        expected = beats.slots[_EXPECT]
        if seconds > 0:
            beats.slots[_EXPECT] = monotonic_ns() + int(seconds * 1e9)
        self._context.note("phase", name, seconds="%g" % seconds)
        return beats.enter(NAMED), expected

    def leave(self, state: tuple[int, int]) -> None:
        """End the phase."""
        before, expected = state
        self._context.beats.slots[_EXPECT] = expected
        self._context.beats.leave(before)
