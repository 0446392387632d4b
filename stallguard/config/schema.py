"""The settings as a JSON schema, and as the table of docs/configuration.md.

Pure: made from the option table.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stallguard.config.table import KEYS, Key

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """Return the JSON schema of stallguard.toml."""
    root = _object()
    for key in KEYS.values():
        *parents, name = key.path.split(".")
        branch = root
        for parent in parents:
            branch = branch["properties"].setdefault(parent, _object())
        default = msgspec.to_builtins(key.default)
        branch["properties"][name] = {"description": key.help, "default": default, **key.kind.schema}
    return {"$schema": DRAFT, "title": "stallguard settings", **root}


def _object() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def table() -> str:
    """Return the settings as a Markdown table."""
    rows = ["| setting | option of `run` | default | meaning |", "|---|---|---|---|"]
    return "\n".join([*rows, *map(_row, KEYS.values())])


def _row(key: Key) -> str:
    option = (
        f"`{key.flag}{' ' + key.kind.metavar if key.kind.metavar else ''}`".replace("|", "\\|")
        if key.flag
        else ""
    )
    return f"| `{key.path}` | {option} | {key.kind.show(key.default)} | {key.help} |"
