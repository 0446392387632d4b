"""rich: the threads that draw a live display again, and that count for `rich.progress.track`.

Each sleeps on an event of its own, a tenth or a quarter of a second by default: _RefreshThread.run and
_TrackThread.run of rich 10 to 15.  Lightning has a display of its own on top of it.
"""

from __future__ import annotations

from ..libraries import Library

LIBRARY = Library("rich", displays=(("rich.live", "run"), ("rich.progress", "run")))
