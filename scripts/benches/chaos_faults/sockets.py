"""Faults of the sockets between the probe, stallguard and the verbs: removed, replaced, full, abused."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import time
from pathlib import Path

from stallguard.probe import wire

from .fault import linux, row
from .stage import BATCHES, Stage, counted, expect, until, whole

GARBAGE = (b"", b"\0" * 4096, os.urandom(4096), b"[" * 4096, b'{"token":0,' + b"[" * 4000, b'{"verb":' * 500)


def _sockets(stage: Stage) -> Path:
    """Return the directory of the newest run's sockets."""
    found: list[Path] = until(lambda: list((stage.home / "s").glob("*")), "the directory of the sockets")
    return found[-1]


@row(quick=False)
def sockets_removed(stage: Stage) -> str:
    """both sockets of a run are removed while batches end ->
    every batch is counted; `stop` works again within seconds; that they were gone is said"""
    live = stage.watched(BATCHES, "6000", "0.05", options=("--grace", "2s"))
    for path in _sockets(stage).iterdir():
        path.unlink()
    began = time.monotonic()
    live.said("the probe's socket was removed")
    until(lambda: stage.ask("status"), "an answer of the run")
    back = time.monotonic() - began
    expect(stage.verb("stop").code == 0, "stop is refused")
    ended = live.ended()
    counted, printed = stage.outcome().batches or 0, len(ended.lines)
    expect(ended.code == 143, f"exit code {ended.code}")
    expect(abs(counted - printed) <= 1, f"{counted} batches counted of {printed}")
    return f"answers again after {back:.1f} s; {counted} of {printed} batches counted"


@row()
def socket_directory_removed(stage: Stage) -> str:
    """the directory of the sockets is removed before the training's probe connects ->
    output and exit code of the training; its batches are counted from its page"""
    script = stage.script("import time\nwhile not __import__('os').path.exists('go'): time.sleep(0.02)\n" + BATCHES)
    live = stage.guard(script, "40", "0.05")
    live.training()
    shutil.rmtree(_sockets(stage))
    (stage.work / "go").touch()
    seen = counted(live, 40)
    return f"{seen}, all counted"


@row(quick=False)
def sockets_replaced(stage: Stage) -> str:
    """other programs' sockets take the names of a run's sockets ->
    the training is not disturbed; the names are taken back, and `status` is answered by the run"""
    live = stage.watched(BATCHES, "200", "0.05")
    place = _sockets(stage)
    with contextlib.ExitStack() as strangers:
        for name, kind in (("beats", socket.SOCK_DGRAM), ("control", socket.SOCK_STREAM)):
            (place / name).unlink()
            stranger = strangers.enter_context(socket.socket(socket.AF_UNIX, kind))
            stranger.bind(str(place / name))
        until(lambda: stage.ask("status"), "an answer of the run")
        seen = counted(live, 200)
    return f"{seen}, all counted; the run answers again"


@row(quick=False)
def sockets_replaced_by_files(stage: Stage) -> str:
    """plain files take the names of a run's sockets -> the training is not disturbed; the run answers again"""
    live = stage.watched(BATCHES, "160", "0.05")
    for path in _sockets(stage).iterdir():
        path.unlink()
        path.write_text("a file")
    until(lambda: stage.ask("status"), "an answer of the run")
    return f"{whole(live.ended(), 160)}; the run answers again"


@row(needs=linux)
def socket_full(stage: Stage) -> str:
    """stallguard is stopped until the queue of the probe's socket is full ->
    the training is not slowed, and every batch is counted afterwards"""
    text = BATCHES.replace('print("step", number, flush=True)', 'open("log", "a").write("x")')
    live = stage.watched(text, "400", "0.01")
    live.signal(19)
    began, log = time.monotonic(), stage.work / "log"
    before = log.stat().st_size
    time.sleep(3)  # at 20 records a second the queue of 10 is full at once
    done = log.stat().st_size - before
    live.signal(18)
    live.ends(7)
    expect(done > 30 * (time.monotonic() - began > 0), f"only {done} batches in 3 s")
    expect(stage.outcome().batches == 400, f"{stage.outcome().batches} batches counted of 400")
    return f"{done} batches in 3 s of a full queue, all 400 counted"


@row()
def silent_clients(stage: Stage) -> str:
    """64 clients connect to the control socket and say nothing ->
    `status` is answered, the training is not disturbed"""
    live = stage.watched(BATCHES, "120", "0.05")
    place = _sockets(stage) / "control"
    with contextlib.ExitStack() as clients:
        for _ in range(64):
            client = clients.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            client.setblocking(False)
            with contextlib.suppress(OSError):  # its queue is full
                client.connect(str(place))
        began = time.monotonic()
        answer = until(lambda: stage.ask("status"), "an answer")
        took = time.monotonic() - began
    expect("run" in answer, f"the answer is {answer}")
    return f"answered after {took:.1f} s; {whole(live.ended(), 120)}"


@row()
def garbage_on_sockets(stage: Stage) -> str:
    """random bytes, deep nesting and half questions on both sockets ->
    nothing is counted by it, the run answers, the training ends with its own code"""
    live = stage.watched(BATCHES, "60", "0.05")
    place = _sockets(stage)
    for data in GARBAGE * 20:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one, contextlib.suppress(OSError):
            one.setblocking(False)
            one.sendto(data, str(place / "beats"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other, contextlib.suppress(OSError):
            other.settimeout(0.2)
            other.connect(str(place / "control"))
            other.sendall(data)
    until(lambda: stage.ask("status"), "an answer of the run")
    seen = counted(live, 60)
    expect("without this attempt's token" in stage.journal(), "what was dropped is not in the journal")
    return f"{seen}, exactly 60 counted, the rest is named in the journal"


@row()
def false_beats(stage: Stage) -> str:
    """records with another token, that count a million batches, are sent to the probe's socket ->
    no batch is counted by them"""
    live = stage.watched(BATCHES, "60", "0.05")
    place, run = _sockets(stage), stage.run()
    page = until(lambda: next(run.probe.glob("*.page"), None), "the page of the training")
    record = bytearray(page.read_bytes())
    token, more = run_token(bytes(record)), 1_000_000  # batches that it did not train
    # Of another program: the next record of the training itself would correct what one in its name counted.
    false = {"token": token ^ 1, "pid": os.getpid(), "beats": more, "changes": more}
    for field, value in false.items():
        struct.pack_into("<q", record, wire.SLOT[field] * 8, value)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        for number in range(9):  # what the queue holds
            struct.pack_into("<q", record, wire.SLOT["sequence"] * 8, more + number)
            one.sendto(bytes(record), str(place / "beats"))
    seen = counted(live, 60)
    expect("without this attempt's token" in stage.journal(), "that they were dropped is not noted")
    return f"{seen}, exactly 60 counted"


def run_token(record: bytes) -> int:
    found = wire.unpack(record)
    expect(found is not None, "the page cannot be read")
    return int(found["token"])  # type: ignore[index]
