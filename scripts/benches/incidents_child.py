"""Programs that go wrong, each in one way, which the drills and the tests have no script for: of `bench incidents`.

Its arguments: the name of one, and the control group that it enters.
"""

import ctypes
import os
import resource
import signal
import socket
import sys
import threading
import time
from pathlib import Path

MEGABYTE = 1 << 20
BEATS, WORK = 100, 1_000_000  # batches of a child that only beats, and additions in each: some 30 ms


def beat(count=BEATS):
    import stallguard

    for _ in range(count):
        sum(range(WORK))
        stallguard.beat()


def outside():
    """Wait for an answer that never comes."""
    ours, theirs = socket.socketpair()
    ours.recv(1)
    theirs.close()


def out_of_memory():
    """Grow until the kernel kills: the group's limit."""
    hoard = []
    while True:
        hoard.append(bytearray(os.urandom(1) * (8 * MEGABYTE)))
        time.sleep(0.2)
        beat(1)


def limit():
    """Grow until the process' own limit."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 300 * MEGABYTE,) * 2)
    out_of_memory()


def exception():
    raise ValueError("logits and labels must have the same shape")


def silent_exit():
    """Report nothing for a while, and end."""
    time.sleep(25)
    os._exit(3)


def neighbour():
    import keras
    import numpy as np

    x = np.random.default_rng(0).random((6400, 16), dtype=np.float32)
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1500), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, x[:, :1], batch_size=32, epochs=400, verbose=0)


KINDS = {
    "outside": outside, "limit": limit, "oom": out_of_memory, "exception": exception,
    "segfault": lambda: ctypes.string_at(0), "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "silent exit": silent_exit, "exit hang": lambda: threading.Thread(target=threading.Event().wait).start(),
    "neighbour": neighbour,
}  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] != "neighbour":
        beat()
    for group in sys.argv[2:]:  # the control group, which only this process is in
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    KINDS[sys.argv[1]]()
