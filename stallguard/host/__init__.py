"""The operating system, behind one set of functions, chosen here and nowhere else.

`system` is host.darwin or host.linux; `evidence_tools` gives its module that is not needed at every start.
Both packages have the same public names, take the same arguments and return the same values; what a system does not
report is None, never zero.  Nothing in this package judges what it reads, or writes anything.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

if sys.platform == "darwin":
    from stallguard.host import darwin as system
else:
    from stallguard.host import linux as system

__all__ = ["evidence_tools", "system"]


def evidence_tools() -> ModuleType:
    """Return the module of this system that knows the evidence about a stuck process: rows of host.types."""
    return importlib.import_module(f"{system.__name__}.evidence_tools")
