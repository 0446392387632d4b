"""What `import stallguard` in a training script reaches when the probe is in."""

from __future__ import annotations

from time import monotonic_ns

from . import wire
from .beats import HAND, NAMED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .context import Context

_EXPECT = wire.SLOT["expect_ns"]


class Script:
    """The script's own word."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def factor(self) -> int:
        """Micro-batches a batch in this attempt."""
        return self._context.factor

    def beat(self, count: int) -> None:
        """`count` batches ended."""
        self._context.beats.beat(HAND, count)

    def enter(self, name: str, seconds: float) -> tuple[int, int]:
        """A phase of the script's begins; `seconds` > 0: it may take so long.  Returns a state for `leave`."""
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
