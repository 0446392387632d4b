"""The cells of a notebook: the number, In [2], of each file under which the kernel compiled one.

The probe keeps a file of them for each kernel (probe/frameworks/IPython.py).  What has a number is called "cell 2" from
where stacks are read on, so evidence, report and status have that name; what has none keeps its path.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from stallguard.core.text import whole_number
from stallguard.probe import wire

MOST = 1 << 20  # bytes of a file that are read: ten thousand cells
_FILE = re.compile(r'(?<=  File ")([^"\n]+)(?=", line )')


def of(pages: Path, pid: int) -> dict[str, str]:
    """Return "cell 2" by the file of its code; nothing of a process that is no kernel."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError), (pages / (wire.CELLS % pid)).open("rb") as file:
        for line in file.read(MOST).decode("utf-8", "surrogateescape").splitlines():
            number, _, name = line.partition("\t")
            if whole_number(number) and name:
                found[name] = f"cell {int(number)}"
            else:
                found.pop(name, None)
    return found


def named(text: str, pages: Path, pid: int) -> str:
    """Return stacks as faulthandler writes them, with the numbers of cells in place of their files."""
    cells = of(pages, pid)
    return _FILE.sub(lambda match: cells.get(match[1], match[1]), text) if cells else text
