"""docs/journal.md: each field of what `--json` prints, made from the types that are printed.

A field's meaning is a comment behind it or directly above it, or stands in the docstring of its class ("`name`:
meaning"), or, for names that mean the same everywhere and for words that a comment beside the code need not say, in
json_meanings.py.  A field without a meaning is an error, and so is a meaning without a field.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from itertools import takewhile

import click
import msgspec
from json_meanings import COMMON, MEANINGS, TITLES

from stallguard.cli._console import JsonOption
from stallguard.core.actions import Announce, AnyAction
from stallguard.core.events import AnyEvent
from stallguard.report import narrative

PLAIN = {
    str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null", typing.Any: "anything",
}  # fmt: skip
FILES = {
    "run.json": "stallguard.storage.run_files:RunRequest",
    "outcome.json": "stallguard.storage.run_files:Outcome",
    "notifications.json": "stallguard.storage.run_files:Notified",
    "incidents/N/manifest.json": "stallguard.collectors.evidence_bundle:Manifest",
}
JOURNAL = "stallguard.storage.journal:JournalLine"
TOO_PLAIN = ("Output", "Row", "Result", "Item", "Line")  # names that say too little
ANCHOR = re.compile(r"[^a-z0-9 _-]")


class Reference:
    """Writes the tables, each type once."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._types: dict[type[msgspec.Struct], str] = {}  # with their titles
        self._used: set[str] = set()
        self.missing: list[str] = []

    def text(self, verbs: list[tuple[str, click.Command]]) -> str:
        """Return the whole reference.  Raises ValueError if a verb or a field lacks something."""
        lines = ["## Verbs", "", "| verb | schema | prints |", "|---|---|---|"]
        lines += [self._verb(name, outputs(name, command)) for name, command in verbs if has_json(command)]
        lines += ["", "## Files of a run", "", "| file | schema | holds |", "|---|---|---|"]
        lines += [self._verb(name, [load(path)]) for name, path in FILES.items()]
        lines += ["", "## The journal", "", *self._journal()]
        body = list(self._tables())
        unused = set(MEANINGS) - self._used
        if self.missing or unused:
            raise ValueError(
                f"fields without a meaning (write a comment behind the field): {', '.join(self.missing) or 'none'}; "
                f"meanings in json_meanings.py of no field: {', '.join(sorted(unused)) or 'none'}"
            )
        return "\n".join([*lines, "", "## Fields", "", *body]).rstrip()

    def _verb(self, name: str, found: list[type[msgspec.Struct]]) -> str:
        numbers = {str(schema_of(one)) for one in found}
        return f"| `{name}` | {', '.join(sorted(numbers))} | {' or '.join(self._link(one) for one in found)} |"

    def _journal(self) -> Iterator[str]:
        line = self._link(load(JOURNAL))
        yield (
            "`journal.jsonl`, its older parts `journal.N.jsonl.gz`, and `logs --json`: one object a line, with the "
            f"fields of a {line} and those of its event. A field that has its usual value is left out."
        )
        yield from ["", "Lines for a reader have a `message`, made of their `facts`:", ""]
        yield from ["| event | level | message |", "|---|---|---|"]
        for event, message in sorted(narrative.MESSAGES.items()):
            text = escaped(AGREEING.sub(r"{\1} \2", message.text))
            yield f"| `{event}` | {message.level} | {text} |"
        for title, union in (("what the supervisor saw", AnyEvent), ("what it did", AnyAction)):
            members = sorted(typing.get_args(union), key=lambda one: str(tag(one)))
            yield from ["", f"| event: {title} | means | fields |", "|---|---|---|"]
            yield from (
                f"| `{tag(one)}` | {summary(one)} | {self._link(one)} |" for one in members if one is not Announce
            )

    def _link(self, kind: type[msgspec.Struct]) -> str:
        title = self._types.get(kind)
        if title is None:
            name = kind.__name__
            several = name in TOO_PLAIN or name in self._types.values()
            long = f"{name} of {room(kind).replace('_', '-')}" if several else name
            title = self._types[kind] = TITLES.get(f"{room(kind)}.{name}", long)
        return f"[{title}](#{ANCHOR.sub('', title.lower()).replace(' ', '-')})"

    def _tables(self) -> Iterator[str]:
        done: set[type] = set()
        while rest := [kind for kind in self._types if kind not in done]:
            for kind in rest:
                done.add(kind)
                yield from self._table(kind)

    def _table(self, kind: type[msgspec.Struct]) -> Iterator[str]:
        yield from [f"### {self._types[kind]}", "", summary(kind), "", "| field | is | meaning |", "|---|---|---|"]
        if (name := tag(kind)) is not None:
            yield f"| `{kind.__struct_config__.tag_field}` | text | `{name}` |"
        hints, known = typing.get_type_hints(kind), written(kind)
        for field in msgspec.structs.fields(kind):
            shown = self._type(hints[field.name])
            yield f"| `{field.encode_name}` | {shown} | {self._meaning(kind, field.name, known)} |"
        yield ""

    def _meaning(self, kind: type, name: str, known: dict[str, str]) -> str:
        key = f"{room(kind)}.{kind.__name__}.{name}"
        if key in MEANINGS:
            self._used.add(key)
        found = MEANINGS.get(key) or known.get(name) or COMMON.get(name, "")
        if not found:
            self.missing.append(key)
        return escaped(found)

    def _type(self, hint: object) -> str:
        """Return a type in words, with links to those that have a table."""
        if hint in PLAIN:
            return PLAIN[hint]
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self._link(hint)
        origin, inner = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            given = [one for one in inner if one is not msgspec.UnsetType]
            words = " or ".join(dict.fromkeys(self._type(one) for one in given))
            return f"{words}, or not there" if len(given) < len(inner) else words
        if origin is dict:
            return f"object of {self._type(inner[1])}"
        if origin in (list, tuple, types.GenericAlias) or getattr(origin, "__name__", "") == "Sequence":
            members = dict.fromkeys(self._type(one) for one in inner if one is not ...)
            return f"list of {' and '.join(members)}"
        if hint is msgspec.Raw:
            return "object"
        name = getattr(hint, "__name__", str(hint))
        return {"datetime": "text"}.get(name, name)


def has_json(command: click.Command) -> bool:
    """Return whether a verb has `--json`."""
    return any("--json" in one.opts for one in command.params)


def outputs(name: str, command: click.Command) -> list[type[msgspec.Struct]]:
    """Return the types that a verb prints.  Raises ValueError if it does not name them."""
    option = next(one for one in command.params if "--json" in one.opts)
    if not isinstance(option, JsonOption):
        raise ValueError(f"{name} --json does not say what it prints: make it with _json.prints_json")  # noqa: TRY004
    return [load(path) for path in option.outputs]


def load(path: str) -> type[msgspec.Struct]:
    """Return the type that "module:Name" names."""
    module, _, name = path.partition(":")
    found: type[msgspec.Struct] = getattr(importlib.import_module(module), name)
    return found


def schema_of(kind: type[msgspec.Struct]) -> int:
    """Return the number of the schema: SCHEMA of the module of the type, or that of the type in its SCHEMAS."""
    known = vars(importlib.import_module(kind.__module__))
    number: int = known.get("SCHEMAS", {}).get(kind.__name__) or known["SCHEMA"]
    return number


def room(kind: type) -> str:
    """Return the name of the module of a type."""
    return kind.__module__.rpartition(".")[2]


def tag(kind: type[msgspec.Struct]) -> str | None:
    """Return the name by which a type is known among others; None if it stands alone."""
    found = kind.__struct_config__.tag
    return None if found is None else str(found)


def summary(kind: type) -> str:
    """Return what a type is: the first paragraph of its docstring, without what it says of single fields."""
    text = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    return escaped(re.split(r"(?<=[.)]) +(?=`\w+`[^.]*?(?::| is | are | why ))", text)[0])


# A number with the noun that agrees with it (narrative.sentence): {batches:batch|batches}.
AGREEING = re.compile(r"\{(\w+):\w+\|(\w+)\}")


def escaped(text: str) -> str:
    """Return text that can stand in a table."""
    plain = re.sub(r"\bNone\b", "null", text)
    return " ".join(plain.replace("|", "\\|").replace("<", "&lt;").split())


def written(kind: type) -> dict[str, str]:
    """Return the meanings that the code itself has: comments behind fields, and the docstring."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            found |= _comments(base)
            for names, text in re.findall(r"((?:`\w+`(?:, )?)+): ((?:[^;.]|\.(?=\S))+)", inspect.getdoc(base) or ""):
                for name in re.findall(r"`(\w+)`", names):
                    found[name] = found.get(name) or text
    return found


def _comments(kind: type) -> dict[str, str]:
    """Return the comment of each field that has one: behind its last line, else directly above it."""
    source = textwrap.dedent(inspect.getsource(kind))
    lines, tree = source.splitlines(), ast.parse(source).body[0]
    found = {}
    for node in getattr(tree, "body", ()):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            behind = re.search(r"  # (?!noqa|fmt:|type:)(.*)", lines[(node.end_lineno or 1) - 1])
            above = list(takewhile(re.compile(r" *# ").match, reversed(lines[: node.lineno - 1])))
            sentence = " ".join(line.strip().lstrip("# ") for line in reversed(above)).removesuffix(".")
            # In the table a sentence is a phrase; an acronym or a name keeps its capitals.
            phrase = re.sub(r"^[A-Z](?=[a-z ])", lambda first: first[0].lower(), sentence)
            found[node.target.id] = behind[1] if behind else phrase
    return found
