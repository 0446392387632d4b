"""The checks of the kernel: the ends of processes that are not ours, and bursts of datagrams.

They are made with the functions that the product uses, and hold on every system: kqueue and pidfd, macOS and Linux.
Must not judge: verdicts_kernel does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from mac import verdicts_kernel
from mac.scene import Scene, until
from mac.table import Row, judged
from stallguard.host import process_end
from stallguard.probe import wire
from stallguard.storage import run_files
from stallguard.storage.run_files import Identity
from stallguard.supervisor import adopted
from stallguard.supervisor.child import Ended
from stallguard.supervisor.heartbeats import RECEIVE_BUFFER, REST

ENDS = 3  # the exit code of the process that is watched to its end
LONGEST = 10.0  # seconds for an answer that comes at once if it comes
AN_HOUR = 3600.0
# A process of ours that is no child of ours any more: the shell starts it, prints its pid and ends.
WAITS = "import os, time\nwhile not os.path.exists('{file}'): time.sleep(0.02)\nos._exit({code})"
ORPHAN = "'{python}' -c \"{waits}\" >/dev/null & echo $!"
BEATS, RATE = 1000, 200  # records of a burst, and how many a second
SCRIPT = """
import time
import stallguard
began = time.monotonic()
for number in range({beats}):
    stallguard.beat()
    time.sleep(max(0.0, began + (number + 1) / {rate} - time.monotonic()))
"""


def ends(scene: Scene) -> Iterator[Row]:
    """Watch a process to its end, then one that has ended, a zombie, and one whose number is another's now."""
    yield _watched(scene)
    child = subprocess.Popen([sys.executable, "-c", ""])
    who = run_files.identity(child.pid)
    until(lambda: not run_files.lives(who), LONGEST)  # a zombie lives no more
    zombie = _answer(who)
    yield verdicts_kernel.no_end("a zombie", *zombie, _refusal(who.pid))
    child.wait()
    yield verdicts_kernel.no_end("a dead pid", *_answer(who), _refusal(who.pid))
    own = run_files.identity(os.getpid())
    earlier = Identity(pid=own.pid, started=own.started - AN_HOUR, boot=own.boot)
    yield verdicts_kernel.no_end("a pid that is another's", *_answer(earlier), "")


def _watched(scene: Scene) -> Row:
    file = scene.home / "end-now"
    command = ORPHAN.format(python=sys.executable, waits=WAITS.format(file=file, code=ENDS))
    started = subprocess.run(["/bin/sh", "-c", command], stdout=subprocess.PIPE, text=True, check=True)
    who = run_files.identity(int(started.stdout))
    found: list[Ended | None] = []
    thread = threading.Thread(target=lambda: found.append(adopted.wait(who)), daemon=True)
    thread.start()
    time.sleep(0.5)  # it is watched before it ends
    early = bool(found)
    file.touch()
    thread.join(LONGEST)
    code = found[0].code if found and found[0] is not None else None
    return verdicts_kernel.watched(sys.platform, code, ENDS, came=bool(found) and not early)


def _answer(who: Identity) -> tuple[bool, float]:
    """Return whether waiting for a process that is not there says at once that nothing is known, and its seconds."""
    found: list[object] = []
    began = time.monotonic()
    thread = threading.Thread(target=lambda: found.append(adopted.wait(who)), daemon=True)
    thread.start()
    thread.join(LONGEST)
    return found == [None], time.monotonic() - began


def _refusal(pid: int) -> str:
    """Return what the kernel says to one who asks to watch `pid`; "" if it is not a Mac's kernel."""
    if sys.platform != "darwin":
        return ""
    try:
        process_end.ExitWatch(pid).close()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    return "watched"


def bursts(scene: Scene) -> Iterator[Row]:
    """Send records faster than they are read, with the kernel's own buffers and with ours; then guard a fast loop."""
    own, lost_own = _burst(scene.home / "own", None)
    ours, lost_ours = _burst(scene.home / "ours", RECEIVE_BUFFER)
    yield verdicts_kernel.burst(RECEIVE_BUFFER, own, ours, lost_own, lost_ours, BEATS)
    script = scene.home / "fast.py"
    script.write_text(SCRIPT.format(beats=10 * RATE, rate=RATE))
    said = scene.stallguard("run", "--python", sys.executable, "--set", "notify.desktop=off", str(script))
    counted = verdicts_kernel.batches(said.text)
    yield judged("200 beats a second", said.code == 0 and counted == 10 * RATE,
                 f"exit code {said.code}, {counted} of {10 * RATE} batches counted",
                 "a lost record costs no batch: each says the whole count", said.text.strip()[-200:])  # fmt: skip


def _burst(place: Path, buffer: int | None) -> tuple[int, int]:
    """Return the size of the receiver's buffer, and how many records of a burst were lost.

    The receiver reads as the product's does: it lets records queue for REST seconds after each reading.
    """
    with contextlib.ExitStack() as opened:
        receiver = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        sender = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        if buffer:
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        receiver.bind(str(place))
        opened.callback(place.unlink)
        for one in (receiver, sender):
            one.setblocking(False)
        sender.connect(str(place))
        size = receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        lost, read_at, record = 0, time.monotonic(), bytes(wire.SIZE)
        began = read_at
        for number in range(BEATS):
            try:
                sender.send(record)
            except OSError:  # ENOBUFS on macOS, EAGAIN on Linux: the probe drops it
                lost += 1
            if time.monotonic() - read_at > REST:
                _drained(receiver)
                read_at = time.monotonic()
            time.sleep(max(0.0, began + (number + 1) / RATE - time.monotonic()))
    return size, lost


def _drained(receiver: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            receiver.recv(wire.SIZE)
