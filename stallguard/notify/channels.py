"""The channels that the settings name: the desktop, a command, one for each Apprise address.

Making a channel costs nothing: what it needs is imported when it first sends, on the thread that sends.  That is above
all Apprise (0.1 s, 13 MB).  It reports a refusal as False and logs the reason, which is collected from its logger.  An
address contains secrets: no text of an address that Apprise itself does not show leaves this module.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import msgspec

from stallguard.config.table import NotifySettings
from stallguard.notify.message import Notification

DEADLINE = 15.0  # seconds for one channel
NO_APPRISE = (
    "notify.urls is set and Apprise is not installed: the addresses are not used; "
    "install stallguard from its clone with the extra: uv tool install --force '.[notify]'"
)
LEAST_SECRET = 4  # characters of a part of an address that is removed from a message
KINDS = {"give_up": "failure", "stall": "warning", "restart": "warning", "finish": "success"}  # others: info
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
    if wanted.urls and not has_apprise():
        found.append(Channel("Apprise", refuse_without_apprise, lambda: NO_APPRISE))
    else:
        for name, url in zip(address_names(wanted.urls), wanted.urls, strict=True):
            found.append(Channel(name, apprise_sender(url), partial(address_trouble, url)))
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


def has_apprise() -> bool:
    """Return whether the extra `notify` is installed."""
    try:
        return importlib.util.find_spec("apprise") is not None
    except (ImportError, ValueError):  # a finder of the user's own refuses
        return False


def address_names(urls: Sequence[str]) -> list[str]:
    """Return a name for each address that shows no secret: its scheme, and its number if there are several."""
    schemes = [url.partition("://")[0] if "://" in url else "address" for url in urls]
    several, seen, found = Counter(schemes), Counter[str](), []
    for scheme in schemes:
        seen[scheme] += 1
        found.append(f"{scheme} {seen[scheme]}" if several[scheme] > 1 else scheme)
    return found


def address_trouble(url: str) -> str:
    """Return why nothing can be sent to an address; "" if its form is right."""
    if _apprise_service(url) is not None:
        return ""
    return "Apprise does not understand the address: https://appriseit.com/services describes the form of each"


def unusable(urls: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the addresses that Apprise does not understand."""
    return tuple(name for name, url in zip(address_names(urls), urls, strict=True) if address_trouble(url))


def refuse_without_apprise(_told: Notification) -> None:
    """Send nothing, for want of Apprise.  Raises OSError."""
    raise OSError(NO_APPRISE)


def apprise_sender(url: str) -> Callable[[Notification], None]:
    """Return a sender for an address.  It raises OSError with what Apprise says if the message is not accepted."""

    def send(note: Notification) -> None:
        import logging  # 8 ms that a run without addresses need not pay

        import apprise

        class NewestWarning(logging.Handler):  # why Apprise did not send: it logs the reason
            text = ""

            def emit(self, record: logging.LogRecord) -> None:
                if record.thread == own_thread:  # each channel sends on a thread of its own
                    self.text = record.getMessage()

        own_thread = threading.get_ident()
        service, reasons = _apprise_service(url), NewestWarning(logging.WARNING)
        if service is None:
            raise OSError(address_trouble(url))
        logger = logging.getLogger("apprise")
        logger.addHandler(reasons)
        try:
            kind = apprise.NotifyType(KINDS.get(note.event, "info"))
            accepted = service.notify(title=note.title, body=note.text, notify_type=kind)
        finally:
            logger.removeHandler(reasons)
        if not accepted:
            raise OSError(without_secrets(reasons.text or "the service did not accept it", url, service))

    return send


@cache
def _apprise_service(url: str) -> Any:
    """Return Apprise's object for an address, None if it does not understand it."""
    import apprise

    asset = apprise.AppriseAsset(app_id="stallguard", app_desc="stallguard", app_url="")
    try:
        return apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    except ValueError:  # before version 2 of Apprise, of urllib: "Invalid IPv6 URL"
        return None


def without_secrets(text: str, url: str, service: Any) -> str:
    """Return `text` without the parts of an address that Apprise hides when it shows the address."""
    shown = service.url(privacy=True)
    parts = {part for part in re.split(r"[^\w.-]+", url) if len(part) >= LEAST_SECRET and part not in shown}
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, "***")
    return text
