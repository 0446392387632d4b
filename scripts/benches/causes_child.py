"""Programs that go wrong, each in one way: the children of `scripts/bench causes`.

    causes_child.py KIND [ARGUMENT]

The kinds in KERAS train a small model with TensorFlow and know nothing of stallguard; the others only beat.
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
    """Train for a while, or as good as."""
    import stallguard

    for _ in range(count):
        sum(range(WORK))
        stallguard.beat()


def stopped():
    """Be stopped, as by Ctrl-Z."""
    os.kill(os.getpid(), signal.SIGSTOP)


def gil():
    """Wait for a native lock while holding the interpreter's."""
    libc = ctypes.PyDLL(None)
    mutex = ctypes.create_string_buffer(128)
    libc.pthread_mutex_init(mutex, None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def busy():
    """Loop for ever."""
    while True:
        pass


def deadlock():
    """Take two locks in two orders."""
    first, second = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def take(one, other):
        with one:
            both.wait()
            with other:
                pass

    threading.Thread(target=take, args=(second, first), daemon=True).start()
    take(first, second)


def outside():
    """Wait for an answer that never comes."""
    ours, theirs = socket.socketpair()
    ours.recv(1)
    theirs.close()


def _fill(pace=0.2):
    hoard = []
    while True:
        hoard.append(bytearray(os.urandom(1) * (8 * MEGABYTE)))
        time.sleep(pace)
        beat(1)


def limit():
    """Grow until the process' own limit."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 300 * MEGABYTE,) * 2)
    _fill()


def oom(group):
    """Grow until the control group's limit, which the kernel defends by killing."""
    (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    _fill()


def exception():
    """Make a mistake."""
    raise ValueError("logits and labels must have the same shape")


def segfault():
    """Read where nothing is."""
    ctypes.string_at(0)


def killed():
    """Be killed from outside."""
    os.kill(os.getpid(), signal.SIGKILL)


def silent_exit():
    """Say nothing for a while, and go."""
    time.sleep(25)
    os._exit(3)


def exit_hang():
    """Be done, but for a thread that never ends."""
    threading.Thread(target=threading.Event().wait).start()


# ---- with TensorFlow --------------------------------------------------------------------------------------------


def _train(data=None, callbacks=(), layers=(), batches=40, epochs=400, width=8):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import numpy as np
    import tensorflow as tf

    keras = tf.keras
    generator = np.random.default_rng(0)
    x = generator.random((32 * batches, 16), dtype=np.float32)
    model = keras.Sequential([keras.layers.Input((16,)), *layers, keras.layers.Dense(width), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    if data is None:
        model.fit(x, x[:, :1], batch_size=32, epochs=epochs, verbose=0, callbacks=list(callbacks))
    else:
        model.fit(data, epochs=epochs, verbose=0, callbacks=list(callbacks))


def blocked_op():
    """Wait inside a step for a queue that stays empty."""
    import tensorflow as tf

    class Trap(tf.keras.layers.Layer):
        """Blocks at its 200th batch."""

        def __init__(self):
            super().__init__()
            self.seen = tf.Variable(0, trainable=False, dtype=tf.int32)
            self.queue = tf.queue.FIFOQueue(1, tf.float32, shapes=[()])

        def call(self, inputs):
            late = self.seen.assign_add(1) > 200
            return inputs + tf.cond(late, self.queue.dequeue, lambda: tf.zeros(()))

        def compute_output_shape(self, shape):
            return shape

    _train(layers=[Trap()])


def blocked_generator():
    """Be fed by a generator that stops giving."""
    import numpy as np
    import tensorflow as tf

    def batches():
        for number in range(100_000):
            if number == 400:
                threading.Event().wait()
            yield np.zeros((32, 16), np.float32), np.zeros((32, 1), np.float32)

    shapes = (tf.TensorSpec((32, 16), tf.float32), tf.TensorSpec((32, 1), tf.float32))
    _train(tf.data.Dataset.from_generator(batches, output_signature=shapes).prefetch(2))


def callback_lock():
    """Wait for a lock in a callback."""
    import tensorflow as tf

    class Wait(tf.keras.callbacks.Callback):
        """Takes a lock twice."""

        def on_train_batch_end(self, batch, logs=None):
            if batch == 30:
                lock = threading.Lock()
                lock.acquire()
                lock.acquire()

    _train(callbacks=[Wait()])


def neighbour():
    """Train on and on."""
    _train(width=1500, batches=200)


KERAS = ("blocked_op", "blocked_generator", "callback_lock", "neighbour")


def main():
    """Go wrong."""
    kind, *argument = sys.argv[1:]
    if kind not in KERAS:
        beat()
    globals()[kind](*argument)


if __name__ == "__main__":
    main()
