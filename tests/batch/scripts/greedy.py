"""A loop of its own whose step really takes memory in proportion to its batch, under a limit that it sets itself."""

import argparse
import ctypes
import os
import resource
import time
from pathlib import Path

import stallguard

MEGABYTE = 1 << 20
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=int(os.environ.get("BATCH", "64")))
# Between the sizes 200 and 225 that find-batch tries: neither is at the limit, which moves by the stack of a thread.
parser.add_argument("--room", type=int, default=212, help="megabytes; a row takes one")
parser.add_argument("--steps", type=int, default=40)
options = parser.parse_args()

# A thread that allocates for the first time reserves 64 MB of address space for an arena, at any moment.
ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX
stallguard.beat()  # the probe's thread begins with it, and reserves address space
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + options.room * MEGABYTE,) * 2)
for _ in range(options.steps):
    activations = bytearray(options.batch_size * MEGABYTE)
    time.sleep(0.02)
    del activations
    stallguard.beat()
print("trained with", options.batch_size, flush=True)
