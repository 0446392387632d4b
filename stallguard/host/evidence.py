"""What each system can tell about a stuck process: tables that we read and tools that we run, as data.

`system` is host.darwin_evidence or host.linux_evidence; both have tables(pid), tools(pid, since, now),
main_wait(pid) and report_places().  Nothing here may pause a process unless its row says `deep`.
"""

from __future__ import annotations

import sys

if sys.platform == "darwin":
    from stallguard.host import darwin_evidence as system
else:
    from stallguard.host import linux_evidence as system

__all__ = ["system"]
