"""The channels that the settings name: the desktop, a command, one for each Apprise address.

Making a channel costs nothing: what it needs is imported when it first sends, on the thread that sends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from stallguard.config.table import NotifySettings
from stallguard.notify import addresses
from stallguard.notify.message import Notification

DEADLINE = 15.0  # seconds for one channel
Send = Callable[[Notification], None]


def _no_trouble() -> str:
    return ""


class Channel(NamedTuple):
    """One way.  `send` raises what it likes; `check` returns why nothing can be sent, "" if it can."""

    name: str
    send: Send
    check: Callable[[], str] = _no_trouble


def configured(wanted: NotifySettings, env: Mapping[str, str]) -> list[Channel]:
    """Return the configured channels.  `env`: the environment of the user's command."""
    found = []
    own = desktop() if wanted.desktop else None
    if own is not None:
        found.append(Channel("the desktop", own))
    if wanted.command:
        found.append(Channel("the command", command_sender(wanted.command, env)))
    if wanted.urls and not addresses.has_apprise():
        found.append(Channel("Apprise", addresses.refuse, lambda: addresses.NO_APPRISE))
    else:
        for name, url in zip(addresses.names(wanted.urls), wanted.urls, strict=True):
            found.append(Channel(name, addresses.sender(url), partial(addresses.trouble, url)))
    return found


def desktop(which: Callable[[str], str | None] = shutil.which, platform: str = sys.platform) -> Send | None:
    """Return a sender for the desktop of this system, or None if there is none."""
    if platform == "darwin":
        return _osascript
    return _notify_send if which("notify-send") else None


def _osascript(note: Notification) -> None:
    # The texts are arguments, never part of the script: hostile output stays text.
    script = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"
    run(["/usr/bin/osascript", "-e", script, note.title, note.text])


def _notify_send(note: Notification) -> None:
    run(["notify-send", "--app-name=stallguard", "--", note.title, note.text])


def command_sender(command: str, env: Mapping[str, str]) -> Send:
    """Return a sender that runs a shell command: the notification is in its environment, and on its input as JSON."""

    def send(note: Notification) -> None:
        words = {
            "STALLGUARD_EVENT": note.event, "STALLGUARD_TITLE": note.title, "STALLGUARD_TEXT": note.text,
            "STALLGUARD_RUN_ID": note.run,
        }  # fmt: skip
        run(["/bin/sh", "-c", command], {**env, **words}, msgspec.json.encode(note) + b"\n")

    return send


def run(command: list[str], env: Mapping[str, str] | None = None, given: bytes = b"") -> None:
    """Run a command in its own process group, and end the whole group if it does not end in time.

    `given`: its standard input.  Raises OSError, subprocess.CalledProcessError and subprocess.TimeoutExpired.
    """
    process = subprocess.Popen(
        command, env=dict(env) if env is not None else None, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        process.communicate(given, DEADLINE)  # a command that reads nothing is no error
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):  # it ended in the meantime
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
