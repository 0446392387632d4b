"""The tuning table as the configuration sees it: its rows by path, a file that replaces some, and one to start from.

The table is core.limits.  A row can stand in that file, and in every place of a setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from stallguard.config.kinds import COUNT, DURATION, NUMBER, POSITIVE, SHARE, SIZE, Kind, at_least
from stallguard.config.table import KEYS, Key
from stallguard.core.limits import DetectorLimits, PhaseLimits, PhaseTable, Row, rows_of

SECTION, PHASES = "detector", "detector.rows"
FILE = "detector.table"
_KINDS = {"s": DURATION, "share": SHARE, "bytes/s": SIZE, "count": COUNT}


class Group(NamedTuple):
    """Rows that stand together in a file: those of one phase, or a single one.  `about`: meaning and reason."""

    name: str
    about: str
    keys: tuple[Key, ...]


def _kind(row: Row) -> Kind:
    if row.least:
        return POSITIVE if row.unit == "count" and row.least == 1 else at_least(row.least)
    return _KINDS.get(row.unit, NUMBER)


def _about(row: Row) -> str:
    return f"{row.meaning.rstrip('.')}{'; ' if row.reason else ''}{row.reason}."


@cache
def groups() -> tuple[Group, ...]:
    """Return the whole table, in its order."""
    single = [
        Group(name, _about(row), (Key(f"{SECTION}.{name}", _kind(row), row.meaning, live=True),))
        for name, row in rows_of(DetectorLimits).items()
    ]
    fields = rows_of(PhaseLimits)
    phases = [
        Group(
            f"rows.{phase}", _about(about),
            tuple(
                Key(f"{PHASES}.{phase}.{name}", _kind(row), f"In {about.meaning}: {row.meaning}.", live=True)
                for name, row in fields.items()
            ),
        )
        for phase, about in rows_of(PhaseTable).items()
    ]  # fmt: skip
    return (*single, *phases)


@cache
def rows() -> Mapping[str, Key]:
    """Return the rows of the table by path."""
    return {key.path: key for group in groups() for key in group.keys}


def every() -> Mapping[str, Key]:
    """Return what can be set, by path: the settings, and the rows of the table."""
    return {**KEYS, **rows()}


def key_of(path: str) -> Key | None:
    """Return the setting or the row at `path`; None if there is none."""
    return KEYS.get(path) or rows().get(path)


@cache
def sections() -> tuple[str, ...]:
    """Return every name that is not a setting but holds some: run, detector, detector.rows, ..."""
    parents = {path.rsplit(".", depth)[0] for path in every() for depth in range(1, path.count(".") + 1)}
    return tuple(sorted(parents))


def written(toml: Callable[[Key], str]) -> str:
    """Return a file for `detector.table` in which every row is a remark with its default.  `toml`: a value in TOML."""
    lines = [
        "# Rows of the tuning table of stallguard's detector; a row can change in any version.",
        f'# [{SECTION}] table = "THIS FILE" in stallguard.toml puts in force what is no remark here.',
    ]
    for group in groups():
        lines += ["", f"## {group.about}"]
        if len(group.keys) == 1:
            lines.append(f"# {group.name} = {toml(group.keys[0])}")
        else:
            cells = ", ".join(f"{key.path.rpartition('.')[2]} = {toml(key)}" for key in group.keys)
            lines.append(f"# {group.name} = {{ {cells} }}")
    return "\n".join(lines) + "\n"


def file_of(named: str, base: Path) -> Path:
    """Return the path of the table that the setting `detector.table` names.  `base`: where a relative one begins."""
    return base / Path(named).expanduser()
