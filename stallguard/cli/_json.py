"""The option `--json`, which names the type of what a verb prints: docs/journal.md is made from these types.

Imports no other module of stallguard: lists and completion must not wait for the settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


class JsonOption(click.Option):
    """`--json`.  `outputs`: the types of what is printed then, as "module:Name"; docs/journal.md is made from them."""

    def __init__(self, *arguments: Any, outputs: tuple[str, ...], **attributes: Any) -> None:
        """`arguments`, `attributes`: as for click.Option."""
        super().__init__(*arguments, **attributes)
        self.outputs = outputs


def prints_json(what: str, *outputs: str) -> Callable[[Any], Any]:
    """Return a decorator that adds `--json` to a command, which then prints one of `outputs`.  `what`: its help."""
    return click.option("--json", "as_json", is_flag=True, cls=JsonOption, outputs=outputs, help=what)
