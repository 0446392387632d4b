"""The documents name every verb, option and setting, and show the lifecycle: generated between markers.

`--write` renews the generated parts; without it, the exit code is 1 if one is out of step.  It is also 1 if a link
leads to no file or no heading.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import links
from json_reference import Reference

from stallguard.cli.verbs import cli
from stallguard.config import table
from stallguard.config.table import KEYS
from stallguard.core import lifecycle
from stallguard.core.diagnosis import known_problems

ROOT = Path(__file__).resolve().parents[2]
OF_SETTINGS = "and those of the [settings](configuration.md#settings)"
FEW = 3  # options of settings that are listed with their verb; if there are more, only the table of settings has them


def verbs(group: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield (name, command) of every verb, those of groups included."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from verbs(command, f"{above}{name} ")
        elif command is not None and not command.hidden:
            yield f"{above}{name}", command


def options(command: click.Command) -> str:
    """Return a verb's own options; those that are settings have their table."""
    shown = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    of_settings = [p for p in shown if (p.name or "").replace("__", ".") in KEYS]
    words = [f"`{', '.join(p.opts)}`" for p in shown if p not in of_settings or len(of_settings) <= FEW]
    return " ".join(words + ([OF_SETTINGS] if len(of_settings) > FEW else []))


def arguments(command: click.Command) -> str:
    """Return a verb's arguments as its usage shows them."""
    context = click.Context(command)
    return " ".join(p.make_metavar(context) for p in command.params if isinstance(p, click.Argument))


def verb_table() -> str:
    """Return the verbs as a Markdown table."""
    rows = [
        f"| `{f'{name} {arguments(command)}'.strip().replace('|', chr(92) + '|')}` "
        f"| {command.get_short_help_str(200)} | {options(command)} |"
        for name, command in verbs(cli)
    ]
    return "\n".join(["| verb | what it does | options |", "|---|---|---|", *rows])


def diagram() -> str:
    """Return the lifecycle as a Mermaid block, and the moves that it leaves out."""
    moves = ", ".join(f"*{trigger}* to {target}" for trigger, target in sorted(lifecycle.common_moves().items()))
    states = ", ".join(state for state in lifecycle.MEANING if state in lifecycle.ALIVE - {lifecycle.UNGUARDED})
    return f"```mermaid\n{lifecycle.diagram()}\n```\n\nNot drawn: {moves}, from each of {states}."


def json_reference() -> str:
    """Return the reference of what `--json` prints and of the files of a run."""
    return Reference().text(list(verbs(cli)))


def public_reports() -> str:
    """Return the table of public reports."""
    rows = [f"| [{row.key}]({row.address}) | {row.what} | {row.cure} |" for row in known_problems.table()]
    return "\n".join(["| report | what it describes | what helped there |", "|---|---|---|", *rows])


PARTS = [
    ("docs/cli.md", "verbs", verb_table),
    ("docs/configuration.md", "keys", table.markdown_table),
    ("ARCHITECTURE.md", "lifecycle", diagram),
    ("docs/journal.md", "json", json_reference),
    ("docs/known-problems.md", "known", public_reports),
]


def documents() -> list[Path]:
    """Return the project's Markdown files, new ones included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in (ROOT / name for name in sorted(set(listed))) if path.is_file()]


def renewed(text: str, mark: str, body: str) -> str:
    """Return `text` with `body` between the markers.  Raises ValueError if it has none."""
    pattern = rf"(<!-- {mark}:begin -->\n).*?(<!-- {mark}:end -->)"
    new, found = re.subn(pattern, lambda m: f"{m[1]}{body}\n{m[2]}", text, count=1, flags=re.DOTALL)
    if not found:
        raise ValueError(f"no markers for {mark}")
    return new


def main(*, write: bool) -> int:
    """Compare, or write; return the exit code."""
    stale = []
    for name, mark, make in PARTS:
        path = ROOT / name
        old = path.read_text("utf-8")
        new = renewed(old, mark, make())
        if new != old:
            stale.append(f"{name}: {mark}")
        if write:
            path.write_text(new, "utf-8")
    for words in stale:
        print(f"{words} {'renewed' if write else 'is out of step: scripts/checks/docs.py --write renews it'}")
    broken = [words for path in documents() for words in links.broken(path, ROOT)]
    for words in broken:
        print(words)
    return 1 if broken or (stale and not write) else 0


if __name__ == "__main__":
    sys.exit(main(write="--write" in sys.argv[1:]))
