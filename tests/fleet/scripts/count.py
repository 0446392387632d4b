"""A loop of its own whose result depends on each of its steps, in order."""

import hashlib
import os
import sys
import time
from pathlib import Path

import stallguard

state = {"step": 0, "digest": "0"}


def save(path):
    Path(path).write_text(f"{state['step']} {state['digest']}")


def load(path):
    step, digest = Path(path).read_text().split()
    state.update(step=int(step), digest=digest)


steps, pause = int(sys.argv[1]), float(sys.argv[2])
stallguard.checkpoint(save, load)
print("begins at", state["step"], "pid", os.getpid(), flush=True)
while state["step"] < steps:
    state["digest"] = hashlib.sha256(f"{state['step']} {state['digest']}".encode()).hexdigest()
    state["step"] += 1
    time.sleep(pause)
    stallguard.beat()
print("digest", state["digest"], flush=True)
