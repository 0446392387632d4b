"""What can happen to the training of a cell of the bench `matrix`, and when: a part of matrix_child.py.

Python 3.9 grammar.
"""

import ctypes
import hashlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

ROWS, BATCHES, EPOCHS, WIDTH = 16, 12, 3, 4
AT = (1, 5)  # the batch in which it happens: epoch, batch
PACE = 0.06  # seconds a batch
CONTINUED = 9.0  # seconds after which a stopped process is continued
SLOW = 0.4  # seconds by which a slow batch is longer


class Trouble:
    """What happens, where and how often."""

    def __init__(self, plan):
        self.what, self.where, self.again = plan["what"], plan["where"], plan["again"]
        self.folder = Path(plan["folder"])
        self.position = [-1, -1]
        self.started = 0
        self.fitting = True  # Keras calls a layer before the first batch, too, and takes its errors for its own
        self.values = []

    def at(self, where, rows=0):
        """Come to a place; `rows`: of the batch, if they are known there."""
        if where != self.where or not self.is_due(rows):
            return
        happened = self.happened() + 1
        (self.folder / f"happened-{happened}").write_text(repr(time.time()))
        HAPPENS[self.what](self)

    def happened(self):
        """Return how often it has happened, in all attempts."""
        return len(list(self.folder.glob("happened-*")))

    def is_due(self, rows):
        """Return whether it happens now."""
        happened = self.happened()
        most = {"once": 1, "twice": 2, "always": 1000, "resumed": 2, "half": 1000, "quarter": 1000}[self.again]
        if happened >= most:
            return False
        if (self.again == "half" and 0 < rows <= ROWS // 2) or (self.again == "quarter" and 0 < rows <= ROWS // 4):
            return False
        if self.where in ("import", "start", "tracing", "first", "exit"):
            return True
        if self.again == "resumed" and happened:
            return True
        if self.where in ("validation", "epoch-end", "save"):
            return self.position[0] >= AT[0]
        return tuple(self.position) >= AT

    def trains(self, epoch, batch):
        """Begin a batch; keep the first one of this process, and when that was, for the bench."""
        self.position[:] = [epoch, batch]
        first = self.folder / f"first-{os.getpid()}"
        if not first.exists():
            first.write_text(json.dumps([time.time(), epoch, batch]))
        time.sleep(PACE)

    def lasts(self):
        """Return whether a change that has begun still holds, as slow batches do."""
        return self.happened() > 0 and self.what in ("slow", "nan")


def lock(_):
    """Wait for a lock of Python that this thread holds."""
    one = threading.Lock()
    one.acquire()
    one.acquire()


def _mutex(library):
    mutex = ctypes.create_string_buffer(256)
    library.pthread_mutex_init(mutex, None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def native_lock(_):
    """Wait for a lock of the C library; Python goes on."""
    _mutex(ctypes.CDLL(None))


def held_interpreter(_):
    """Wait for a lock of the C library, with the interpreter's lock."""
    _mutex(ctypes.PyDLL(None))


def sleep(_):
    time.sleep(1e6)


def spin(_):
    while True:
        pass


def native_spin(_):
    """Compute in C without end; Python goes on."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)


def dead_socket(_):
    """Read what no one sends."""
    ours, theirs = socket.socketpair()
    ours.recv(1)
    theirs.close()


def fifo(trouble):
    """Read from a FIFO without a writer."""
    path = trouble.folder / f"fifo-{os.getpid()}"
    os.mkfifo(str(path))
    descriptor = os.open(str(path), os.O_RDWR)
    os.read(descriptor, 1)


def die():
    """Be a worker that is killed at its task, when stallguard has seen it."""
    time.sleep(2.0)
    os.kill(os.getpid(), signal.SIGKILL)


def dead_worker(_):
    """Wait for the answer of a worker that is dead; its successor does not get the task."""
    import multiprocessing

    multiprocessing.get_context("spawn").Pool(1).apply_async(die).get()


def stop(_):
    """Be stopped, and continued later."""
    subprocess.Popen(["/bin/sh", "-c", f"sleep {CONTINUED}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


def crash(_):
    """Read where nothing is."""
    ctypes.string_at(0)


def kill(_):
    os.kill(os.getpid(), signal.SIGKILL)


def memory(_):
    """Find no memory."""
    raise MemoryError("cannot allocate 64 GiB")


def error(_):
    raise ValueError("labels and logits differ")


def nothing(_):
    """Go on; what lasts is done by the loop."""


HAPPENS = {
    "lock": lock, "native-lock": native_lock, "interpreter": held_interpreter, "sleep": sleep, "spin": spin,
    "native-spin": native_spin, "socket": dead_socket, "fifo": fifo, "worker": dead_worker, "stop": stop,
    "crash": crash, "kill": kill, "memory": memory, "error": error, "nan": nothing, "slow": nothing,
    "nothing": nothing,
}  # fmt: skip
