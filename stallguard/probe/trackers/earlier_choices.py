"""What the trackers' libraries chose in the attempt before: one small file for each call.

A file is named by the place of its process, the kind of the choice, and the number of the call of this kind in the
process.  A file that is there when the call is made comes from an earlier attempt: a place is given once an attempt.
Nothing here raises.
"""

from __future__ import annotations

import os
from _thread import allocate_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..context import Context

LONGEST = 4096  # bytes of a choice


class EarlierChoices:
    """Of one process."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._folder = context.settings.trackers
        self._counts: dict[tuple[str, str], int] = {}
        self._lock = allocate_lock()
        self.directories: dict[str, str] = {}  # log directories in use, by what the script gave

    def next(self, kind: str) -> TrackerChoice:
        """Return the next choice of this kind (letters, digits, "-" and "_")."""
        place = self.context.place
        with self._lock:
            number = self._counts[place, kind] = self._counts.get((place, kind), 0) + 1
        name = "%s.%s.%d" % (place, kind, number) if place and self._folder else ""
        return TrackerChoice(self.context, name and os.path.join(self._folder, name))

    def report(self, text: str) -> None:
        """Report a sentence; it is shown in the journal."""
        self.context.note("tracker", text)


class TrackerChoice:
    """One choice.  `earlier`: what an earlier attempt chose; "" if there was none."""

    def __init__(self, context: Context, path: str) -> None:
        self._context, self._path = context, path
        self.earlier = self._read() or ""

    def _read(self) -> Optional[str]:
        if not self._path:
            return None
        try:
            with open(self._path, "rb") as file:
                return file.read(LONGEST).decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            return None
        except Exception as error:
            self._context.surprise("reading an earlier choice", error)
            return None

    def keep(self, value: object) -> None:
        """Record what was chosen, for the next attempt."""
        text = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else b""
        if not self._path or not text or len(text) > LONGEST or value == self.earlier:
            return
        draft = "%s.%d" % (self._path, os.getpid())
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
            file = os.open(draft, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
            try:
                os.write(file, text)
            finally:
                os.close(file)
            os.replace(draft, self._path)
        except Exception as error:
            self._context.surprise("keeping a choice", error)
