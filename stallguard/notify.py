"""Sends notifications: to the desktop, a command of the user, Apprise URLs (extra `notify`).

One daemon thread sends.  The failure of a channel is reported once, and the next notification is tried again: a network
can come back.  A notification must never delay, stop or fail a run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import queue
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping

import msgspec

from stallguard.config.sections import NotifySettings
from stallguard.worker import Worker

MISSED = "missed"  # a start of an overnight job that did not happen
# Events of the setting notify.on, and the messages for each.
OCCASIONS = {
    "stall": ("training.stalled",),
    "restart": ("attempt.restarting",),
    "give_up": ("run.gave_up", "attempt.unkillable", "run.unguarded", MISSED),
    "finish": ("run.finished", "run.failed", "run.paused"),
}
PASSING = ("training.stalled", "attempt.restarting")  # during a run: their rate is limited
DEADLINE = 15.0  # seconds for one channel
MOST_AN_HOUR = 12
LAST_SEND = 20.0  # seconds for which the end of a run waits for the last notification

NO_APPRISE = (
    "notify.urls is set and Apprise is not installed: the URLs are not used; "
    "install stallguard from its clone with the extra: uv tool install --force '.[notify]'"
)
# osascript exits with 0 even if the user has disabled its notifications, which appear under the name of its app.
ALLOW_ON_MAC = (
    "System Settings > Notifications > Script Editor: allow notifications (and no Focus that silences them)"
)
Send = Callable[[str, str], None]


class Sent(msgspec.Struct, frozen=True):
    """The times of sent notifications, oldest first; at most an hour."""

    times: tuple[tuple[float, str], ...] = ()


def allow(sent: Sent, kind: str, now: float, every: float = 60.0) -> tuple[bool, Sent]:
    """Decide whether another can be sent now, and record it.

    `now`: monotonic seconds; `every`: seconds between two of one kind.  The last notification of a run is always sent.
    """
    recent = tuple(item for item in sent.times if now - item[0] < 3600)  # noqa: PLR2004 - an hour
    soon = any(what == kind and now - when < every for when, what in recent)
    if kind in PASSING and (soon or len(recent) >= MOST_AN_HOUR):
        return False, Sent(recent)
    return True, Sent((*recent, (now, kind)))


def kinds(occasions: Iterable[str]) -> frozenset[str]:
    """Return the kinds of announcements that are sent for the events of notify.on."""
    return frozenset(kind for occasion in occasions for kind in OCCASIONS.get(occasion, ()))


def desktop(which: Callable[[str], str | None] = shutil.which, platform: str = sys.platform) -> Send | None:
    """Return a sender for the desktop of this system, or None if there is none."""
    if platform == "darwin":
        return _osascript
    return _notify_send if which("notify-send") else None


def _osascript(title: str, text: str) -> None:
    # The texts are arguments, never part of the script: hostile output stays text.
    script = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"
    _run(["/usr/bin/osascript", "-e", script, title, text])


def _notify_send(title: str, text: str) -> None:
    _run(["notify-send", "--app-name=stallguard", "--", title, text])


def command_sender(command: str, env: Mapping[str, str]) -> Send:
    """Return a sender that runs a shell command with the texts in STALLGUARD_TITLE and STALLGUARD_TEXT."""

    def send(title: str, text: str) -> None:
        words = {"STALLGUARD_TITLE": title, "STALLGUARD_TEXT": text}
        _run(["/bin/sh", "-c", command], {**env, **words})

    return send


def apprise_sender(urls: tuple[str, ...]) -> Send:
    """Return a sender for Apprise URLs.  Raises ImportError without the extra `notify`."""
    import apprise

    service = apprise.Apprise()
    for url in urls:
        service.add(url)

    def send(title: str, text: str) -> None:
        if not service.notify(title=title, body=text):
            raise OSError("a notification service refused")

    return send


def channels(
    wanted: NotifySettings, env: Mapping[str, str], trouble: Callable[[str], None]
) -> dict[str, Send]:
    """Return the configured senders, by name; `trouble` is called with the channels that cannot send, and why.

    `env`: the environment of the user's command.
    """
    found = dict[str, Send]()
    own = desktop() if wanted.desktop else None
    if own is not None:
        found["the desktop"] = own
    if wanted.command:
        found["the command"] = command_sender(wanted.command, env)
    if wanted.urls:
        try:
            found["Apprise"] = apprise_sender(wanted.urls)
        except ImportError:
            trouble(NO_APPRISE)
    return found


SCHEMA = 1  # of Tested


class SendResult(msgspec.Struct, frozen=True):
    """The result of a test.  `why`: why it failed; "" if it was sent."""

    channel: str
    why: str = ""


class Tested(msgspec.Struct, frozen=True):
    """The result of each configured channel."""

    schema: int
    channels: list[SendResult]


def test(channels: Mapping[str, Send], title: str, text: str) -> list[SendResult]:
    """Send `text` to each channel, one after the other, for DEADLINE seconds each; return the results."""
    results = []
    for name, send in channels.items():
        try:
            send(title, text)
        except Exception as error:  # noqa: BLE001 - a channel may raise anything: that is what is asked
            results.append(SendResult(name, _why(error)))
        else:
            results.append(SendResult(name))
    return results


def has_apprise() -> bool:
    """Return whether the extra `notify` is installed."""
    return importlib.util.find_spec("apprise") is not None


def _run(command: list[str], env: Mapping[str, str] | None = None) -> None:
    """Run a command in its own process group, and end the whole group if it does not end in time.

    Raises OSError, subprocess.CalledProcessError and subprocess.TimeoutExpired.
    """
    process = subprocess.Popen(
        command, env=dict(env) if env is not None else None, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        code = process.wait(DEADLINE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):  # it ended in the meantime
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if code:
        raise subprocess.CalledProcessError(code, command)


class Notifier:
    """Sends on its own thread.  `trouble` is called once per channel that fails."""

    def __init__(
        self,
        channels: Mapping[str, Send],
        trouble: Callable[[str], None],
        wanted: frozenset[str] = kinds(OCCASIONS),
        every: float = 60.0,
    ) -> None:
        """Start the thread if there is a channel.  `wanted`: kinds to send; `every`: seconds between two."""
        self._channels, self._wanted, self._every = dict(channels), wanted, every
        self._trouble = trouble
        self._waiting: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._sent = Sent()
        self._failed: set[str] = set()
        self._thread = Worker(self._work, "notify")
        if self._channels:
            self._thread.start()

    def notify(self, kind: str, title: str, text: str, now: float) -> None:
        """Send, if this kind is sent and not too often.  Never blocks."""
        if kind not in self._wanted or not self._channels:
            return
        allowed, self._sent = allow(self._sent, kind, now, self._every)
        if allowed:
            self._waiting.put((title, text))

    def close(self) -> None:
        """Wait for pending notifications, at most `LAST_SEND` seconds."""
        if self._channels:
            self._waiting.put(None)
            self._thread.join(LAST_SEND)

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            for name, send in list(self._channels.items()):
                self._try(name, send, *item)

    def _try(self, name: str, send: Send, title: str, text: str) -> None:
        try:
            send(title, text)
        except Exception as error:  # noqa: BLE001 - no error of a channel must end the run
            if name not in self._failed:
                self._failed.add(name)
                with contextlib.suppress(Exception):
                    self._trouble(f"notifications by {name} are not sent: {_why(error)}")


def _why(error: Exception) -> str:
    """Return the error without the command, which can contain a token."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"it ended with exit code {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it did not end within {error.timeout:g} s"
    return str(error)
