"""Plug-ins: what other packages add through entry points.

Loads them and reports which failed; must not depend on their purpose.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def load(group: str, trouble: Callable[[str, Exception], None]) -> dict[str, Any]:
    """Return the objects of the entry points of `group`, by name; `trouble` is called for each that fails."""
    loaded: dict[str, Any] = {}
    if not _is_named(group):
        return loaded
    from importlib import metadata

    for entry in metadata.entry_points(group=group):
        try:
            loaded[entry.name] = entry.load()
        except Exception as error:  # noqa: BLE001 - foreign code must not end the run
            trouble(entry.name, error)
    return loaded


def _is_named(group: str) -> bool:
    """Return whether the metadata of an installed package can name `group`.

    importlib.metadata takes 20 ms and 2 MB of a process that runs for days, and plug-ins are rare.
    """
    for place in map(Path, sys.path):
        if place.is_file():  # an archive: what it contains is not looked at here
            return True
        for points in place.glob("*-info/entry_points.txt"):
            with contextlib.suppress(OSError):
                if group.encode() in points.read_bytes():
                    return True
    return False


def installed(group: str) -> list[tuple[str, str, str]]:
    """Return (name, object reference, package) of each plug-in of `group`, without loading any."""
    from importlib import metadata

    entries = metadata.entry_points(group=group)
    return sorted((entry.name, entry.value, entry.dist.name if entry.dist else "?") for entry in entries)
