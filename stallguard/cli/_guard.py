"""Resolve a command and guard it.  Does not import click, so that a training starts sooner."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from stallguard import config


def run(words: tuple[str, ...]) -> int:
    """Guard COMMAND with the settings of files and environment; return the exit code.  Raises StallguardError."""
    cwd = Path.cwd()

    def load() -> config.Loaded:
        return config.load({}, os.environ, cwd)

    return guard(words, load(), load)


def guard(
    words: tuple[str, ...],
    loaded: config.Loaded,
    reload: Callable[[], config.Loaded] | None = None,
    name: str = "",
) -> int:
    """Resolve the command, run it under guard, and return the exit code.  `reload`: reads the settings again."""
    from stallguard.launch.request import prepare
    from stallguard.supervisor.session import Session
    from stallguard.supervisor.signals import deferred_signals

    with deferred_signals() as kept:
        request = prepare(words, loaded, os.environ, Path.cwd(), name=name)
        return Session(request, loaded, os.environ, reload).guard(kept)
