"""`scripts/bench fuzz`: damaged and hostile inputs for each decoder of what comes from outside.

Valid samples are changed, and inputs are built from pieces (fuzzing/mutator.py); a seed gives the same ones each time.
What once failed is in tests/recordings/fuzz.json, and comes first.
A decoder must not raise anything but the errors that it documents, must not take long, must start nothing and remove
nothing, and what it returns must hold what its row in fuzzing/targets.py says: no changed record counts a batch.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from fuzzing import targets
from fuzzing.mutator import Mutator
from fuzzing.targets import Target
from harness.results import Goal, concluded

INPUTS = 3000
CORPUS = targets.RECORDINGS / "fuzz.json"  # what once failed, by decoder
SLOW = 1.0  # seconds of processor time for one input, at most: a tool's output is read every few seconds
HANG = 20.0  # seconds of processor time after which one input is ended
SHOWN = 3  # failures of one decoder
# What a decoder has no reason to do, as Python reports it (audit events).
ACTIONS = frozenset((
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.remove", "os.rmdir", "os.rename", "os.symlink", "os.chmod",
    "subprocess.Popen", "shutil.rmtree", "shutil.copyfile", "pty.spawn", "ctypes.dlopen", "socket.connect",
    "pickle.find_class", "os.kill", "os.killpg",
))  # fmt: skip


class Hang(BaseException):
    """One input took too long.  No Exception: no decoder can take it for an error of its input."""


class Result(NamedTuple):
    """What was seen of one decoder.  `refused`: inputs with a documented error; `slowest`: seconds."""

    name: str
    inputs: int
    refused: int
    seconds: float
    slowest: float
    failures: list[str]


class Watch:
    """Notes what Python reports while a decoder runs."""

    def __init__(self) -> None:
        self.on, self.seen = False, ""
        sys.addaudithook(self._note)

    def _note(self, event: str, _arguments: object) -> None:
        if self.on and event in ACTIONS:
            self.seen = event


@functools.cache
def the_watch() -> Watch:
    """Return the one of this process: Python cannot remove an audit hook."""
    return Watch()


def fuzz(target: Target, inputs: int, seed: int, watch: Watch, corpus: Sequence[str] = ()) -> Result:
    """Feed one decoder.  `corpus`: inputs that are fed first, a character for each byte."""
    failures: list[str] = []
    refused, slowest, count, clock = 0, 0.0, 0, time.thread_time
    began = time.monotonic()
    known = [text.encode("latin-1") for text in corpus]
    for data in itertools.chain(known, Mutator(target.samples, seed, target.words).inputs(inputs)):
        count += 1
        start, watch.on, watch.seen, wrong = clock(), True, "", ""
        signal.setitimer(signal.ITIMER_VIRTUAL, HANG)
        try:
            found = target.call(data)
            watch.on = False
            if target.check is not None:
                target.check(data, found)
        except Hang:
            wrong = f"hangs for {HANG:g} s"
        except target.errors:
            refused += 1
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            last = traceback.extract_tb(error.__traceback__)[-1]
            wrong = f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
        finally:
            watch.on = False
        took = clock() - start
        slowest = max(slowest, took)
        wrong = wrong or (f"does {watch.seen}" if watch.seen else "") or (f"takes {took:.1f} s" if took > SLOW else "")
        if wrong:
            failures.append(f"{wrong[:200]}  <- {data[:160]!r}")
            if len(failures) >= SHOWN:
                break
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    return Result(target.name, count, refused, time.monotonic() - began, slowest, failures)


def _ended(_number: int, _frame: FrameType | None) -> None:
    raise Hang


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """Provide an empty directory, in memory if there is one, and a data directory in it."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a directory with a name of its own
    before = os.environ.get("STALLGUARD_HOME")
    with tempfile.TemporaryDirectory(prefix="sg-fuzz-", dir=memory) as place:
        os.environ["STALLGUARD_HOME"] = place
        try:
            yield Path(place)
        finally:
            os.environ.pop("STALLGUARD_HOME")
            if before is not None:
                os.environ["STALLGUARD_HOME"] = before


def run(inputs: int, seed: int, only: str = "", *, progress: bool = False) -> list[Result]:
    """Feed each decoder whose name contains `only`."""
    handler = signal.signal(signal.SIGVTALRM, _ended)
    watch, results = the_watch(), list[Result]()
    corpus = json.loads(CORPUS.read_bytes())
    try:
        with workplace() as place:
            for target in targets.catalog(place):
                if only in target.name:
                    results.append(fuzz(target, inputs, seed, watch, corpus.get(target.name, ())))
                    if progress:
                        print(row(results[-1]), flush=True)
    finally:
        signal.signal(signal.SIGVTALRM, handler)
    return results


def joined(parts: list[list[Result]]) -> list[Result]:
    """Return the results of several processes as one."""
    whole = []
    for same in zip(*parts, strict=True):
        failures = [text for one in same for text in one.failures][:SHOWN]
        whole.append(
            Result(
                same[0].name, sum(one.inputs for one in same), sum(one.refused for one in same),
                max(one.seconds for one in same), max(one.slowest for one in same), failures,
            )
        )  # fmt: skip
    return whole


def row(one: Result) -> str:
    speed = one.inputs / max(one.seconds, 1e-9)
    share, slowest = one.refused / max(one.inputs, 1), one.slowest * 1e3
    figures = f"{one.inputs:>10,}  {share:>7.1%}  {slowest:>9.1f} ms  {speed:>9,.0f}/s"
    state = "ok" if not one.failures else "FAILS"
    return "\n".join([f"{one.name:<28} {figures}  {state}", *(f"    {text}" for text in one.failures)])


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inputs", type=int, default=INPUTS, help="for each decoder")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", default="", help="decoders whose name contains this")
    options.add_argument("--jobs", type=int, default=1, help="processes")
    given = options.parse_args()
    began = time.monotonic()
    print(f"{'decoder':<28} {'inputs':>10}  {'refused':>7}  {'slowest':>12}  {'speed':>11}")
    if given.jobs > 1:
        shares = [(given.inputs + at) // given.jobs for at in range(given.jobs)]
        work = [(share, given.seed * 1000 + at, given.only) for at, share in enumerate(shares)]
        with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
            results = joined(pool.starmap(run, work))
        print("\n".join(map(row, results)))
    else:
        results = run(given.inputs, given.seed, given.only, progress=True)
    failed = [one.name for one in results if one.failures]
    total = sum(one.inputs for one in results)
    scale = f"{len(results)} decoders, {total:,} inputs, {time.monotonic() - began:,.0f} s"
    words = f"\n{scale}: only documented errors, none over {SLOW:g} s, no false beat, nothing started or removed; "
    goals = [Goal("decoders that fail", len(failed) if results else math.nan, 0)]
    return concluded(goals, words + (f"{', '.join(failed)} fail; " if failed else ""))


if __name__ == "__main__":
    raise SystemExit(main())
