"""The folder of what a user writes for stallguard: settings, and the fleet file.

Apart from stallguard.config, because lists look for a fleet file and must not wait for the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def user_folder(env: Mapping[str, str]) -> Path:
    """Return ~/.config/stallguard, on macOS too, or that under XDG_CONFIG_HOME.

    A relative XDG_CONFIG_HOME is ignored, as its specification asks for: it would be another folder in each directory.
    """
    base = Path(env.get("XDG_CONFIG_HOME", ""))
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    return (base if base.is_absolute() else home / ".config") / "stallguard"
