"""The manual page, generated from the help of the verbs and the option table.

Pure: commands in, roff for man(7) out.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from stallguard.config.table import EVERYDAY
from stallguard.core.text import wrapped

EXITS = (
    ("the script's own", "it ended by itself"),
    ("128 + n", "it ended by signal n"),
    ("124", "stallguard gave up on a stall"),
    ("125", "stallguard itself failed"),
    ("126, 127", "the command cannot be run, or was not found"),
    ("0, 1, 2, 3", "of the other verbs: yes; no; wrong usage; no such run"),
)
FILES = (
    (
        "stallguard.toml",
        "settings of a project, in the directory or the nearest one above, or [tool.stallguard] in pyproject.toml",
    ),
    ("~/.config/stallguard/config.toml", "your own settings"),
    (
        "~/Library/Application Support/stallguard, ~/.local/share/stallguard",
        "the runs; STALLGUARD_HOME moves them",
    ),
    ("~/Library/Logs/stallguard, ~/.local/state/stallguard/log", "messages of stallguard in overnight jobs"),
)
ENVIRONMENT = (
    ("STALLGUARD_SECTION__NAME", "a setting, such as STALLGUARD_STOP__GRACE=30s"),
    ("STALLGUARD_HOME", "where runs are kept"),
    ("NO_COLOR, FORCE_COLOR", "no colour, or colour although the output is not a terminal"),
)


def page(group: click.Group, version: str) -> str:
    """Return the manual page."""
    about = group.help or ""
    first_sentence = re.split(r"(?<=[.])\s", " ".join(about.split()))[0].rstrip(".")
    return "\n".join([
        f'.TH STALLGUARD 1 "" "stallguard {_plain(version)}" "User Commands"',
        ".SH NAME",
        rf"stallguard \- {_plain(first_sentence)}",
        ".SH SYNOPSIS",
        r".B stallguard",
        r"[\-\-debug] \fIverb\fR [options] [arguments]",
        ".SH DESCRIPTION",
        *_paragraphs(about),
        ".SH VERBS",
        *(line for name, command in verbs(group) for line in _verb(name, command)),
        ".SH SETTINGS",
        "Given by options, by the environment, in files, in that order.",
        *(line for key in EVERYDAY for line in _term(key.path, f"{key.help} Default: {key.kind.show(key.default)}.")),
        ".SH ENVIRONMENT",
        *(line for name, words in ENVIRONMENT for line in _term(name, words)),
        ".SH FILES",
        *(line for name, words in FILES for line in _term(name, words)),
        ".SH EXIT STATUS",
        *(line for name, words in EXITS for line in _term(name, words)),
        "",
    ])  # fmt: skip


def verbs(group: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield (name, command) of every verb that is not hidden, those of groups included."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from verbs(command, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


def _verb(name: str, command: click.Command) -> list[str]:
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    options = [option for option in command.params if name == "run" or "__" not in (option.name or "")]
    records = [record for option in options if (record := option.get_help_record(context))]
    borrowed = len(options) < len(command.params)
    return [
        f".SS {_plain(name)}",
        rf".B stallguard {_plain(name)}",
        _plain(usage),
        ".PP",
        *_paragraphs(command.help or ""),
        *(line for term, words in records for line in _term(term, words)),
        *([".PP", "The options of stallguard run are taken too."] if borrowed else []),
    ]


def _term(name: str, words: str) -> list[str]:
    return [".TP", rf".B {_plain(name)}", _plain(words)]


def _paragraphs(text: str) -> list[str]:
    """Return help text as roff; a paragraph that begins with a backspace is kept line by line, as click does."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        kept = block.startswith("\b")
        rows = [row for row in block.splitlines() if row.strip("\b ")]
        body = [_plain(row) if kept else _plain(row.strip()) for row in rows]
        lines += [".PP", *([".nf", *body, ".fi"] if kept else body)]
    return lines[1:]


def readable(roff: str, width: int) -> str:
    """Return the page as plain text of so many columns, for a pipe or a machine without man(1)."""
    lines: list[str] = []
    indent, kept = "", False
    for raw in roff.splitlines():
        request, _, rest = raw.partition(" ")
        text = re.sub(r"\\f[A-Z]|\\&", "", rest if request.startswith(".") else raw)
        text = text.replace(r"\-", "-").replace(r"\e", "\\")
        if request in (".SH", ".SS"):
            indent = ""
            lines += ["", text if request == ".SH" else f"  {text}"]
        elif request in (".PP", ".TP"):
            lines.append("")
            indent = "    "
        elif request in (".nf", ".fi"):
            kept = request == ".nf"
        elif request != ".TH":
            lines.append(f"    {text}" if kept or not indent else wrapped(f"{indent}{text}", width, ""))
    return "\n".join(lines).strip() + "\n"


def _plain(text: str) -> str:
    r"""Escape roff's special characters: backslashes, hyphens, and a dot or quote at the beginning of a line."""
    safe = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{safe}" if safe.startswith((".", "'")) else safe
