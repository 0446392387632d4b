"""`stallguard notify`: tests the notifications."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from stallguard import config, jsontext
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.cli._options import given, settings
from stallguard.errors import USAGE, StallguardError
from stallguard.notify.notifier import SendResult

SCHEMA = 2
TITLE, TEXT = "stallguard: a test", "This is a test. No training is concerned."


class Tested(msgspec.Struct, frozen=True):
    """The result of each configured channel."""

    schema: int
    channels: list[SendResult]


@click.command("notify")
@click.argument("word", type=click.Choice(["test"]), metavar="[test]", required=False)
@click.option("--test", "is_test", is_flag=True, help="Send a test to each channel of the settings.")
@prints_json("One JSON object: the result of each channel.", "stallguard.cli.notify:Tested")
@settings(())
def command(word: str | None, is_test: bool, as_json: bool, **parameters: Any) -> None:
    """Send a test notification to each configured channel; exit code 1 if one fails or none is configured.

    \b
    Examples:
      stallguard notify test
      stallguard notify test --set notify.command='say "$STALLGUARD_TEXT"'
    """  # noqa: D301 - click wants the real backspace
    from stallguard import notify

    if not (is_test or word):
        raise StallguardError(
            "nothing to do", cure="send a test to each channel: stallguard notify test", code=USAGE
        )
    wanted = config.load(given(parameters), os.environ, Path.cwd()).config.notify
    note = notify.notification(notify.TEST, TITLE, TEXT)
    results = notify.test(notify.configured(wanted, os.environ), note)
    if as_json:
        echo(jsontext.readable(Tested(SCHEMA, results)))
    for one in results if not as_json else ():
        ending = f"failed: {one.why}" if one.why else f"accepted, in {one.seconds:.1f} s"
        echo(f"{one.channel}: {ending}")
    if not results:
        echo("no channel is configured: see notify.desktop, notify.command, notify.urls", err=True)
    if wanted.desktop and notify.desktop() is None:
        echo("nothing is shown on a desktop: there is no notify-send here", err=True)
    if sys.platform == "darwin" and wanted.desktop:
        echo(f"if no notification appears: {notify.ALLOW_ON_MAC}", err=True)
    sys.exit(1 if not results or any(one.why for one in results) else 0)
