"""An MLX training that waits for ever, once, after step 30, in the way named by the first argument.

The second argument is a file that remembers that it has waited: a second start goes through.
"""

import ctypes
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path

import mlx.core as mx
import mlx.optimizers as optim
from mlx import nn

kind, memory = sys.argv[1], Path(sys.argv[2])
AT, STEPS = 40, 60
lock = threading.Lock()
batches = queue.Queue(1)
TASKS = Path("/proc/self/task")
before = set(TASKS.iterdir()) if kind == "eval" else set()
net, optimizer = nn.Linear(4, 1), optim.Adam(1e-2)
mx.eval(net.parameters())
graded = nn.value_and_grad(net, lambda net, x: (net(x) ** 2).mean())


def stop_the_device():
    """Let the threads of MLX's own sleep in pause(), as handler of a signal: what they compute never ends."""
    number = signal.SIGRTMIN + 5
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = ctypes.c_int, ctypes.c_void_p
    libc.signal(number, ctypes.cast(libc.pause, ctypes.c_void_p))
    for thread in set(TASKS.iterdir()) - before:
        libc.syscall(234, os.getpid(), int(thread.name), number)  # tgkill on x86-64


def load():
    for at in range(STEPS):
        if kind == "loader" and at == AT and not memory.exists():
            memory.write_text("waited")
            lock.acquire()
            lock.acquire()
        batches.put(at)  # arrays belong to the thread that makes them


if kind == "loader":
    threading.Thread(target=load, daemon=True).start()
for at in range(STEPS):
    time.sleep(0.05)
    x = mx.ones((8, 4)) * (batches.get() if kind == "loader" else at)  # named: loader
    loss, grads = graded(net, x)
    optimizer.update(net, grads)
    if kind in ("lock", "eval") and at == AT and not memory.exists():
        memory.write_text("waited")
        if kind == "lock":
            lock.acquire()
            lock.acquire()  # named: lock
        stop_the_device()
    mx.eval(net.state, optimizer.state)  # named: eval
print("trained")
