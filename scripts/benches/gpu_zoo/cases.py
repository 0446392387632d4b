"""The cases: which fault, in which training, where, and with which wait for the GPU; and what is right of each."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.children import ROOT
from stallguard.core.diagnosis import causes

# The modules that a training needs, and the environment that has them beside this one.
FRAMEWORKS = {
    "keras-torch": (("keras", "torch"), "torch"), "keras-jax": (("keras", "jax"), "jax"),
    "torch": (("torch",), "torch"), "jax": (("jax",), "jax"), "trainer": (("transformers", "accelerate"), "hf"),
    "lightning": (("pytorch_lightning",), "hf"),
}  # fmt: skip
ALL = tuple(FRAMEWORKS)
TORCH, JAX, KERAS = ("torch", "keras-torch", "trainer", "lightning"), ("jax", "keras-jax"), ("keras-torch", "keras-jax")
PLACES = ("step", "callback", "validation", "first", "save")
IN_STEP, EPOCH = (290, 340), 1  # where it happens: the first and last step of which one is drawn, and the epoch
START, RESTART, ACTED = 25.0, 20.0, 125.0  # seconds that parts of a run take on a machine of 16 cores a GPU
LONGER = {"loader": 5.0, "svd": 2.0}  # as many times as long as `seconds`: of several waits, of a guess
# What no fault of ours makes, but an interpreter without GPU shows in its place.
ON_CPU = frozenset({causes.HOST_DEADLOCK, causes.OUTSIDE_WAIT, causes.BUSY_LOOP, causes.UNKNOWN, causes.SCRIPT_ERROR})


class Right(NamedTuple):
    """What is right of a fault."""

    causes: frozenset[str]
    actions: frozenset[str] = frozenset({"restart"})
    ends: frozenset[str] = frozenset({"equal"})  # as the plain run; near: except for rounding; failed: an exit code
    crashes: bool = False  # it ends the process by itself: there is no silence to notice
    has_line: bool = True


_DEVICE = frozenset({causes.DEVICE_WAIT})
_ERRORS = frozenset({causes.GPU_ERROR, causes.GPU_ERROR_STICKY, "cuda-fault", "gpu-memory-fault"})
_GIVES_UP = frozenset({"restart", "give_up", "finish"})
RIGHT = {
    "kernel": Right(_DEVICE), "streams": Right(_DEVICE), "copy": Right(_DEVICE),
    "loop": Right(_DEVICE | {causes.BUSY_LOOP}), "host": Right(_DEVICE | {causes.HOST_DEADLOCK}),
    # Where no slices apply, the same batch is too large in each attempt: a clear end.
    "oom": Right(
        frozenset({causes.GPU_OUT_OF_MEMORY}), _GIVES_UP, frozenset({"equal", "near", "failed"}), crashes=True
    ),
    "illegal": Right(_ERRORS | {causes.NATIVE_CRASH}, crashes=True),
    "assertion": Right(_ERRORS | {"cuda-assert"}, _GIVES_UP, frozenset({"equal", "failed"}), crashes=True),
    "sticky": Right(_ERRORS | {causes.NATIVE_CRASH}, has_line=False),
    "stopped": Right(frozenset({causes.STOPPED}), frozenset({"notify"}), has_line=False),
}  # fmt: skip


class Case(NamedTuple):
    """A row.  `seconds`: how long what is healthy lasts; `alone`: nothing else runs on its GPU meanwhile."""

    part: str
    framework: str
    fault: str
    place: str = "step"
    wait: str = "spin"
    seconds: float = 0.0
    alone: bool = False
    epochs: int = 3

    @property
    def name(self) -> str:
        return f"{self.framework}-{self.trouble}"

    @property
    def trouble(self) -> str:
        """What happens, and where, in any training."""
        return f"{self.fault}-{self.place}-{self.wait}"

    @property
    def right(self) -> Right:
        return RIGHT[self.fault]

    @property
    def lasts(self) -> float:
        """Seconds that a run of it needs at most, if nothing goes wrong."""
        if self.part == "healthy":
            return START + LONGER.get(self.fault, 1.1) * self.seconds + RESTART
        if self.framework.endswith("-silent"):
            return START + 2 * RESTART
        if self.right.crashes:
            return START + 3 * RESTART
        return START + ACTED + RESTART


def _sick() -> list[Case]:
    rows: list[tuple[str, Sequence[str], Sequence[str], Sequence[str]]] = [
        ("kernel", ALL, PLACES, ("spin",)), ("kernel", ALL, ("step",), ("yield", "block")),
        ("kernel", ("jax-silent",), ("step",), ("spin",)), ("loop", JAX, ("step",), ("spin",)),
        ("streams", TORCH, ("step",), ("spin",)), ("host", ALL, ("step",), ("spin",)),
        ("copy", TORCH, ("callback",), ("spin",)), ("oom", ALL, ("step",), ("spin",)),
        ("illegal", ALL, ("step",), ("spin",)), ("assertion", TORCH, ("step",), ("spin",)),
        ("sticky", ("torch", "jax"), ("step",), ("spin",)), ("stopped", ALL, ("step",), ("spin",)),
    ]  # fmt: skip
    return [
        Case("sick", framework, fault, place, wait)
        for fault, frameworks, places, waits in rows for framework in frameworks for place in places for wait in waits
    ]  # fmt: skip


def _healthy() -> list[Case]:
    rows: list[tuple[str, Sequence[str], str, float, bool]] = [
        ("long", ALL, "step", 20, False), ("compile", ("torch", "jax", *KERAS), "step", 180, False),
        ("autotune", ("torch",), "step", 60, False), ("evaluation", ALL, "callback", 300, False),
        ("loader", TORCH, "first", 18, False), ("svd", ("torch", *KERAS), "callback", 80, False),
        ("shared", ("torch", "jax"), "step", 120, True), ("holds", ("torch",), "step", 60, True),
    ]  # fmt: skip
    epochs = {"holds": 40}
    return [
        Case("healthy", framework, fault, place, "spin", seconds, alone, epochs.get(fault, 3))
        for fault, frameworks, place, seconds, alone in rows for framework in frameworks
    ]  # fmt: skip


CASES = (*_sick(), *_healthy())


def can_be_on_cpu(case: Case) -> bool:
    """Return whether a CPU has something that comes close."""
    return case.fault not in ("streams", "copy", "holds", "sticky" if case.framework == "jax" else "")


def ordered(part: str, wanted: str, seed: int, repeat: int) -> list[Case]:
    """Return the cases of a part, those alone last, so that each beginning has most troubles and libraries.

    `wanted`: a regular expression that a name must contain.
    """
    chance = random.Random(seed)
    left = [case for case in CASES if case.part == part and re.search(wanted, case.name)]
    chance.shuffle(left)
    used: Counter[str] = Counter()
    found: list[Case] = []
    while left:
        best = min(left, key=lambda case: (case.alone, used[case.trouble], used[case.framework]))
        left.remove(best)
        used.update((best.trouble, best.framework))
        found.append(best)
    return found * repeat


def plan(case: Case, seed: int, *, gpu: bool, plain: bool = False) -> dict[str, object]:
    """Return what the child gets; `plain`: nothing happens to it."""
    chance = random.Random(f"{case.name} {seed}")
    at = {"step": chance.randint(*IN_STEP), "callback": chance.randint(*IN_STEP), "first": 0}.get(case.place, EPOCH)
    return {
        "framework": case.framework, "fault": "none" if plain else case.fault, "place": "none" if plain else case.place,
        "wait": case.wait, "at": at, "seconds": case.seconds, "epochs": case.epochs, "gpu": gpu,
    }  # fmt: skip


def python_of(framework: str) -> Path | None:
    """Return the Python that trains with it: this one, that of a variable, or of an environment; None without any."""
    modules, environment = FRAMEWORKS[framework.removesuffix("-silent")]
    if all(importlib.util.find_spec(name) for name in modules):
        return Path(sys.executable)
    named = os.environ.get(f"STALLGUARD_PYTHON_{environment.upper()}")
    own = Path(named) if named else ROOT / ".venvs" / environment / "bin" / "python"
    return own if own.exists() else None
