"""`stallguard config`: the settings in force, the origin of each, and all that can be set."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import click
import msgspec

from stallguard import config, jsontext
from stallguard.cli import completion
from stallguard.cli._console import echo, note, prints_json
from stallguard.cli.verbs import VerbGroup
from stallguard.config import table
from stallguard.config.table import KEYS, Key, value_of
from stallguard.errors import CANNOT_RUN, UNREADABLE, USAGE, StallguardError, nearest

SCHEMA = 1
TUNING = "tuning.toml"


class ShownSetting(msgspec.Struct, frozen=True):
    """One setting."""

    value: Any  # durations in seconds, sizes in bytes
    shown: str  # as it would be written in stallguard.toml
    origin: str  # where the value comes from: a file, a variable, an option, or default
    default: Any


class ShownSettings(msgspec.Struct, frozen=True):
    """All settings in force in this directory, by name, and the rows of the tuning table that are set."""

    schema: int
    settings: dict[str, ShownSetting]


@click.group("config", cls=VerbGroup, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Show and change the settings, with their origins; alone it does what `config show` does."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(show)


def _loaded() -> config.Loaded:
    return config.load({}, os.environ, Path.cwd())


@command.command("show")
@click.option("--all", "everything", is_flag=True, help="Include the tuning table of the detector.")
@prints_json("One JSON object with all settings.", "stallguard.cli.config:ShownSettings")
def show(everything: bool, as_json: bool) -> None:
    """Show each setting in force in this directory, with its value and origin."""
    loaded = _loaded()
    if as_json:
        rows = {}
        for key in _shown(loaded, everything):
            value = value_of(loaded.config, key.path)
            origin = loaded.origins.get(key.path, config.DEFAULT)
            rows[key.path] = ShownSetting(value, key.kind.show(value), origin, key.default)
        echo(jsontext.readable(ShownSettings(SCHEMA, rows)))
        return
    for text in loaded.ignored:
        note(f"stallguard: {text}")
    wanted = _shown(loaded, everything)
    width = max(len(key.path) for key in wanted)
    for key in wanted:
        shown = key.kind.show(value_of(loaded.config, key.path))
        echo(f"{key.path:<{width}}  {shown:<16}  {loaded.origins.get(key.path, config.DEFAULT)}".rstrip())


def _shown(loaded: config.Loaded, everything: bool) -> list[Key]:
    """Return all settings, and the rows of the tuning table that are set; `everything`: all its rows."""
    return [key for path, key in table.all_keys().items() if everything or path in loaded.origins]


@command.command("path")
def path() -> None:
    """Print the files that settings are read from; later ones override earlier ones."""
    project = config.project_file(Path.cwd())
    user = config.user_file(os.environ)
    echo(f"{user}{'' if user.exists() else '  (not there)'}")
    echo(project or f"no {config.OWN} here or above, nor [{config.TABLE}] in a {config.SHARED}", err=not project)


@command.command("schema")
def print_schema() -> None:
    """Print the JSON schema of stallguard.toml, for editors."""
    echo(msgspec.json.format(msgspec.json.encode(table.json_schema()), indent=2))


@command.command("get")
@click.argument("name", shell_complete=completion.settings)
def get(name: str) -> None:
    """Print the value of the setting NAME in force in this directory."""
    key = _key(name)
    echo(key.kind.show(value_of(_loaded().config, key.path)))


# -1 is a value, which the setting refuses, and no unknown option.
@command.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("name", shell_complete=completion.settings)
@click.argument("value", shell_complete=completion.value_of_setting)
@click.option("--user", is_flag=True, help="In your own settings file instead of the project's.")
def set_(name: str, value: str, user: bool) -> None:
    """Write the setting NAME into stallguard.toml of this project, or into your own settings file."""
    key = _key(name)
    wanted = config.typed_value(config.Setting(key.path, value, ""))
    target = config.user_file(os.environ) if user else config.project_file(Path.cwd()) or Path.cwd() / config.OWN
    if target.name == config.SHARED:
        raise StallguardError(
            f"the settings of this project are in {target}", cure=f"edit [{config.TABLE}] there", code=USAGE
        )
    text = edited(config.text_of(target), key.path, _toml(key, wanted, value))
    _refuse_damage(text, target, key, wanted)
    lasting = {name: value for name, value in os.environ.items() if not name.startswith(config.PREFIX)}
    config.load({}, lasting, Path.cwd(), texts={target: text})  # raises if two settings contradict each other
    _write(target, text)
    note(f"{key.path} = {value} in {target}")


@command.command("init")
@click.option("--tuning", is_flag=True, help=f"Instead {TUNING}, for experts: the detector's tuning table.")
def init(tuning: bool) -> None:
    """Write a stallguard.toml in this directory that shows the settings and their defaults."""
    target = Path(TUNING if tuning else config.OWN)
    if target.exists():
        cure = "edit it, or remove it" if tuning else "stallguard config set NAME VALUE"
        raise StallguardError(f"{target} exists already", cure=cure, code=USAGE)
    _write(target, table.tuning_file(lambda key: _toml(key, key.default)) if tuning else _all_settings())
    note(f"wrote {target}")


def _all_settings() -> str:
    """Return a settings file in which every setting is a remark with its default."""
    sections: dict[str, list[str]] = {}
    for key in KEYS.values():
        section, _, name = key.path.rpartition(".")
        # Two signs before a sentence: an editor that takes one away from each line leaves a comment.
        lines = f"## {key.help}\n# {name} = {_toml(key, key.default)}"
        sections.setdefault(section, []).append(lines)
    blocks = (f"[{section}]\n" + "\n".join(lines) for section, lines in sections.items())
    return "\n\n".join(blocks) + "\n"


def _key(name: str) -> Key:
    key = table.key_of(name)
    if key is None:
        near = nearest(name, table.all_keys())
        raise StallguardError(
            f"there is no setting {name}", why=f"did you mean {near}?" if near else "",
            cure="stallguard config show lists them", code=USAGE,
        )  # fmt: skip
    return key


def _toml(key: Key, value: Any, written: str | None = None) -> str:
    """Return the value of a setting in TOML.  `written`: as the user wrote it, which a duration or a size keeps."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_quoted, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    text = key.kind.show(value) if written is None else written
    return text if re.fullmatch(r"(0|[1-9][0-9]*)(\.[0-9]+)?", text) else _quoted(text)


def _quoted(text: str) -> str:
    """Return text as a TOML string: as in JSON, but with DEL escaped and no pairs of surrogates."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def edited(text: str, path: str, value: str) -> str:
    """Return the text of a settings file with one setting changed or added; the rest unchanged."""
    section, _, name = path.rpartition(".")
    lines = text.removesuffix("\n").split("\n") if text else []
    new = f"{name} = {value}"
    heads = [number for number, line in enumerate(lines) if re.match(r"\s*\[", line)]
    own = rf"\s*\[\s*{re.escape(section)}\s*\]\s*(#.*)?"
    begin = next((number for number in heads if re.fullmatch(own, lines[number])), None)
    if begin is None:
        return "\n".join([*lines, *([""] if lines else []), f"[{section}]", new, ""])
    end = next((number for number in heads if number > begin), len(lines))
    place = next(
        (number for number in range(begin + 1, end) if re.match(rf"\s*{re.escape(name)}\s*=", lines[number])), None
    )
    if place is None:
        return "\n".join([*lines[: begin + 1], new, *lines[begin + 1 :], ""])
    # A list can take several lines: the first part that leaves valid TOML is the whole of the old value.
    texts = ("\n".join([*lines[:place], new, *lines[after:], ""]) for after in range(place + 1, len(lines) + 1))
    return next((one for one in texts if _is_toml(one)), text)


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except UNREADABLE:
        return False
    return True


def _refuse_damage(text: str, target: Path, key: Key, wanted: Any) -> None:
    """Raise StallguardError unless the text of a settings file sets `key` to what is wanted, and nothing else wrong."""
    settings = config.settings_of(text, target) if _is_toml(text) else []
    if [config.typed_value(one) for one in settings if one.path == key.path] == [wanted]:
        return
    raise StallguardError(
        f"{target} cannot be changed here",
        why=f"it has {key.path} in a form that this verb does not understand, or it is not TOML",
        cure=f"edit it by hand: {key.path} = {_toml(key, wanted)}", code=USAGE,
    )  # fmt: skip


def _write(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())
    except UnicodeEncodeError as error:
        raise StallguardError("the value is not text", code=USAGE) from error
    except OSError as error:
        raise StallguardError(f"cannot write {target}", why=error.strerror or str(error), code=CANNOT_RUN) from error
