"""Threads that wait in every way; prints as JSON which kind of wait the probe sees for each of them."""

import concurrent.futures
import dis  # noqa: F401 - as training libraries do, by way of inspect
import json
import multiprocessing
import os
import queue
import select
import selectors
import socket
import subprocess
import sys
import threading
import time
import types

from stallguard.probe import libraries, outbox, wire
from stallguard.probe.beats import Beats
from stallguard.probe.patches import Patches
from stallguard.probe.wait_evidence import WaitEvidence

LONG = 500
lock = threading.Lock()
lock.acquire()
shared = multiprocessing.Lock()
shared.acquire()
never = threading.Event()
near, far = socket.socketpair()
reading, writing = os.pipe()
helper = threading.Thread(target=never.wait, daemon=True)
helper.start()


def enter(what):
    with what:
        pass


def full_queue():
    full = queue.Queue(1)
    full.put(1)
    full.put(2)


def selector():
    one = selectors.DefaultSelector()
    one.register(reading, selectors.EVENT_READ)
    one.select()


def future():
    concurrent.futures.ThreadPoolExecutor(1).submit(never.wait).result()


# One line for each, so that the instruction in which it waits is its own.
def acquire():
    lock.acquire()


def acquire_for_long():
    lock.acquire(True, LONG)


def acquire_by_name():
    lock.acquire(timeout=LONG)


def acquire_by_call():
    lock.acquire(bool(min(3, 4)), max(1, LONG))


def sleep():
    time.sleep(LONG)


def receive():
    near.recv(10)


def read():
    os.read(reading, 1)


class Wrapped:
    """Its methods are functions in C that the probe wraps, as it does Tensor.item."""

    acquire = staticmethod(lock.acquire)
    recv = staticmethod(near.recv)


def wrapper(original):
    def wrapped(*args):
        return original(*args)

    return wrapped


patches = Patches()
assert patches.wrap(Wrapped, "acquire", wrapper)
assert patches.wrap(Wrapped, "recv", wrapper)


def acquire_through_wrapper():
    Wrapped.acquire()


def acquire_for_long_through_wrapper():
    Wrapped.acquire(True, LONG)


def receive_through_wrapper():
    Wrapped.recv(10)


def of_unknown_name():
    queue.SimpleQueue().get()


class Array:
    """An array whose value a device does not have yet: its method waits in C."""

    item = staticmethod(lock.acquire)


class Number:
    """The same for Python's own conversions, which find a function in C by its slot."""


Number.__float__ = Number.__bool__ = lock.acquire
libraries.read("torch")
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.__file__ = "/no/torch/__init__.py"


def item():
    Array().item()


def number():
    float(Number())


def truth():
    if Number():
        pass


class Ordered:
    """Compared with anything, it gives such a number."""

    def __gt__(self, other):
        return Number()


def compared():
    if Ordered() > 1:
        pass


def of_library(name, does):
    """Return a function that lies in a file of torch."""
    made = {"lock": lock, "near": near, "Array": Array, "Number": Number}
    exec(compile(f"def {name}():\n    {does}\n", "/no/torch/cuda.py", "exec"), made)  # noqa: S102
    return made[name]


WAITS = {
    "lock": [
        acquire, lambda: enter(lock), lambda: enter(threading.Condition(lock)), never.wait, queue.Queue().get,
        full_queue, helper.join, future, threading.Semaphore(0).acquire, threading.Barrier(2).wait,
        acquire_through_wrapper,
    ],
    "timed": [
        acquire_for_long, acquire_by_name, acquire_by_call, lambda: never.wait(LONG), lambda: helper.join(LONG),
        lambda: queue.Queue().get(timeout=LONG), acquire_for_long_through_wrapper,
    ],
    "sleep": [sleep],
    "io": [
        receive, read, selector, near.makefile("rb").readline, lambda: select.select([reading], [], []),
        lambda: subprocess.run(["cat"], stdin=reading, check=False), lambda: enter(shared),
        receive_through_wrapper,
    ],
    "library": [of_library("forward", "near.recv(10)")],
    "device": [
        item, number, of_library("synchronize", "near.recv(10)"), of_library("loss", "Array().item()"),
        of_library("converted", "float(Number())"),
    ],
    "none": [of_unknown_name],
}  # fmt: skip
WAITS["device" if sys.version_info >= (3, 11) else "none"] += [truth, compared]
threads = []
for kind, functions in WAITS.items():
    for index, function in enumerate(functions):
        threads.append((kind, index, threading.Thread(target=function, daemon=True)))
        threads[-1][2].start()
time.sleep(1.0)

beats = Beats(outbox.begin(outbox.private(), 1, 2, 3))
now = time.monotonic_ns() + 1_000_000  # after all that the beats have as progress
found = []
for kind, index, thread in threads:
    beats._thread = thread.ident
    waits = WaitEvidence(beats)
    waits.look(sys._current_frames(), now + 10)
    waits.look(sys._current_frames(), now + 20)
    since = beats.slots[wire.SLOT["wait_ns"]]
    found.append([kind, index, wire.WAITS[beats.slots[wire.SLOT["wait"]]], since - now])
print(json.dumps(found), flush=True)
os._exit(0)
