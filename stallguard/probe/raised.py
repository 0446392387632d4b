"""Errors that a device reports to the script, also those that the script catches.

After an error of a kernel, CUDA refuses each further call of the process.  A script that catches it, and goes on with
the next batch, trains nothing from then on; if it counts its batches itself, they even end.  PyTorch and JAX have a
class for such errors, which is called for each of them and at no other time, so a healthy training pays nothing.
The core decides which errors end the use of the device (core/history.py).
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .context import Context
    from .patches import Function

EVERY = 2.0  # seconds between two notes
LONGEST = 300  # characters of an error
NAME = "CUDA"  # in the text of each error of such a device
MEMORY = "out of memory"  # a script can catch that, and go on with a smaller batch


class RaisedErrors:
    """The count of the errors of a device."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._count = 0
        self._due = 0.0

    def watch(self, kind: Any) -> None:
        """Count the errors of a class; None, or no class, if this version of the library has none."""
        if isinstance(kind, type):
            kind.__init__ = kind.__init__  # type: ignore[misc]  # it can be inherited, and `wrap` takes none of those
            self.context.wrap(kind, "__init__", self._counting)

    def _counting(self, original: Function) -> Function:
        def __init__(error: Any, *args: Any, **named: Any) -> None:  # noqa: N807 - it replaces that method
            original(error, *args, **named)
            try:
                self._count_one(args)
            except Exception as surprise:
                self.context.surprise("an error of the device", surprise)

        return __init__

    def _count_one(self, args: tuple[Any, ...]) -> None:
        text = args[0] if args and type(args[0]) is str else ""
        lines = [line.strip() for line in text[: 10 * LONGEST].splitlines() if NAME in line]
        if not lines or MEMORY in lines[0]:
            return
        self._count += 1
        now = time.monotonic()
        if now >= self._due:
            self._due = now + EVERY
            self.context.note("raised", "", error=lines[0][:LONGEST], count=self._count)
