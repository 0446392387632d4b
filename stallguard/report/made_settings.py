"""The settings that a run was started with, as far as they are not the defaults.  Pure."""

from __future__ import annotations

from stallguard.config import DEFAULT
from stallguard.config.table import KEYS
from stallguard.storage.run_files import RunRequest


def settings(asked: RunRequest | None) -> dict[str, str]:
    """Return by its name the value of each setting that is no default, and where it is from."""
    found: dict[str, str] = {}
    for name, origin in (asked.origins if asked else {}).items():
        section, _, key = name.partition(".")
        value = asked.config.get(section, {}).get(key) if asked else None
        if origin != DEFAULT and name in KEYS and value is not None:
            found[name] = f"{KEYS[name].kind.show(value)} ({origin})"
    return found
