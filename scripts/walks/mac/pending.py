"""What a walk has begun and a later one ends: a file in the home of stallguard, one entry for each check.

    {"schema": 1, "pending": {"logout": {"at": 1795000000.0, ...}}}

`at`: seconds since the epoch.  A file that cannot be read is kept beside it, and nothing is pending then; `scripts/live
--clean` removes what is installed in any case, because the names of its jobs are fixed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FILE, SCHEMA = "pending.json", 1

Entry = dict[str, Any]


def read(place: Path) -> dict[str, Entry]:
    """Return what is pending.  Raises OSError."""
    file = place / FILE
    try:
        kept = json.loads(file.read_text())
        entries = {name: {**entry, "at": float(entry["at"])} for name, entry in kept["pending"].items()}
        readable = kept["schema"] == SCHEMA
    except FileNotFoundError:
        return {}
    except (ValueError, LookupError, TypeError, AttributeError):
        entries, readable = {}, False
    if not readable:
        file.replace(file.with_suffix(".damaged"))
        return {}
    return entries


def keep(place: Path, name: str, entry: Entry | None) -> None:
    """Write that a check is pending, or with None that it is not any more.  Raises OSError."""
    entries = read(place)
    entries.pop(name, None)
    if entry is not None:
        entries[name] = entry
    place.mkdir(parents=True, exist_ok=True)
    draft = place / f".{FILE}.{os.getpid()}"
    draft.write_text(json.dumps({"schema": SCHEMA, "pending": entries}, indent=1) + "\n")
    draft.replace(place / FILE)
