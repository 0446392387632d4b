"""Click options made from the option table, so that a flag and its setting are described in one place.

Must not read values; config.load does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from stallguard.cli import _complete
from stallguard.config import parse_set
from stallguard.config.kinds import SWITCH
from stallguard.config.table import KEYS, REMOVED, Key

Decorator = Callable[[Any], Any]
SHORT = {"--quiet": ("-q",), "--verbose": ("-v",)}
# Options before the verb, and the settings that they set for the verbs that have settings.
BEFORE = {
    "quiet": ("output.quiet", True),
    "verbose": ("output.verbose", True),
    "no_color": ("output.color", "never"),
}


def settings(keys: Iterable[Key] = tuple(KEYS.values())) -> Decorator:
    """Return a decorator that adds the option of every key that has one, and `--set`, to a command.

    The command takes them as keyword arguments and passes those to `given`.
    """
    options = [_option(key) for key in keys if key.flag]
    for path, (flag, _) in REMOVED.items():  # config.load says that it has no effect
        if flag:
            flags = f"{flag}/--no-{flag.removeprefix('--')}"
            options.append(click.option(flags, path.replace(".", "__"), default=None, hidden=True))
    options.append(
        click.option(
            "--set",
            "set__",
            multiple=True,
            metavar="KEY=VALUE",
            help="Any setting, as `stallguard config show` names it.",
            shell_complete=_complete.assignments,
        )
    )

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _option(key: Key) -> Decorator:
    name = key.path.replace(".", "__")
    shown = f"  [{key.kind.show(key.default)}]" if key.default != "" else ""
    if key.kind is SWITCH:
        flags = [*SHORT.get(key.flag, ()), f"{key.flag}/--no-{key.flag.removeprefix('--')}"]
        return click.option(*flags, name, default=None, help=key.help + shown)
    offered = _complete.values_of(key)
    return click.option(
        key.flag, name, metavar=key.kind.metavar, help=key.help + shown, shell_complete=offered
    )


def given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that `config.load` takes, from a command's keyword arguments.

    Raises StallguardError (exit code 2) if a `--set` is not KEY=VALUE.
    """
    flags = {
        name.replace("__", "."): raw for name, raw in parameters.items() if "__" in name and name != "set__"
    }
    context = click.get_current_context(silent=True)
    before = context.find_root().params if context else {}
    for name, (path, value) in BEFORE.items():
        if before.get(name) and flags.get(path) is None:
            flags[path] = value
    return flags | parse_set(parameters.get("set__", ()))


def as_words(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Return flags as options of `run`, for a command line that is used later."""
    words: list[str] = []
    for path, raw in flags.items():
        key = KEYS.get(path)
        if raw is None:
            continue
        if key is None or not key.flag:
            words += ["--set", f"{path}={raw}"]
        elif key.kind is SWITCH:
            words.append(key.flag if raw else f"--no-{key.flag.removeprefix('--')}")
        else:
            words += [key.flag, str(raw)]
    return tuple(words)
