"""What speaks to the receiver of records in tests, and the receiver with its mailbox."""

from __future__ import annotations

import queue
import socket
import subprocess
import time
from pathlib import Path

from stallguard.core.events import Event, Exited, Heartbeat, ProbeNote
from stallguard.probe import wire
from stallguard.supervisor.heartbeats import HeartbeatListener

TOKEN = 77


class Probe:
    """Speaks as the probe of one process would: a living one, with no descriptor of its page, as on Python 3.13."""

    def __init__(self, address: Path, pages: Path, began: int = 1, process: subprocess.Popen | None = None) -> None:
        draft = pages / "draft"
        draft.write_bytes(bytes(wire.SIZE))
        self.process = process or subprocess.Popen(["sleep", "60"])
        self.pid = self.process.pid
        self.page = draft.rename(pages / f"{self.pid}.page")
        self.values = [0] * wire.SLOTS
        self.set(magic=wire.MAGIC, token=TOKEN, pid=self.pid, kind=1, slices=1, began_ns=began)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.connect(str(address))

    def end(self) -> None:
        self.socket.close()
        self.process.kill()
        self.process.wait()

    def set(self, **fields: int) -> None:
        for name, value in fields.items():
            self.values[wire.SLOT[name]] = value

    def store(self, **fields: int) -> None:
        now = time.monotonic_ns()
        self.set(**{"progress_ns": now, "sent_ns": now, **fields})
        with self.page.open("r+b") as file:
            file.write(wire.pack(self.values))

    def send(self, **fields: int) -> None:
        self.store(**fields)
        self.socket.send(wire.pack(self.values))

    def say(self, text: str) -> None:
        self.socket.send(text.replace("PID", str(self.pid)).encode())


class Ear:
    """A Beats with its mailbox."""

    def __init__(self, place: Path, pages: Path) -> None:
        self.heartbeat: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.pages = pages
        self.merged: list[Event] = []  # records that became part of the next event
        self.beats = HeartbeatListener(place, pages, self.heartbeat.put, time.monotonic, self.merged.append)
        self.beats.follow(1, TOKEN)
        self.probes: list[Probe] = []
        self.announced: list[ProbeNote] = []  # notes that came before what the test waited for

    def probe(self, began: int = 1, process: subprocess.Popen | None = None) -> Probe:
        self.probes.append(Probe(self.beats.path, self.pages, began, process))
        return self.probes[-1]

    def until_exit(self) -> list[Event]:
        events: list[Event] = []
        while not events or not isinstance(events[-1], Exited):
            events.append(self.next(Event))
        return events

    def next(self, kind: type[Event] = Heartbeat) -> Event:
        while True:
            event = self.heartbeat.get(timeout=20)
            if isinstance(event, kind):
                return event
            if isinstance(event, ProbeNote):
                self.announced.append(event)
