"""coverage.py: keeps the probe's own files out of what it counts.

coverage.py asks once a file whether its lines count.  It leaves out its own files and installed packages; the probe
runs from another directory and is neither.  Other tracers see the probe: what it takes is time of the training.
"""

from __future__ import annotations

import os

from ..libraries import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..context import Context

REASON = "it is the probe of stallguard"


def patch(_context: Context, module: Any) -> None:
    """Replace the question of `coverage.inorout`, which pytest-cov and `coverage run` share (seen in 7.17)."""
    probe = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    places = (os.path.join(probe, ""), os.path.join(os.path.dirname(probe), "__init__.py"))
    own = (*places, *(os.path.join(os.path.realpath(os.path.dirname(one)), os.path.basename(one)) for one in places))
    asked = module.InOrOut.should_trace

    def should_trace(self: Any, filename: str, *more: Any, **named: Any) -> Any:
        found = asked(self, filename, *more, **named)
        names = (filename, getattr(found, "source_filename", None) or "")
        if getattr(found, "trace", False) and any(str(name).startswith(own) for name in names):
            found.trace, found.reason = False, REASON
        return found

    module.InOrOut.should_trace = should_trace


LIBRARY = Library("coverage", patches={"always": {"coverage.inorout": patch}})
