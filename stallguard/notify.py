"""Tells somebody who is not looking: the desktop, a command of the user's, Apprise URLs (extra `notify`).

One daemon thread sends; that a channel fails is told once, and the next word is tried again: a network that was
away at three may be back at four.  A notification may never slow, stop or fail a run.
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
import threading
from collections.abc import Callable, Iterable, Mapping

import msgspec

from stallguard.config.sections import NotifySettings

MISSED = "missed"  # a start of an overnight job that did not happen
# Occasions of the setting notify.on, and the sentences that belong to each.
OCCASIONS = {
    "stall": ("stalled",),
    "restart": ("restart",),
    "give_up": ("gave_up", "unkillable", "unguarded", MISSED),
    "finish": ("finished", "ended", "paused"),
}
PASSING = ("stalled", "restart")  # not the last word of a run: these are sent only so often
DEADLINE = 15.0  # seconds for one channel
MOST_AN_HOUR = 12
FAREWELL = 20.0  # seconds that the end of a run waits for the last notification

NO_APPRISE = (
    "notify.urls is set and Apprise is not installed: nothing is sent there; "
    "install stallguard from its clone with the extra: uv tool install --force '.[notify]'"
)
# osascript ends with 0 whether or not the user lets its notifications be shown; they come under the name of its app.
ALLOW_ON_MAC = (
    "System Settings > Notifications > Script Editor: allow notifications (and no Focus that silences them)"
)
Send = Callable[[str, str], None]


class Sent(msgspec.Struct, frozen=True):
    """When what was sent, oldest first; at most an hour of it."""

    times: tuple[tuple[float, str], ...] = ()


def allow(sent: Sent, kind: str, now: float, every: float = 60.0) -> tuple[bool, Sent]:
    """Decide whether one more may go out now, and remember it.

    `now`: monotonic seconds; `every`: seconds between two of one kind.  The last word of a run is always allowed.
    """
    recent = tuple(item for item in sent.times if now - item[0] < 3600)  # noqa: PLR2004 - an hour
    soon = any(what == kind and now - when < every for when, what in recent)
    if kind in PASSING and (soon or len(recent) >= MOST_AN_HOUR):
        return False, Sent(recent)
    return True, Sent((*recent, (now, kind)))


def kinds(occasions: Iterable[str]) -> frozenset[str]:
    """Return the sentences that are sent for the occasions of notify.on."""
    return frozenset(kind for occasion in occasions for kind in OCCASIONS.get(occasion, ()))


def desktop(which: Callable[[str], str | None] = shutil.which, platform: str = sys.platform) -> Send | None:
    """Return a sender for the desktop of this system, or None where there is none."""
    if platform == "darwin":
        return _osascript
    return _notify_send if which("notify-send") else None


def _osascript(title: str, text: str) -> None:
    # The words travel as arguments, never inside the script: hostile output stays text.
    script = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"
    _run(["/usr/bin/osascript", "-e", script, title, text])


def _notify_send(title: str, text: str) -> None:
    _run(["notify-send", "--app-name=stallguard", "--", title, text])


def command_sender(command: str, env: Mapping[str, str]) -> Send:
    """Return a sender that runs a shell command with the words in STALLGUARD_TITLE and STALLGUARD_TEXT."""

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
    """Return the senders that the settings ask for, by name; `trouble` is called with what cannot be sent and why.

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


class Result(msgspec.Struct, frozen=True):
    """What became of a test.  `why`: why it failed; "" if it was sent."""

    channel: str
    why: str = ""


class Tested(msgspec.Struct, frozen=True):
    """What became of each channel that is set."""

    schema: int
    channels: list[Result]


def test(channels: Mapping[str, Send], title: str, text: str) -> list[Result]:
    """Send `text` by each channel, one after the other, for DEADLINE seconds each; return what became of it."""
    results = []
    for name, send in channels.items():
        try:
            send(title, text)
        except Exception as error:  # noqa: BLE001 - a channel may raise anything: that is what is asked
            results.append(Result(name, _why(error)))
        else:
            results.append(Result(name))
    return results


def has_apprise() -> bool:
    """Return whether the extra `notify` is installed."""
    return importlib.util.find_spec("apprise") is not None


def _run(command: list[str], env: Mapping[str, str] | None = None) -> None:
    """Run a command in a group of its own, and end the whole group if it does not end in time.

    Raises OSError, subprocess.CalledProcessError and subprocess.TimeoutExpired.
    """
    process = subprocess.Popen(
        command, env=dict(env) if env is not None else None, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        code = process.wait(DEADLINE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):  # it has just ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if code:
        raise subprocess.CalledProcessError(code, command)


class Notifier:
    """Sends on a thread of its own.  `trouble` is told, once a channel, what failed."""

    def __init__(
        self,
        channels: Mapping[str, Send],
        trouble: Callable[[str], None],
        wanted: frozenset[str] = kinds(OCCASIONS),
        every: float = 60.0,
    ) -> None:
        """Start the thread where there is any channel.  `wanted`: kinds to send; `every`: seconds between two."""
        self._channels, self._wanted, self._every = dict(channels), wanted, every
        self._trouble = trouble
        self._waiting: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._sent = Sent()
        self._failed: set[str] = set()
        self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
        if self._channels:
            self._thread.start()

    def notify(self, kind: str, title: str, text: str, now: float) -> None:
        """Send, if this kind is sent at all and not too often.  Never blocks."""
        if kind not in self._wanted or not self._channels:
            return
        allowed, self._sent = allow(self._sent, kind, now, self._every)
        if allowed:
            self._waiting.put((title, text))

    def close(self) -> None:
        """Let what waits go out, for `FAREWELL` seconds at most."""
        if self._channels:
            self._waiting.put(None)
            self._thread.join(FAREWELL)

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            for name, send in list(self._channels.items()):
                self._try(name, send, *item)

    def _try(self, name: str, send: Send, title: str, text: str) -> None:
        try:
            send(title, text)
        except Exception as error:  # noqa: BLE001 - whatever a channel raises, the run goes on
            if name not in self._failed:
                self._failed.add(name)
                with contextlib.suppress(Exception):
                    self._trouble(f"notifications by {name} do not go out: {_why(error)}")


def _why(error: Exception) -> str:
    """Return what went wrong, without the command: it may hold a token."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"it ended with exit code {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it did not end within {error.timeout:g} s"
    return str(error)
