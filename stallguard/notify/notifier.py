"""Sends notifications during a run, and keeps for each channel whether its newest one was accepted.

One daemon thread takes a notification after the other, and sends each over all channels at a time: one that hangs does
not keep the others from sending.  The failure of a channel is reported once, and the next notification is tried again:
a network can come back.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from stallguard.errors import NOT_FOUND
from stallguard.notify.channels import DEADLINE, Channel
from stallguard.notify.message import OCCASIONS, Notification, Sent, allow, kinds
from stallguard.storage import run_files
from stallguard.storage.run_files import ChannelRecord
from stallguard.worker import REFUSALS, Worker

LATEST = 2.0  # seconds after DEADLINE within which a command that took too long is killed
LAST_SEND = DEADLINE + 5.0  # seconds for which the end of a run waits for the last notification


class SendResult(msgspec.Struct, frozen=True):
    """The result of one channel.  `why`: why it was not accepted; "" if it was."""

    channel: str
    why: str = ""
    seconds: float = 0.0  # until it was accepted or not


def send_all(channels: Sequence[Channel], note: Notification) -> list[SendResult]:
    """Send over each channel, all at a time; return the results after DEADLINE and a moment at most."""
    began, results = time.monotonic(), dict[str, SendResult]()

    def send(channel: Channel) -> None:
        why = ""
        try:
            channel.send(note)
        except Exception as error:  # noqa: BLE001 - a channel can raise anything
            why = reason(error)
        results[channel.name] = SendResult(channel.name, why, round(time.monotonic() - began, 3))

    def start(channel: Channel) -> Worker:
        worker = Worker(lambda: send(channel), f"notify {channel.name}")
        try:
            worker.start()
        except REFUSALS as error:  # no memory for a thread
            results[channel.name] = SendResult(channel.name, reason(error))
        return worker

    for worker in [start(channel) for channel in channels]:
        worker.join(began + DEADLINE + LATEST - time.monotonic())
    return [
        results.get(one.name) or SendResult(one.name, f"it did not end within {DEADLINE:g} s", DEADLINE)
        for one in channels
    ]


def test(channels: Sequence[Channel], note: Notification) -> list[SendResult]:
    """Send over each channel that is usable; return the results of all."""
    troubles = {channel.name: channel.check() for channel in channels}
    results = send_all([one for one in channels if not troubles[one.name]], note)
    return [*results, *(SendResult(name, why) for name, why in troubles.items() if why)]


def reason(error: Exception) -> str:
    """Return an error without the command, which can contain a token."""
    if isinstance(error, subprocess.CalledProcessError):
        missing = ": the shell found no such command" if error.returncode == NOT_FOUND else ""
        return f"it ended with exit code {error.returncode}{missing}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it did not end within {round(error.timeout, 1):g} s"
    return str(error) or type(error).__name__


class Notifier:
    """Sends on its own thread.  `records`: what became of the notifications, by channel."""

    def __init__(
        self,
        channels: Iterable[Channel],
        trouble: Callable[[str], None],
        wanted: frozenset[str] = kinds(OCCASIONS),
        every: float = 60.0,
        changed: Callable[[list[ChannelRecord]], None] = lambda _records: None,
    ) -> None:
        """Start the thread if there is a channel.

        `trouble` is called once per channel that fails, until it works again; `wanted`: kinds to send; `every`: seconds
        between two of one kind; `changed` is called, on the thread, with the results of each notification.
        """
        self._channels, self._wanted, self._every = list(channels), wanted, every
        self._trouble, self._changed = trouble, changed
        self._waiting: queue.SimpleQueue[Notification | None] = queue.SimpleQueue()
        self._sent: Sent = ()
        self.records: list[ChannelRecord] = []
        self._thread = Worker(self._work, "notify")
        if self._channels:
            self._thread.start()

    def notify(self, note: Notification, now: float) -> None:
        """Send, if this kind is sent and not too often.  Never blocks.  `now`: monotonic seconds."""
        if note.message not in self._wanted or not self._channels:
            return
        allowed, self._sent = allow(self._sent, note.message, now, self._every)
        if allowed:
            self._waiting.put(note)

    def close(self) -> None:
        """Wait for pending notifications, at most `LAST_SEND` seconds."""
        if self._channels:
            self._waiting.put(None)
            self._thread.join(LAST_SEND)

    def _work(self) -> None:
        usable = [channel for channel in self._channels if self._is_usable(channel)]
        while (note := self._waiting.get()) is not None:
            for result in send_all(usable, note):
                self._keep(result)
            self._changed(self.records)

    def _is_usable(self, channel: Channel) -> bool:
        why = ""
        try:
            why = channel.check()
        except Exception as error:  # noqa: BLE001 - as in sending
            why = reason(error)
        if why:
            self._keep(SendResult(channel.name, why))
            self._changed(self.records)
        return not why

    def _keep(self, result: SendResult) -> None:
        """Count a result, and report the first failure after a success."""
        known = {record.channel: record for record in self.records}
        before = known.get(result.channel, ChannelRecord(result.channel))
        sent, failed = before.sent + (not result.why), before.failed + bool(result.why)
        known[result.channel] = ChannelRecord(result.channel, sent, failed, result.why, run_files.utc())
        self.records = list(known.values())
        if result.why and not before.why:
            with contextlib.suppress(Exception):  # no error of ours must end the thread
                self._trouble(f"notifications by {result.channel} are not sent: {result.why}")
