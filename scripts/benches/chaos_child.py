"""Part of `scripts/bench chaos --without-guards`: makes one fault on a copy of stallguard, in a process of its own.

`chaos_child.py NAME FOLDER PACKAGE`; the last line of its output is what was seen and whether the promise was kept.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import chaos

if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):  # SIGINT is ignored in the background of a script
        signal.signal(number, signal.default_int_handler)
    name, folder, package = sys.argv[1:]
    print(json.dumps(chaos.made(chaos.chosen(name)[0], Path(folder), Path(package))), flush=True)
