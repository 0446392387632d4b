"""Shell completion: verbs, runs, jobs, settings and their values, files.

Click's own mechanism: an option or an argument has a function that offers items, and the shell's code, which
`stallguard completion` prints, calls `stallguard` with a variable set.  Two things are added to it here.  bash splits
words at `=`, so `--set policy.on_stall=re` arrives in pieces, which are joined again (`Bash`).  And an error, such as a
wrong verb, must not be printed into the line that the user is typing (`answer`).

Functions import what they need: a user who completes a word waits for all imports.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
)

from stallguard.cli._console import echo
from stallguard.cli._errors import COMPLETION

if TYPE_CHECKING:
    from stallguard.config.table import Key
    from stallguard.storage.paths import RunDir

DESCRIBED = 50  # runs whose command is shown beside their id, the newest

Items = list["CompletionItem[str]"]
Completer = Callable[[click.Context, click.Parameter, str], Items]
SHELLS = ("bash", "zsh", "fish")


def begun(incomplete: str, words: Iterable[tuple[str, str]]) -> Items:
    """Return the (word, help) pairs whose word begins with `incomplete`."""
    return [CompletionItem(word, help=text or None) for word, text in words if word.startswith(incomplete)]


# ---- what can be offered -----------------------------------------------------------------------------------------


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Offer files."""
    return [CompletionItem(incomplete, type="file")]


def runs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Offer the ids of runs, the newest first: those that begin with the word, else those that contain it."""
    from stallguard.storage.paths import list_runs

    known = list_runs()[::-1]
    found = [run for run in known if run.id.startswith(incomplete)] or [run for run in known if incomplete in run.id]
    shown = [run for run in found if not run.is_trial] or found
    return [
        CompletionItem(run.id, help=_command(run) if place < DESCRIBED else None) for place, run in enumerate(shown)
    ]


def runs_and_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer runs, and files if none fits."""
    return runs(ctx, param, incomplete) or files(ctx, param, incomplete)


def living(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the runs that are alive, or whose training is."""
    from stallguard.launch import earlier_run
    from stallguard.storage import run_files
    from stallguard.storage.paths import find_run

    def lives(run: RunDir) -> bool:
        unended = run_files.outcome(run) is None
        return unended and (run_files.state(run) == "running" or earlier_run.find_orphan(run) is not None)

    return [item for item in runs(ctx, param, incomplete) if lives(find_run(item.value))]


def _command(run: RunDir) -> str | None:
    import json

    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        return " ".join(json.loads(run.asked.read_bytes())["command"]) or None
    return None


def jobs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Offer the names of the jobs that are installed."""
    from stallguard.agent.service_manager import own_system, places

    return begun(incomplete, ((name, "") for name in places(own_system(), os.environ).names()))


def learned(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Offer the names of what was learned."""
    from stallguard.storage import learned_store

    kept = {one.name: f"{one.what}: {' '.join(one.key.command)}" for one in learned_store.everything()}
    return begun(incomplete, kept.items())


def variables(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Offer the names of environment variables."""
    return begun(incomplete, ((name, "") for name in sorted(os.environ) if not name.startswith("COMP_")))


def words(*offered: str) -> Completer:
    """Return a function that offers these words."""
    return lambda _ctx, _param, incomplete: begun(incomplete, ((word, "") for word in offered))


# ---- settings ----------------------------------------------------------------------------------------------------


def settings(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Offer the names of settings."""
    from stallguard.config.table import KEYS

    return begun(incomplete, ((key.path, key.help) for key in KEYS.values()))


def assignments(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer KEY=, and after it the values that the setting can have."""
    from stallguard.config.table import KEYS

    name, equals, value = incomplete.partition("=")
    if equals:
        offered = values_of(KEYS[name])(ctx, param, value) if name in KEYS else []
        return [CompletionItem(f"{name}={one.value}", type=one.type, help=one.help) for one in offered]
    return begun(incomplete, ((f"{key.path}=", key.help) for key in KEYS.values()))


def value_of_setting(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the values of the setting in the word before."""
    from stallguard.config.table import KEYS

    key = KEYS.get(ctx.params.get("name") or "")
    return values_of(key)(ctx, param, incomplete) if key else []


def values_of(key: Key) -> Completer:
    """Return the function that offers the values of a setting; none if it takes any number or text."""
    from stallguard.config.kinds import SWITCH

    own = {"run.python": files, "run.resume": _resumes, "policy.batch_env": variables}
    if key.path in own:
        return own[key.path]
    if key.kind is SWITCH:
        return words("on", "off")
    schema = key.kind.schema
    if "enum" in schema:
        return words(*schema["enum"])
    members = schema.get("items", {})
    if "enum" in members:
        return _listed(words(*members["enum"]))
    return _listed(_paired(members["pattern"])) if "pattern" in members else words()


def _resumes(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    return [*words("last", "no")(ctx, param, incomplete), *runs(ctx, param, incomplete)]


def _listed(member: Completer) -> Completer:
    """Return a function that offers the next member of a list with commas."""

    def offer(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{one.value}") for one in member(ctx, param, last)]

    return offer


def _paired(pattern: str) -> Completer:
    """Return a function that offers one=other, by a pattern of the form ^(one|...)=(other|...)$."""
    lefts, rights = (found.split("|") for found in re.findall(r"\(([^)]*)\)", pattern))

    def offer(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        left, equals, right = incomplete.partition("=")
        if not equals:
            return words(*(f"{one}=" for one in lefts))(ctx, param, left)
        return [CompletionItem(f"{left}={one.value}") for one in words(*rights)(ctx, param, right)]

    return offer


# ---- the shells --------------------------------------------------------------------------------------------------

# Click's function; in addition, no space follows a word that ends in `=`.
NO_SPACE = """
%(complete_func)s_whole() {
    %(complete_func)s "$@"
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace
    fi
}

complete -o nosort -F %(complete_func)s_whole %(prog_name)s
"""


class Bash(BashComplete):
    """bash, which treats `=` as a separate word and expects only the part after it."""

    def source(self) -> str:
        """Return the code for bash."""
        return f"{super().source()}{NO_SPACE % self.source_vars()}"

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the completed one, and that one, as they were typed."""
        pieces, incomplete = super().get_completion_args()
        whole: list[str] = []
        goes_on = False
        for piece in (*pieces, incomplete):  # a piece `=` belongs to the piece before it and the one after it
            if whole and (piece == "=" or goes_on):
                whole[-1] += piece
            else:
                whole.append(piece)
            goes_on = piece == "="
        return whole[:-1], whole[-1]

    def get_completions(self, args: list[str], incomplete: str) -> Items:
        """Return the completions of the last piece."""
        items = super().get_completions(args, incomplete)
        before = "" if incomplete.startswith("-") else incomplete[: incomplete.rfind("=") + 1]
        return [_with(item, item.value.removeprefix(before)) for item in items]


class _InOneWord(ShellComplete):
    """A shell that replaces the whole word, that is `--color=al`, of which click offers only the value."""

    def get_completions(self, args: list[str], incomplete: str) -> Items:
        """Return the completions of the word."""
        items = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        before = f"{option}=" if equals and option.startswith("-") else ""
        return [_with(item, before + item.value) for item in items]


class Zsh(_InOneWord, ZshComplete):
    """zsh."""


class Fish(_InOneWord, FishComplete):
    """fish."""


def _with(item: CompletionItem[str], value: str) -> CompletionItem[str]:
    from stallguard.report.sanitize import plain

    text = plain(" ".join(item.help.split())) if item.help else None
    return CompletionItem(plain(value), type=item.type, help=text)


for _shell in (Bash, Zsh, Fish):
    add_completion_class(_shell)


def answer(command: click.Command, prog_name: str) -> int:
    """Print the completions; print nothing after an error.  Return the exit code."""
    with Path(os.devnull).open("w") as silence, contextlib.redirect_stderr(silence):
        try:
            command.main(args=[], prog_name=prog_name, complete_var=COMPLETION)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1
        except Exception:  # noqa: BLE001 - an error must not be printed into the line
            return 1
    return 0


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, /, shell: str) -> None:
    """Print the code that makes SHELL complete stallguard's words.

    \b
    Examples:
      eval "$(stallguard completion bash)"      # in ~/.bashrc
      eval "$(stallguard completion zsh)"       # in ~/.zshrc, after compinit
      stallguard completion fish > ~/.config/fish/completions/stallguard.fish
    """  # noqa: D301 - click wants the real backspace
    source = get_completion_class(shell)
    assert source is not None  # noqa: S101 - click knows the three
    echo(source(ctx.find_root().command, {}, "stallguard", COMPLETION).source())
