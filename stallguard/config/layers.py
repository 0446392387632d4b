"""Where settings come from: files found from a directory upwards, the environment, flags.

Each layer is a list of raw settings with their origin; config.load interprets them.  Only reads files.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stallguard.config.table import KEYS, TUNING_SECTION, section_names
from stallguard.errors import USAGE, StallguardError
from stallguard.user_folder import user_folder

OWN, SHARED = "stallguard.toml", "pyproject.toml"
TABLE = "tool.stallguard"
PREFIX = "STALLGUARD_"


class Setting(NamedTuple):
    """One raw value.  `path`: section.name as written; `origin`: for the user; `base`: the folder of its file."""

    path: str
    raw: Any
    origin: str
    base: Path | None = None


def user_file(env: Mapping[str, str]) -> Path:
    """Return the user's settings file: ~/.config/stallguard/config.toml, on macOS too, or under XDG_CONFIG_HOME."""
    return user_folder(env) / "config.toml"


def project_file(cwd: Path) -> Path | None:
    """Return the nearest stallguard.toml, or pyproject.toml with [tool.stallguard], from `cwd` upwards, or None."""
    for directory in (cwd, *cwd.parents):
        with contextlib.suppress(OSError):  # a directory that cannot be entered
            if (directory / OWN).is_file():
                return directory / OWN
            if (directory / SHARED).is_file() and TABLE.encode() in (directory / SHARED).read_bytes():
                return directory / SHARED
    return None


def text_of(path: Path) -> str:
    """Return the text of a settings file; "" if there is none.

    Raises NotText if it is not UTF-8, StallguardError (exit code 2) if it cannot be read.
    """
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _unreadable(path, f"{error.strerror}", "make it readable, or remove it") from error
    except UnicodeDecodeError as error:
        raise _unreadable(
            path, f"TOML is UTF-8, and the file is not: {error}", "save it as UTF-8", NotText
        ) from error


def settings_of(text: str, path: Path) -> list[Setting]:
    """Return the settings in the text of the file `path`.  Raises StallguardError (exit code 2) if it is not TOML."""
    if not text:
        return []
    import tomllib  # imported only if there is a file: the start of the training waits for it

    try:
        table = tomllib.loads(text)
        own = table.get("tool", {}).get("stallguard", {}) if path.name == SHARED else table
        return [Setting(key, raw, f"{path}{_at(text, key)}", path.parent) for key, raw in _flat(own, "")]
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, or a number with thousands of digits
        raise _unreadable(path, f"it is not TOML: {error}", "https://toml.io describes TOML") from error


def rows_in(path: Path, text: str | None = None) -> list[Setting]:
    """Return the rows in the file `path`, which `detector.table` names.  `text`: its text, if known.

    Raises StallguardError (exit code 2) if it is not there or is not TOML.
    """
    if text is None and not path.is_file():
        why = "it is a folder" if path.is_dir() else "there is no such file"
        raise _unreadable(path, why, "correct or remove the setting detector.table")
    found = settings_of(text_of(path) if text is None else text, path)
    return [one._replace(path=f"{TUNING_SECTION}.{one.path}") for one in found]


class NotText(StallguardError):
    """A settings file that is not UTF-8."""


def _unreadable(
    path: Path, why: str, cure: str, kind: type[StallguardError] = StallguardError
) -> StallguardError:
    return kind(f"cannot read the settings in {path}", why=why, cure=cure, code=USAGE)


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and (value or path in ("", *section_names())):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else name)
    else:
        yield path, value


def _at(text: str, path: str) -> str:
    """Return `:line` of the setting in the file, or nothing if it is not found."""
    header = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if match := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            header = match[1].removeprefix(TABLE).strip(".")
        elif match := re.match(r"\s*([\w.\-]+)\s*=", line):
            written = f"{header}.{match[1]}".strip(".")
            if path == written or path.startswith(f"{written}."):
                return f":{number}"
    return ""


def from_environment(env: Mapping[str, str]) -> list[Setting]:
    """Return the settings in STALLGUARD_SECTION__NAME variables; those without a double underscore are not settings."""
    names = sorted(name for name in env if name.startswith(PREFIX) and "__" in name)
    return [
        Setting(name.removeprefix(PREFIX).lower().replace("__", "."), env[name], f"environment {name}")
        for name in names
    ]


def from_flags(flags: Mapping[str, Any], typed: Mapping[str, str]) -> list[Setting]:
    """Return the settings given on the command line, by path; None: not given.

    `typed`: the options of a verb that has others for some of them, by path.
    """
    given = []
    for path, raw in flags.items():
        key = KEYS.get(path)
        flag = key.flag if key and key.flag else f"--set {path}"
        if raw is not None:
            given.append(Setting(path, raw, f"option {typed.get(path, flag)}"))
    return given
