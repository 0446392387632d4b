"""`stallguard config`: the settings in force, the origin of each, and all that can be set."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import click
import msgspec

from stallguard import config, jsontext
from stallguard.cli import _complete
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.config import layers, schema
from stallguard.config.table import EVERYDAY, KEYS, Key, value_of
from stallguard.errors import CANNOT_RUN, USAGE, StallguardError, nearest

SCHEMA = 1


class Row(msgspec.Struct, frozen=True):
    """One setting."""

    value: Any  # durations in seconds, sizes in bytes
    shown: str  # as it would be written in stallguard.toml
    origin: str  # where the value comes from: a file, a variable, an option, or default
    default: Any


class Output(msgspec.Struct, frozen=True):
    """All settings in force in this directory, by name."""

    schema: int
    settings: dict[str, Row]


@click.group("config", cls=_complete.VerbGroup)
def command() -> None:
    """Show and change the settings, with their origins."""


def _loaded() -> config.Loaded:
    return config.load({}, os.environ, Path.cwd())


@command.command("show")
@click.option("--all", "everything", is_flag=True, help="Include the tuning of the detector.")
@prints_json("One JSON object with all settings.", "stallguard.cli.config:Output")
def show(everything: bool, as_json: bool) -> None:
    """Show each setting in force in this directory, with its value and origin."""
    loaded = _loaded()
    if as_json:
        rows = {}
        for key in KEYS.values():
            value = value_of(loaded.config, key.path)
            rows[key.path] = Row(value, key.kind.show(value), loaded.origins[key.path], key.default)
        echo(jsontext.readable(Output(SCHEMA, rows)))
        return
    for text in loaded.ignored:
        echo(f"stallguard: {text}", err=True)
    changed = {path for path, origin in loaded.origins.items() if origin != config.DEFAULT}
    wanted = [key for key in KEYS.values() if everything or key in EVERYDAY or key.path in changed]
    width = max(len(key.path) for key in wanted)
    for key in wanted:
        shown = key.kind.show(value_of(loaded.config, key.path))
        echo(f"{key.path:<{width}}  {shown:<16}  {loaded.origins[key.path]}".rstrip())


@command.command("path")
def path() -> None:
    """Print the files that settings are read from; later ones override earlier ones."""
    project = layers.project_file(Path.cwd())
    user = layers.user_file(os.environ)
    echo(f"{user}{'' if user.exists() else '  (not there)'}")
    echo(
        project or f"no {layers.OWN} here or above, nor [{layers.TABLE}] in a {layers.SHARED}",
        err=not project,
    )


@command.command("schema")
def print_schema() -> None:
    """Print the JSON schema of stallguard.toml, for editors."""
    echo(msgspec.json.format(msgspec.json.encode(schema.schema()), indent=2))


@command.command("get")
@click.argument("name", shell_complete=_complete.settings)
def get(name: str) -> None:
    """Print the value of the setting NAME in force in this directory."""
    key = _key(name)
    echo(key.kind.show(value_of(_loaded().config, key.path)))


@command.command("set")
@click.argument("name", shell_complete=_complete.settings)
@click.argument("value", shell_complete=_complete.value_of_setting)
@click.option("--user", is_flag=True, help="In your own settings file instead of the project's.")
def set_(name: str, value: str, user: bool) -> None:
    """Write the setting NAME into stallguard.toml of this project, or into your own settings file."""
    key = _key(name)
    config.load({key.path: value}, {}, Path.cwd(), {key.path: value})  # raises before the file is written
    target = layers.user_file(os.environ) if user else layers.project_file(Path.cwd()) or Path(layers.OWN)
    if target.name == layers.SHARED:
        raise StallguardError(
            f"the settings of this project are in {target}", cure=f"edit [{layers.TABLE}] there", code=USAGE
        )
    _write(target, edited(target.read_text() if target.exists() else "", key.path, _toml(key, value)))
    echo(f"{key.path} = {value} in {target}", err=True)


@command.command("init")
def init() -> None:
    """Write a stallguard.toml in this directory that shows the everyday settings and their defaults."""
    target = Path(layers.OWN)
    if target.exists():
        raise StallguardError(f"{target} exists already", cure="stallguard config set NAME VALUE", code=USAGE)
    sections: dict[str, list[str]] = {}
    for key in EVERYDAY:
        section, _, name = key.path.rpartition(".")
        shown = _toml(key, key.kind.show(key.default) if key.default != "" else "")
        sections.setdefault(section, []).append(f"# {key.help}\n# {name} = {shown}")
    blocks = (f"[{section}]\n" + "\n".join(lines) for section, lines in sections.items())
    _write(target, "\n\n".join(blocks) + "\n")
    echo(f"wrote {target}", err=True)


def _key(name: str) -> Key:
    if name not in KEYS:
        near = nearest(name, KEYS)
        raise StallguardError(
            f"there is no setting {name}", why=f"did you mean {near}?" if near else "",
            cure="stallguard config show --all lists them", code=USAGE,
        )  # fmt: skip
    return KEYS[name]


def _toml(key: Key, value: str) -> str:
    """Return a value in TOML: lists, numbers and booleans bare, all else as text."""
    if isinstance(key.default, tuple):
        return "[" + ", ".join(json.dumps(item.strip()) for item in value.split(",") if item.strip()) + "]"
    if isinstance(key.default, bool):
        return "true" if key.kind.read(value) else "false"
    return value if re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) and key.default != "" else json.dumps(value)


def edited(text: str, path: str, value: str) -> str:
    """Return the text of a settings file with one setting changed or added; the rest unchanged."""
    section, _, name = path.rpartition(".")
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.strip().startswith("[")]
    begin = next((number for number in heads if lines[number].strip() == f"[{section}]"), None)
    if begin is None:
        return "\n".join([*lines, *([""] if lines else []), f"[{section}]", f"{name} = {value}", ""])
    end = next((number for number in heads if number > begin), len(lines))
    place = next(
        (number for number in range(begin + 1, end) if re.match(rf"\s*{re.escape(name)}\s*=", lines[number])),
        None,
    )
    new = f"{name} = {value}"
    lines[begin + 1 : begin + 1] = [] if place is not None else [new]
    if place is not None:
        lines[place] = new
    return "\n".join([*lines, ""])


def _write(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    except OSError as error:
        raise StallguardError(
            f"cannot write {target}", why=error.strerror or str(error), code=CANNOT_RUN
        ) from error
