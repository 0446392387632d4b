"""The newest value of the run.  The loop writes it, every other part and thread only reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stallguard.core.run import Run  # the core is imported after the first attempt is started


class CurrentRun:
    """`run`: None until the loop starts; `code`: the exit code, None until the run is concluded."""

    def __init__(self) -> None:
        """Start without a run."""
        self.run: Run | None = None
        self.code: int | None = None

    @property
    def attempt(self) -> int:
        """The number of the present attempt."""
        # The first attempt counts as present before its launch: a note from then belongs to no attempt that is over.
        return max(1, self.run.current.number) if self.run else 1
