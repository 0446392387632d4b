"""Decoders of messages: the probe's records and notes, its file of samples, the control socket at both ends."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fuzzing.targets import Target, encoded, filed
from stallguard.cli.live_runs import readable
from stallguard.core.events import Event, Heartbeat, UserCommand
from stallguard.errors import UNREADABLE, StallguardError
from stallguard.host import darwin
from stallguard.probe import wire
from stallguard.probe.outbox import Outbox
from stallguard.report import status_rows
from stallguard.storage import paths, private, stack_samples
from stallguard.storage.paths import RunDir
from stallguard.supervisor import control, live_status
from stallguard.supervisor.control import Control
from stallguard.supervisor.heartbeats import HeartbeatListener

TOKEN = 0x1234_5678_9ABC_DEF
SOUND = 10_000  # records whose batches can still be posted
PIDS = 64  # programs that a receiver follows before it begins anew
_RECORD = struct.Struct("<43q")
KINDS, PHASES, SOURCES, WAITS = 5, 14, 11, 9  # of wire.VERSION 3, counted by hand


class Receiver:
    """The receiver of the probe's messages without its thread."""

    def __init__(self, pages: Path) -> None:
        self.posted: list[Event] = []
        self._sockets = paths.socket_dir("/tmp")  # noqa: S108 - private, and its path is short
        private.make(pages)
        self._beats = HeartbeatListener(self._sockets, pages, self.posted.append, time.monotonic, self.posted.append)
        self._beats._reset(1, TOKEN)

    def take(self, data: bytes) -> list[Event]:
        self.posted.clear()
        if len(self._beats._tracks) > PIDS:
            self._beats._reset(1, TOKEN)
            self.posted.clear()
        self._beats._take(data)
        return self.posted[:]

    def close(self) -> None:
        self._beats.close()
        paths.remove_sockets(self._sockets)


class NoFalseBeat:
    """A batch is counted only if a sound record says so; records are decoded a second time here.

    What a sound record counts can be posted with a later message.
    """

    def __init__(self) -> None:
        self._sound: dict[tuple[int, int], None] = {}  # pid and batches of the newest sound records

    def __call__(self, data: bytes, posted: Any) -> None:
        """Raise AssertionError if a batch was counted that no sound record up to `data` has."""
        wrong = unsound(data)
        if not wrong:
            slots = _RECORD.unpack(data)
            self._sound[slots[2], slots[6]] = None
        if len(self._sound) > SOUND:
            del self._sound[next(iter(self._sound))]
        for beat in posted:
            counted = isinstance(beat, Heartbeat) and (beat.pid, beat.beats) not in self._sound
            assert not counted, wrong or "another number of batches"


def unsound(data: bytes) -> str:
    """Return why a record must not count, "" if it is sound."""
    if len(data) != _RECORD.size:
        return "a record of another length"
    slots = _RECORD.unpack(data)
    magic, token, pid, sequence, sent, kind, count, beat_ns, phase = slots[:9]
    wrong = {
        "another magic": magic != 0x53544C47 << 32 | 3,
        "another token": token != TOKEN,
        "no pid": not 0 < pid < 1 << 31,
        "a negative number": min(sequence, sent, count, beat_ns) < 0,
        "no kind": not 0 <= kind < KINDS,
        "no phase": not 0 <= phase < PHASES,
        "no source": not 0 <= slots[25] < SOURCES,
        "no wait": not 0 <= slots[36] < WAITS,
    }
    return next((why for why, is_so in wrong.items() if is_so), "")


def counts_nothing(_data: bytes, posted: Any) -> None:
    """A note counts no batch."""
    assert not [event for event in posted if isinstance(event, Heartbeat)], "a note counted a batch"


def record(**fields: int) -> bytes:
    now = time.monotonic_ns()
    values = dict.fromkeys(wire.FIELDS, 0) | {
        "magic": wire.MAGIC, "token": TOKEN, "pid": 4321, "sequence": 7, "sent_ns": now, "kind": 1, "beats": 900,
        "beat_ns": now - 10, "phase": 4, "phase_ns": now - 10, "progress_ns": now - 10, "changes": 5000, "slices": 1,
        "fits": 1, "fit_beats": 900, "epoch": 2, "epochs": 10, "batch": 100, "batches": 400, "source": 1,
        "flags": wire.FLAG_TRAINS, "began_ns": now - 10**9, "wakers": -1, "iterations": -1,
    }  # fmt: skip
    return wire.pack(list((values | fields).values()))


def notes() -> list[bytes]:
    box = Outbox(TOKEN, 4321)
    box.command, box.place = "python train.py --epochs 3", "0123456789abcdef-1"
    box.hook_installed("fit")
    box.version("tensorflow", "2.21.0")
    box.own_thread()
    box.beyond("a sentence on what cannot be done")
    hello = box.hello()
    box.note("save", "the checkpoint was not saved", {"why": "disk full", "bytes": 12})
    box.note("resume", "resumed in epoch 3", {"epoch": 3})
    return [hello, *box.waiting()]


def targets(place: Path) -> Iterator[Target]:
    # What a record counted can be posted a moment later, so notes have a receiver without one.
    receiver, other = Receiver(place / "pages"), Receiver(place / "pages of notes")
    records = [record(), record(kind=3, beats=0), record(kind=4, flags=48), record(source=9, phase=0, wait=1)]
    yield Target("wire record", records, receiver.take, (), NoFalseBeat())
    yield Target("probe note, hello", notes(), other.take, UNREADABLE, counts_nothing)
    receiver.close()
    other.close()
    lines = [stack_samples.CodeLine("/home/me/train.py", 3, "work"), stack_samples.CodeLine("x.py", 1, "f")]
    stacks = [stack_samples.StackTime("training", "step", (0, 1), 500)]
    body = encoded(stack_samples.StackSamples(1, 1, 500, lines, stacks))[0]
    file = struct.pack("<2q", 2, len(body)) + body
    yield Target("profile of the probe", [file, file + bytes(64)], filed(place / "7.profile", stack_samples.read))
    yield from _control(place)
    whole = darwin._XUCRED.pack(0, 501, 2, *range(16))
    yield Target("credentials (macOS)", [whole], darwin.user_in)


def _control(place: Path) -> Iterator[Target]:
    posted: list[Event] = []
    sockets = paths.socket_dir("/tmp")  # noqa: S108 - private, and its path is short
    desk = Control(sockets / "control", posted.append, time.monotonic, lambda: {"state": "x"})

    def ask(data: bytes) -> Any:
        posted.clear()
        desk._reply(data)
        return posted[:]

    def orders(_data: bytes, found: Any) -> None:
        for event in found:
            assert isinstance(event, UserCommand), "no command"
            assert event.verb in control.VERBS, "an unknown verb"

    questions = encoded(*({"verb": verb, "argument": "60"} for verb in (*control.VERBS, "status")))
    yield Target("control request", questions, ask, (), orders)
    desk.close()
    paths.remove_sockets(sockets)

    def answered(data: bytes) -> Any:
        snapshot = control.decoded(data)
        with readable(RunDir(place)):
            status_rows.is_well(snapshot)
            return status_rows.rows(snapshot)

    shown = {
        "schema": 1, "run": "a-run", "state": "running", "attempt": 2, "pid": 7, "factor": 2, "seconds": 60.5,
        "batches": 900, "silent": 2.5, "judgement": {"step": "healthy", "threshold": 30.0}, "incidents": 1, "lost": 3.5,
        "progress": {"phase": "step", "beats": 900, "epoch": 1, "epochs": 3, "batch": 5, "batches": 10, "loss": 0.5},
        "readings": {"memory": {"available": 1000000}, "machine": {"idle": 0.5}, "device": {"utilisation": 0.5}},
        "rates": {"batches": 10.0, "cpu": 1.0}, "findings": [{"cause": "lock"}], "muted": 60.0, "watched": 10.0,
        "spots": [{"role": "training", "phase": "step", "seconds": 5.0, "file": "train.py", "line": 3}],
        "trainings": [
            {"number": 1, "pid": 7, "command": "train.py", "how": "ended", "batches": 3, "seconds": 1.0},
            {"number": 2, "pid": 8, "command": "", "how": "", "batches": 3, "judgement": {"step": "off"}, "rate": 2.0},
        ],
    }  # fmt: skip
    answers = encoded(shown, live_status.snapshot("a-run", None, 0.0), {"ok": False, "why": "no"})
    yield Target("control answer", answers, answered, (*UNREADABLE, StallguardError, msgspec.MsgspecError))
