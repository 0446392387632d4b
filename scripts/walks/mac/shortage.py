"""The checks of a training beside others: one that saturates the GPU, and memory that is said to be short.

Must not judge: verdicts_shortage does.
"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mac import verdicts_shortage as say
from mac.gpu import DUMPS, IMPORT, Load, at_work
from mac.guarded import BEATS, QUIET, GuardedRun, started
from mac.scene import Scene, undisturbed, until
from mac.table import Row, unknown

LOAD = Path(__file__).with_name("waiting_load.py")
WATCH, STALL = 40.0, 90.0  # seconds beside the other; for the blocked step to be called a stall
SETTLES = 5.0  # seconds after which the last work of the blocked training has left the GPU's counters
FEW = 10  # batches before anything is done
# Apple's memory_pressure.c: -S sets kern.memorypressure_manual_trigger, for which it must be root, and sets it back
# after -s seconds; XNU's handler sets the level that kern.memorystatus_vm_pressure_level says.
SHORT = 25  # seconds of simulated shortage
SIMULATE = ("/usr/bin/memory_pressure", "-S", "-l", "warn", "-s", str(SHORT))
AS_ROOT = ("/usr/bin/sudo", "-n")  # asks for no password: it is refused, or was given a moment ago


def shared(scene: Scene) -> Iterator[Row]:
    """Guard a training while another process saturates the GPU: healthy first, then blocked."""
    block, python = scene.home / "shared-block", next(iter(scene.metal_pythons.values()))
    words = ("run", "--observe", "--python", python, *QUIET, str(LOAD),
             str(scene.home / "shared-once"), "pause", str(block))  # fmt: skip
    with at_work(scene) as other:
        until(lambda: other.batches > DUMPS or other.process.poll() is not None, IMPORT)
        if not other.batches or not other.gpus:
            seen = "no answer" if other.gpus is None else f"{other.gpus} GPUs, {other.batches} batches"
            yield unknown("training on a shared GPU", "the other process does not train on the GPU", seen)
            return
        with started(scene, *words) as one:
            until(lambda: one.beats > FEW or one.process.poll() is not None, IMPORT)
            yield _beside(one, other)
            block.touch()
            yield _blocked(one)


def _beside(one: GuardedRun, other: Load) -> Row:
    beats, batches, stalls = one.beats, other.batches, len(one.names("training.stalled"))
    until(lambda: one.process.poll() is not None, WATCH)
    return say.beside(
        one.beats - beats, other.batches - batches, len(one.names("training.stalled")) - stalls,
        len(one.names("training.suspected")), one.output.strip()[-200:],
    )  # fmt: skip


def _blocked(one: GuardedRun) -> Row:
    until(lambda: "waiting since" in one.output, IMPORT)
    stalls = len(one.names("training.stalled"))
    until(lambda: len(one.names("training.stalled")) > stalls or one.process.poll() is not None, STALL)
    began = re.search(r"^waiting since ([\d.]+)$", one.output, re.MULTILINE)
    at = float(began[1]) if began else None
    called = one.names("training.stalled")[stalls:]
    devices = [] if at is None else readings(one.events, "device", at + SETTLES)
    return say.blocked(None if at is None or not called else _stamp(called[0]) - at, devices)


def readings(events: Sequence[Mapping[str, Any]], sensor: str, since: float) -> list[Mapping[str, Any]]:
    """Return what a sensor has read since a time, given in seconds since the epoch."""
    found = [event for event in events if event.get("reading", {}).get("sensor") == sensor]
    return [event["reading"] for event in found if _stamp(event) >= since]


def _stamp(event: Mapping[str, Any]) -> float:
    return dt.datetime.fromisoformat(str(event["time"])).timestamp()


def memory(scene: Scene) -> Iterator[Row]:
    """Guard a training while macOS says, for SHORT seconds, that memory is short."""
    script, enough = scene.home / "short.py", scene.home / "short-enough"
    script.write_text(BEATS)
    with started(scene, "run", "--python", sys.executable, *QUIET, str(script), str(enough)) as one:
        until(lambda: one.beats > FEW or one.process.poll() is not None, IMPORT)
        before, beats = time.time(), one.beats
        for words in (SIMULATE, (*AS_ROOT, *SIMULATE)):
            code, text = _simulated(scene, words)
            if code == 0:
                break
        until(lambda: one.beats > beats + FEW, STALL if code == 0 else 0.0)
        levels = [str(read.get("pressure")) for read in readings(one.events, "memory", before) if read.get("pressure")]
        alarms = [name for name in ("training.stalled", "attempt.restarting") for _ in one.names(name)]
        yield say.short(code, text, levels, alarms, one.beats - beats)


def _simulated(scene: Scene, words: Sequence[str]) -> tuple[int, str]:
    """Simulate a shortage to its end: macOS stays short of memory if the tool is ended before."""
    with undisturbed():
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace", timeout=3 * SHORT, check=False, cwd=scene.home,
            )  # fmt: skip
        except OSError as error:
            return 127, str(error)
        except subprocess.TimeoutExpired as error:
            return 127, f"{error}; it was ended: if macOS goes on to report short memory, restart the Mac"
    scene.files["memory_pressure_simulated.txt"] = done.stdout
    return done.returncode, done.stdout
