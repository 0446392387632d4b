"""A training with one long step and one that never ends: `steps_load.py DUMPED LONG SIZE`.

It trains until the file DUMPED is there, computes one step of LONG seconds on the device alone, trains on, and blocks
in a lock.  SIZE: of the matrices; the products of one step are all of one program of the device, so that the processor
has nothing to do.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

import stallguard

dumped, long, size = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
FEW = 20  # steps between what is watched
print("gpus", len(tf.config.list_physical_devices("GPU")), flush=True)
matrix = tf.random.normal((size, size)) / size**0.5


@tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator] # frameworks are untyped here
def products(count: Any) -> Any:
    """Multiply so many times."""
    return tf.reduce_sum(tf.while_loop(lambda at, _: at < count, lambda at, a: (at + 1, tf.tanh(a @ matrix)),
                                       (tf.constant(0), matrix))[1])  # fmt: skip


def step(count: int) -> float:
    """Take one step; return its seconds."""
    began = time.monotonic()
    float(products(tf.constant(count)))
    return time.monotonic() - began


def train() -> None:
    """Take a few ordinary steps."""
    for _ in range(FEW):
        step(4)
        stallguard.beat()


step(4)
each = step(40) / 40  # seconds of one product, without what the first call compiles
while not dumped.exists():
    train()
print("long step", flush=True)
print(f"long step took {step(max(1, round(long / each))):.1f} s", flush=True)
stallguard.beat()
train()
print("blocked", flush=True)
lock = threading.Lock()
lock.acquire()
lock.acquire()
