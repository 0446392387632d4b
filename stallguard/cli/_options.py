"""Click options made from the option table, so that a flag and its setting are described in one place.

`--help` shows the options that one in ten users needs (COMMON); `--help-all` shows all of them.  Must not read values;
config.load does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from stallguard.cli import completion
from stallguard.cli._console import echo
from stallguard.config import parse_set
from stallguard.config.kinds import SWITCH
from stallguard.config.table import KEYS, REMOVED, Key

Decorator = Callable[[Any], Any]
ALL = "stallguard.help_all"  # in the context's `meta`: the help shows every option
COMMON = frozenset((
    "run.python", "run.observe", "run.resume", "run.stop_at", "run.max_time", "detector.patience", "policy.on_stall",
    "policy.max_restarts", "policy.batch_flag", "checkpoint.every", "output.quiet", "output.verbose",
))  # fmt: skip
SHORT = {"--quiet": ("-q",), "--verbose": ("-v",)}
# Options before the verb, and the settings that they set for the verbs that have settings.
BEFORE = {"quiet": ("output.quiet", True), "verbose": ("output.verbose", True), "no_color": ("output.color", "never")}


class SettingOption(click.Option):
    """The option of a setting.  One that few need is in the help only with --help-all."""

    def __init__(self, *arguments: Any, is_common: bool, **attributes: Any) -> None:
        """`arguments`, `attributes`: as for click.Option."""
        super().__init__(*arguments, **attributes)
        self.is_common = is_common

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return what the help shows, None if it shows nothing."""
        return super().get_help_record(ctx) if self.is_common or ctx.meta.get(ALL) else None


def _show_all(ctx: click.Context, _param: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not ctx.resilient_parsing:
        ctx.meta[ALL] = True
        echo(ctx.get_help())
        ctx.exit()


_help_all = click.option(
    "--help-all", is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help="Show all options."
)


def settings(keys: Iterable[Key] = tuple(KEYS.values())) -> Decorator:
    """Return a decorator that adds the option of every key that has one, and `--set`, to a command.

    The command takes them as keyword arguments and passes those to `given`.
    """
    shown = [key for key in keys if key.flag]
    is_long = len(shown) > len(COMMON)
    options = [_option(key, is_common=not is_long or key.path in COMMON) for key in shown]
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
            shell_complete=completion.assignments,
        )
    )

    if is_long:
        options.append(_help_all)

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _option(key: Key, *, is_common: bool) -> Decorator:
    name = key.path.replace(".", "__")
    shown = f"  [{key.kind.show(key.default)}]" if key.default != "" else ""
    if key.kind is SWITCH:
        flags = [*SHORT.get(key.flag, ()), f"{key.flag}/--no-{key.flag.removeprefix('--')}"]
        return click.option(*flags, name, cls=SettingOption, is_common=is_common, default=None, help=key.help + shown)
    return click.option(
        key.flag, name, cls=SettingOption, is_common=is_common, metavar=key.kind.metavar, help=key.help + shown,
        shell_complete=completion.values_of(key),
    )  # fmt: skip


def given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that `config.load` takes, from a command's keyword arguments.

    Raises StallguardError (exit code 2) if a `--set` is not KEY=VALUE.
    """
    flags = {name.replace("__", "."): raw for name, raw in parameters.items() if "__" in name and name != "set__"}
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
