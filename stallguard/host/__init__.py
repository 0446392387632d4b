"""The operating system, behind one set of functions: `system` is host.darwin or host.linux, chosen once here.

Both have the same public names, take the same arguments and return the same values; what a system cannot tell
is None there, never zero.  Nothing in this package may judge what it reads, or write anything.
"""

from __future__ import annotations

import sys

if sys.platform == "darwin":
    from stallguard.host import darwin as system
else:
    from stallguard.host import linux as system

__all__ = ["system"]
