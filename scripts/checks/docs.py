"""The documents name every verb, option and setting, and show the lifecycle as it is: generated between markers.

`--write` renews the generated parts; without it, exit code 1 says that one is out of step.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from stallguard.cli import cli
from stallguard.config import schema
from stallguard.config.table import EVERYDAY, KEYS
from stallguard.core import lifecycle

ROOT = Path(__file__).resolve().parents[2]
FEW = 3  # options of settings that are told with their verb; where there are more, their table tells them


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
    told = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    of_settings = [p for p in told if (p.name or "").replace("__", ".") in KEYS]
    words = [f"`{', '.join(p.opts)}`" for p in told if p not in of_settings or len(of_settings) <= FEW]
    return " ".join(words + (["and those of the settings below"] if len(of_settings) > FEW else []))


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


def key_tables() -> str:
    """Return the everyday settings, and folded away those that only tuning needs."""
    everyday = {key.path for key in EVERYDAY}
    rows = [
        f"| `{key.path}` | {key.kind.show(key.default)} | {key.help} |"
        for key in KEYS.values()
        if key.path not in everyday
    ]
    tuning = [
        "<details><summary>Tuning the detector</summary>",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    return "\n".join([schema.table(), "", *tuning, *rows, "", "</details>"])


def diagram() -> str:
    """Return the lifecycle as a Mermaid block."""
    return f"```mermaid\n{lifecycle.diagram()}\n```"


PARTS = [
    ("README.md", "verbs", verb_table),
    ("README.md", "keys", key_tables),
    ("ARCHITECTURE.md", "lifecycle", diagram),
]


def renewed(text: str, mark: str, body: str) -> str:
    """Return `text` with `body` between the markers.  Raises ValueError where it has none."""
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
    return 1 if stale and not write else 0


if __name__ == "__main__":
    sys.exit(main(write="--write" in sys.argv[1:]))
