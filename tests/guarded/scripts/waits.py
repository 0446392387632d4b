"""A loop that counts its own batches and then waits once, in the way named by the first argument.

The second argument: for "feeder", the port of a server that answers late; for "sleep", the seconds.
"""

import inspect  # noqa: F401 - as every training library does: it decodes what a line of the script calls
import queue
import socket
import sys
import threading
import time

import stallguard

kind, argument = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
BATCHES, PACE = 60, 0.05
lock = threading.Lock()
never = threading.Event()


def wait_for_lock():
    lock.acquire()
    lock.acquire()


def wait_with_lock():
    lock.acquire()
    with lock:
        pass


def wait_for_thread():
    thread = threading.Thread(target=never.wait, daemon=True)
    thread.start()
    thread.join()


def wait_for_feeder():
    """Wait for a queue that another thread fills from a slow socket."""
    batches = queue.Queue()

    def feed():
        with socket.create_connection(("127.0.0.1", int(argument))) as link:
            batches.put(link.recv(1))

    threading.Thread(target=feed, daemon=True).start()
    batches.get()


WAITS = {
    "lock": wait_for_lock,
    "with": wait_with_lock,
    "event": never.wait,
    "queue": lambda: queue.Queue().get(),
    "join": wait_for_thread,
    "feeder": wait_for_feeder,
    "sleep": lambda: time.sleep(float(argument)),
}
for batch in range(2 * BATCHES):
    time.sleep(PACE)
    if batch == BATCHES:
        WAITS[kind]()
    stallguard.beat()
print("trained")
