"""Plug-ins: what other packages add through entry points.

Loads them and reports which failed; must not depend on their purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any


def load(group: str, trouble: Callable[[str, Exception], None]) -> dict[str, Any]:
    """Return the objects of the entry points of `group`, by name; `trouble` is called for each that fails."""
    loaded = {}
    for entry in metadata.entry_points(group=group):
        try:
            loaded[entry.name] = entry.load()
        except Exception as error:  # noqa: BLE001 - foreign code must not end the run
            trouble(entry.name, error)
    return loaded


def installed(group: str) -> list[tuple[str, str, str]]:
    """Return (name, object reference, package) of each plug-in of `group`, without loading any."""
    entries = metadata.entry_points(group=group)
    return sorted((entry.name, entry.value, entry.dist.name if entry.dist else "?") for entry in entries)
