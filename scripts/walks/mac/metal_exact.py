"""The checks of exactness on Metal: a fit that is killed and resumed, and one whose batches are trained in slices.

Each is made for each pair of TensorFlow and plug-in that the walk has.  Must not judge: verdicts_metal does.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from mac import verdicts_metal
from mac.guarded import QUIET, GuardedRun, started
from mac.scene import Scene, until
from mac.table import Row, judged, unknown
from mac.verdicts_metal import Apart, Resumed, Sliced
from stallguard.host.darwin import libproc
from stallguard.host.psutil_errors import ERRORS

LOAD = Path(__file__).with_name("fit_load.py")
ENDS = 240.0  # seconds for one fit, with the framework's import and the first batch's compilation
LOOK = 0.1  # seconds between two looks at a footprint
UNDISTURBED, REPETITIONS = 3, 5
SEED = 39  # of the batches at which the fits are killed
BATCHES = 80  # of the small fit
FIRST, LAST = 20, 70  # the batches between which a fit is killed: some checkpoints lie before each
OFTEN = ("--checkpoint-every", "0.2s", "--set", "checkpoint.cost=100%")
FACTORS = (1, 1, 2, 4)  # slices of a batch; the whole batch twice shows what a repetition changes
SIDE = 96  # of the images of the wide fit: the activations of a whole batch take about 1 GB


class Fit(NamedTuple):
    """What was seen of one fit.  `weights`: None if it did not end in good order; `peak`: bytes, None: not readable."""

    code: int | None
    gpus: int | None
    starts: list[int]  # the first batch of each attempt
    weights: bytes | None
    peak: int | None
    said: str


def resume(scene: Scene, device: str = "gpu") -> Iterator[Row]:
    """Kill a fit at a batch that a seed chooses, let it be resumed, and compare its weights with undisturbed ones."""
    for pair, python in scene.metal_pythons.items():
        undisturbed = [fit(scene, python, device, "small", OFTEN)]
        if why := _useless(pair, undisturbed[0], device):
            yield why
            continue
        undisturbed += [fit(scene, python, device, "small", OFTEN) for _ in range(UNDISTURBED - 1)]
        same = [_apart(undisturbed[0], other) for other in undisturbed[1:]]
        yield verdicts_metal.repeats(pair, same)
        resumed = []
        dice = random.Random(SEED)  # noqa: S311 - no secret: the same batches in each walk
        for _ in range(REPETITIONS):
            at = dice.randint(FIRST, LAST)
            seen = fit(scene, python, device, "small", OFTEN, at)
            resumed.append(Resumed(at, seen.starts, seen.code, _apart(undisturbed[0], seen)))
        yield verdicts_metal.resume(pair, same, resumed)


def slices(scene: Scene, device: str = "gpu") -> Iterator[Row]:
    """Train the same batches whole, in 2 and in 4 slices; compare the weights and the peak of memory."""
    for pair, python in scene.metal_pythons.items():
        seen: list[Sliced] = []
        whole: Fit | None = None
        for factor in FACTORS:
            one = fit(scene, python, device, f"wide:{SIDE}", ("--set", f"policy.microbatches={factor}"))
            if whole is None and (why := _useless(pair, one, device)):
                yield why
                break
            whole = whole or one
            seen.append(Sliced(factor, _apart(whole, one), one.peak))
        else:
            yield from verdicts_metal.slices(pair, seen)


def fit(
    scene: Scene, python: str, device: str, kind: str, options: tuple[str, ...] = (), kill: int | None = None
) -> Fit:
    """Guard one fit to its end, which comes within ENDS; `kill`: the batch after which it is killed."""
    out = scene.home / f"fit-{time.monotonic_ns()}.weights"
    words = ("run", "--python", python, *QUIET, *options, str(LOAD), str(out), device, kind)
    peak, end = 0, time.monotonic() + ENDS
    with started(scene, *words, *(() if kill is None else (str(kill),))) as one:
        while one.process.poll() is None and time.monotonic() < end:
            peak = max(peak, footprint(one) or 0)
            time.sleep(LOOK)
        text, code = one.output, one.process.poll()
        until(lambda: not one.run or (one.run.path / "outcome.json").exists(), 5.0)
    weights = out.read_bytes() if out.exists() and code == 0 else None
    for left in (out, out.with_suffix(".killed")):
        left.unlink(missing_ok=True)
    gpus = next((int(line.split()[1]) for line in text.splitlines() if line.startswith("gpus ")), None)
    return Fit(code, gpus, starts(text), weights, peak or None, text.strip()[-200:])


def starts(text: str) -> list[int]:
    """Return the first batch of each attempt, from what all attempts have printed; -1: one began without a batch."""
    found: list[int] = []
    fresh = False
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "gpus":
            found.append(-1)
            fresh = True
        elif word == "batch" and fresh and rest.isdigit():
            found[-1], fresh = int(rest), False
    return found


def footprint(one: GuardedRun) -> int | None:
    """Return the bytes of the training: the highest footprint so far on a Mac, those in memory now on Linux."""
    who = one.training()
    if who is None:
        return None
    if sys.platform == "darwin":
        usage = libproc.rusage(who.pid)
        return usage.lifetime_max_phys_footprint if usage else None
    try:
        return int(psutil.Process(who.pid).memory_info().rss)
    except ERRORS:
        return None


def _apart(first: Fit, other: Fit) -> Apart | None:
    if first.weights is None or other.weights is None:
        return None
    return verdicts_metal.apart(first.weights, other.weights)


def _useless(pair: str, seen: Fit, device: str) -> Row | None:
    """Return the row of a pair with which nothing can be compared."""
    check = f"fit on Metal ({pair})"
    if device == "gpu" and seen.gpus == 0:
        return unknown(check, "TensorFlow has no GPU here: tensorflow-metal is absent or does not load", "gpus 0")
    if seen.weights is None:
        return judged(check, holds=False, figure=f"exit code {seen.code}", means="a small fit ends",
                      otherwise=f"a small fit does not end: {seen.said}")  # fmt: skip
    return None
