"""`stallguard config`: which settings hold, where each came from, and what there is to set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import msgspec

from stallguard import config
from stallguard.config import layers, schema
from stallguard.config.table import EVERYDAY, KEYS, Key, value_of


@click.group("config")
def command() -> None:
    """Show the settings and where they come from."""


def _loaded() -> config.Loaded:
    return config.load({}, os.environ, Path.cwd())


@command.command("show")
@click.option("--all", "everything", is_flag=True, help="The detector's fine tuning too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with all settings.")
def show(everything: bool, as_json: bool) -> None:
    """Show each setting, its value and its origin, as they hold in this directory."""
    loaded = _loaded()
    if as_json:
        rows = {key.path: _row(loaded, key) for key in KEYS.values()}
        click.echo(msgspec.json.encode({"schema": 1, "settings": rows}))
        return
    for text in loaded.ignored:
        click.echo(f"stallguard: {text}", err=True)
    wanted = [key for key in KEYS.values() if everything or key in EVERYDAY or _is_changed(loaded, key)]
    width = max(len(key.path) for key in wanted)
    for key in wanted:
        value = key.kind.show(value_of(loaded.config, key.path))
        click.echo(f"{key.path:<{width}}  {value:<16}  {loaded.origins[key.path]}".rstrip())


def _is_changed(loaded: config.Loaded, key: Key) -> bool:
    return loaded.origins[key.path] != config.DEFAULT


def _row(loaded: config.Loaded, key: Key) -> dict[str, Any]:
    value = value_of(loaded.config, key.path)
    return {
        "value": value,
        "shown": key.kind.show(value),
        "origin": loaded.origins[key.path],
        "default": key.default,
    }


@command.command("path")
def path() -> None:
    """Print the files that settings are read from, strongest last."""
    project = layers.project_file(Path.cwd())
    user = layers.user_file(os.environ)
    click.echo(f"{user}{'' if user.exists() else '  (not there)'}")
    click.echo(
        project or f"no {layers.OWN} here or above, nor [{layers.TABLE}] in a {layers.SHARED}",
        err=not project,
    )


@command.command("schema")
def print_schema() -> None:
    """Print the JSON schema of stallguard.toml, for editors."""
    click.echo(msgspec.json.format(msgspec.json.encode(schema.schema()), indent=2))
