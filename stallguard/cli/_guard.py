"""Read the options of settings, resolve a command and guard it.  Without click, so that a training starts sooner."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stallguard import config
from stallguard.config.kinds import SWITCH
from stallguard.config.table import KEYS


def read(words: list[str]) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """Return the settings that the options before COMMAND give, by path, and COMMAND, as `cli.run` does.

    None if there is anything but whole names of options for settings, each with its value in the next word, or if there
    is no COMMAND: click reads these words, or reports what is wrong.
    """
    options = {key.flag: key for key in KEYS.values() if key.flag}
    flags: dict[str, Any] = {}
    index = 0
    while index < len(words) and words[index].startswith("-") and words[index] not in ("--", "-m"):
        word, value = words[index], words[index + 1 : index + 2]
        key = options.get(word) or options.get(f"--{word.removeprefix('--no-')}")
        if key is None or (
            key.kind is not SWITCH and (word != key.flag or not value or value[0].startswith("-"))
        ):
            return None
        flags[key.path] = word == key.flag if key.kind is SWITCH else value[0]
        index += 1 if key.kind is SWITCH else 2
    command = tuple(words[index + 1 :] if words[index : index + 1] == ["--"] else words[index:])
    return (flags, command) if command else None


def run(flags: Mapping[str, Any], words: tuple[str, ...]) -> int:
    """Guard COMMAND with the settings of `flags`, environment and files; return the exit code.

    Raises StallguardError.
    """
    cwd = Path.cwd()

    def load() -> config.Loaded:
        return config.load(flags, os.environ, cwd)

    return guard(words, load(), load)


def guard(
    words: tuple[str, ...],
    loaded: config.Loaded,
    reload: Callable[[], config.Loaded] | None = None,
    name: str = "",
) -> int:
    """Resolve the command, run it under guard, and return the exit code.  `reload`: reads the settings again."""
    if loaded.config.store.job:
        from stallguard.fleet import seam

        return seam.guard(words, loaded, os.environ, reload, name)
    from stallguard.launch.request import prepare
    from stallguard.supervisor.session import Session
    from stallguard.supervisor.signals import deferred_signals

    with deferred_signals() as kept:
        request = prepare(words, loaded, os.environ, Path.cwd(), name=name)
        return Session(request, loaded, os.environ, reload).guard(kept)
