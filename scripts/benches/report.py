"""`scripts/bench report`: a night of 8 hours at 200 batches a second with 10 stalls, made into a report.

The night is synthetic: a journal with every line that a real run would write, evidence with stacks and output beside
it.  Each form of the report is made by the command line in a process of its own, as a user would.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from harness.children import environment
from harness.results import Goal, concluded
from stallguard.core.actions import Action, Announce, Collect, Conclude, Diagnosed, Launch, Signal
from stallguard.core.diagnosis import causes
from stallguard.core.diagnosis.causes import ON_CPU
from stallguard.core.events import Collected, Event, Exited, Heartbeat, Launched, ProbeConnected, ProbeNote, Sampled
from stallguard.core.readings import Device, Files, Machine, Memory, Process
from stallguard.core.verdicts import Decision, Finding
from stallguard.report import attempt_rows
from stallguard.storage.run_files import Identity, Outcome, RunRequest, write
from stallguard.supervisor import notices

SECONDS, MB = 2.0, 2.0  # goals, at most: for the HTML, made by the command line, and for its size
HOURS, RATE, STALLS = 8.0, 200, 10
START = dt.datetime(2026, 3, 7, 22, 30, tzinfo=dt.UTC)
MONOTONIC = 51_234.5  # of the supervisor at the start
STARTING, SILENCE, EPOCH, EPOCHS = 22.0, 80.0, 300.0, 100  # seconds; epochs
REPEATS = 3  # the fastest counts: other work of the machine is not ours
WHERE = "train.py:88 in step"


class Night(NamedTuple):
    """What is written: hours, batches a second, stalls."""

    hours: float = HOURS
    rate: int = RATE
    stalls: int = STALLS

    @property
    def seconds(self) -> int:
        return int(self.hours * 3600)

    @property
    def per_epoch(self) -> int:
        return int(EPOCH * self.rate)

    def stalled_at(self) -> list[int]:
        return [int(self.seconds * (number + 0.7) / (self.stalls + 1)) for number in range(self.stalls)]


class Teller:
    """Lives through a night second by second and yields what a journal would get."""

    def __init__(self, night: Night) -> None:
        self._night, self._chance = night, random.Random(7)
        self._attempt = 1
        self._began, self._silent = 0.0, -1.0
        self._beats, self._changes, self._progress = 0, 0, 0.0
        self._total, self._cpu, self._input = 0, 0.0, 0.0

    def lines(self) -> Iterator[tuple[float, Event | Action]]:
        """Yield (second of the night, event or action)."""
        yield 0.0, Announce("run.started", {"command": "train.py --epochs 100", "run": "night"})
        yield from self._launch(0.0)
        stalls = self._night.stalled_at()
        for second in range(self._night.seconds):
            if second in stalls:
                self._silent = float(second)
            yield from self._heartbeats(float(second))
            yield from self._sampled(float(second))
            if self._silent >= 0 and second - self._silent == SILENCE:
                yield from self._stalled(float(second), stalls.index(int(self._silent)) + 1)
        yield self._night.seconds, Exited(at=0.0, attempt=self._attempt, code=0)
        yield self._night.seconds, Conclude(0, "the training is finished")

    def _launch(self, at: float) -> Iterator[tuple[float, Event | Action]]:
        resumed = self._attempt > 1
        yield at, Launch(self._attempt, resume=resumed)
        yield at, Launched(at=0.0, attempt=self._attempt, pid=4000 + self._attempt, resumed=resumed)
        versions = {"python": "3.11.9", "tensorflow": "2.18.1", "tensorflow-metal": "1.2.0", "keras": "3.8.0"}
        yield (
            at,
            ProbeConnected(at=0.0, attempt=self._attempt, pid=4000 + self._attempt, armed=True, versions=versions),
        )
        if resumed:
            again = self._total % self._night.per_epoch  # the checkpoint is the one at the beginning of the epoch
            self._total -= again
            text = f"resuming from a checkpoint (epoch {self._epoch() + 1}, batch 0)"
            yield at, ProbeNote(at=0.0, attempt=self._attempt, kind="resume", text=text)
            yield at, Announce("attempt.resumed", {"text": f"{text}; {again} batches are trained again"})
        self._began, self._silent, self._beats = at, -1.0, 0

    def _epoch(self) -> int:
        return self._total // self._night.per_epoch

    def _phase(self, second: float) -> str:
        if second - self._began < STARTING:
            return "importing" if second - self._began < STARTING / 2 else "tracing"
        place = second % EPOCH
        if self._silent >= 0:
            return "step"
        return "validation" if place > EPOCH - 14 else "checkpoint" if place > EPOCH - 20 else "step"

    def _heartbeats(self, second: float) -> Iterator[tuple[float, Event]]:
        phase = self._phase(second)
        done = 0
        if phase == "step" and self._silent < 0:
            done = round(self._night.rate * (1 + 0.08 * math.sin(second / 900) + self._chance.gauss(0, 0.03)))
            self._progress = second + 0.99
        before = self._epoch()
        self._beats, self._total, self._changes = (self._beats + done, self._total + done, self._changes + 4 * done)
        if self._epoch() > before:
            loss = 2.3 * math.exp(-second / 9000) + 0.2
            results = f"loss={loss:.4g} accuracy={1 / (1 + loss):.4g} val_loss={1.1 * loss:.4g}"
            results += f" learning_rate={0.001 * 0.97**before:.4g}"
            yield (
                second + 1.0,
                ProbeNote(
                    at=0.0,
                    attempt=self._attempt,
                    kind=attempt_rows.EPOCH,
                    text="",
                    facts={"epoch": str(before + 1), "values": results},
                ),
            )
        self._input += done * self._chance.uniform(0.0002, 0.0006)
        moment = MONOTONIC + self._progress
        yield second + 1.0, Heartbeat(
            at=0.0, attempt=self._attempt, beats=self._beats, beat_at=moment, phase=phase, phase_at=moment,
            progress_at=moment, changes=self._changes, sent_at=MONOTONIC + second + 0.99,
            longest=self._chance.expovariate(120) + 0.006 if done else 0.0, longest_phase="step", fits=1,
            fit_beats=self._beats, epoch=self._epoch(), epochs=EPOCHS,
            batch=self._total % self._night.per_epoch, batches=self._night.per_epoch,
            iterations=self._total, iterations_at=moment, poll_at=moment, source="callbacks", saves=self._epoch(),
            loss=2.3 * math.exp(-second / 9000) + 0.2 + self._chance.gauss(0, 0.02), input_s=self._input,
            step_s=self._beats * 0.0041,
        )  # fmt: skip

    def _sampled(self, second: float) -> Iterator[tuple[float, Event]]:
        quiet = self._silent >= 0
        self._cpu += 0.01 if quiet else 1.7 + self._chance.gauss(0, 0.1)
        footprint = int(5.1e9 + 2.1e5 * (second - self._began) + self._chance.gauss(0, 2e7))
        readings: list[tuple[int, Any]] = [
            (1, Process(state="sleeping", cpu=round(self._cpu, 2), members=5, threads=64, switches=int(second * 900),
                        io=int(second * 2e6), disk=int(second * 1e4), minor_faults=int(second * 70), major_faults=12,
                        footprint=footprint, rss=footprint, swap=0, run_queue=round(second * 0.02, 3), remote=False,
                        workers=0, census={"futex": 40, "poll": 4, "run": 1, "sleep": 3})),
            (2, Files(writing=self._phase(second) == "checkpoint", path="checkpoints/last.keras", age=12.5,
                      size=81_220_512)),
            (5, Memory(total=34_359_738_368, available=int(1.6e10 - 2.1e5 * second), pressure="normal",
                       swap_used=int(1e6 * second), swap_outs=int(4e5 * second), compressed=2_147_483_648)),
            (10, Device(name="Apple M2 Max", utilisation=0.0 if quiet else 0.87 + self._chance.gauss(0, 0.03),
                        moved=not quiet, power=0.4 if quiet else 21.5, memory=int(6.2e9), recoveries=0,
                        used_by_run=True)),
            (15, Machine(idle=0.95 if quiet else 0.61, busiest=("WindowServer",), load=3.1, power="ac",
                         thermal="nominal", low_power=False, asleep=0.0, lid_closed=False)),
        ]  # fmt: skip
        for every, reading in readings:
            if second % every == 0:
                yield second + 0.5, Sampled(at=0.0, reading=reading)

    def _stalled(self, at: float, number: int) -> Iterator[tuple[float, Event | Action]]:
        finding = Finding(
            causes.DEVICE_WAIT, 0.81, since=MONOTONIC + self._silent,
            evidence=("the processor is idle (0.01 of a core)", "it is inside a training step",
                      "the GPU of this process has done nothing since", "the main thread waits for the GPU"),
            against=("a Python thread of the process can run: the interpreter's lock is free",),
            advice=("a new process has gone on in every report that says what followed",
                    ON_CPU[0].sentence()), mode="F1",
        )  # fmt: skip
        other = Finding(causes.HOST_DEADLOCK, 0.3, evidence=("the processor is idle (0.01 of a core)",))
        silence = {
            "silence": f"no progress for {SILENCE:.0f} s inside a training step", "gap": f"{SILENCE:.0f} s",
            "what": "the processor is idle, waiting for something outside", "phase": "step",
        }  # fmt: skip
        why = "a restart has helped against this before"
        decision = Decision("restart", why)
        yield at, Announce("training.suspected", silence)
        yield at, Announce("training.stalled", silence)
        yield at, Collect(number, self._attempt)
        mark = f"8b54b5e1ab7b7{number % 3:03d}"
        yield (
            at,
            Collected(at=0.0, incident=number, seconds=2.5, where=WHERE, stacks=("metal_wait",), fingerprint=mark),
        )
        yield at, Diagnosed(number, (finding, other))
        yield (at, Announce("evidence.collected", {"where": f"incidents/{number}", "line": f"; it hangs at {WHERE}"}))
        yield at, Diagnosed(number, (finding, other), decision)
        yield at, Announce("attempt.stopping", {"attempt": str(self._attempt), "why": why})
        yield at, Signal(self._attempt, "TERM")
        yield at, Exited(at=0.0, attempt=self._attempt, code=-15)
        self._attempt += 1
        yield (
            at,
            Announce(
                "attempt.restarting", {"attempt": str(self._attempt), "why": why, "mathematics": decision.mathematics}
            ),
        )
        yield from self._launch(at)


def journal(night: Night) -> Iterator[bytes]:
    for second, what in Teller(night).lines():
        time = (START + dt.timedelta(seconds=second)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        clock = MONOTONIC + second
        timed = msgspec.structs.replace(what, at=clock) if isinstance(what, Event) else what
        fields, level, message = notices.journal_line(timed)
        line = {"time": time, "clock": clock, "level": level, "run": "night", "message": message} | dict(fields)
        yield msgspec.json.encode(line) + b"\n"


POOL = '  File "/opt/envs/tf/lib/python3.11/site-packages/pool%d/worker.py", line %d in call%d'
EAGER = '  File "/opt/envs/tf/lib/python3.11/site-packages/tensorflow/python/eager/execute.py", line %d in f%d'
OWN = '  File "/home/me/project/train.py", line 88 in step\n  File "/home/me/project/train.py", line 140 in <module>'


def stacks(threads: int = 40, calls: int = 25) -> str:
    """Return a dump as faulthandler writes it: pool threads alike, and the main thread in the script."""
    dump = []
    for number in range(1, threads):
        dump.append(f"Thread 0x{number:016x} (most recent call first):")
        dump += [POOL % (number % 4, line, line) for line in range(calls)]
        dump.append("")
    dump.append(f"Current thread 0x{threads:016x} (most recent call first):")
    dump += [EAGER % (line, line) for line in range(calls)]
    return "\n".join([*dump, OWN, ""])


def make(run: Path, night: Night) -> Path:
    """Write the run directory of a night; return it."""
    run.mkdir(parents=True)
    with (run / "journal.jsonl").open("wb") as file:
        file.writelines(journal(night))
    bar = "".join(f"\r{step}/60000 [====>......] - ETA: 4:12 - loss: 0.{step:04d}" for step in range(1000))
    (run / "output.log").write_text(f"Epoch 1/100\n{bar}\n" * 20)
    command = ["train.py", "--epochs", "100"]
    write(run / "run.json", RunRequest(1, run.name, command, ["/opt/envs/tf/bin/python", *command], "/home/me/project",
                                     "2026-03-07T22:30:00Z", Identity(1, 0.0)))  # fmt: skip
    lost = night.stalls * SILENCE
    write(run / "outcome.json", Outcome(1, 0, "the training is finished", "2026-03-08T06:30:00Z", night.seconds,
                                        night.seconds * night.rate, night.stalls, night.stalls + 1, lost))  # fmt: skip
    for number in range(1, night.stalls + 1):
        _incident(run / "incidents" / str(number), number, f"Epoch {number}/100\n{bar}\n")
    return run


def _incident(place: Path, number: int, output: str) -> None:
    place.mkdir(parents=True)
    names = ("stacks", "native", "threads", "maps", "files", "environment", "output", "records", "versions", "reports")
    items = [{"name": name, "state": "collected", "seconds": 0.2, "files": [], "facts": {}} for name in names]
    items.append({"name": "system-log", "state": "late", "seconds": 5.0, "why": "it did not end in time"})
    manifest = {
        "schema": 1,
        "incident": number,
        "seconds": 2.5,
        "size": 812_345,
        "removed": {"home": 4},
        "items": items,
    }
    (place / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    (place / "stacks.txt").write_text(stacks())
    (place / "output.txt").write_text(output)


def took(home: Path, *options: str) -> tuple[float, float, bytes]:
    """Return the seconds that the report took and those of the processor, the fewest of some, and what it printed."""
    # Installed packages are compiled once; so are these, also if the caller's environment forbids it.
    env = environment(home, PYTHONPYCACHEPREFIX=str(home / "compiled"), PYTHONDONTWRITEBYTECODE="")
    command = [sys.executable, "-m", "stallguard", "report", "night", *options]
    times, processor, out = [], [], b""
    for _ in range(REPEATS):
        begun, before = time.perf_counter(), os.times()
        out = subprocess.run(command, env=env, check=True, capture_output=True).stdout
        times.append(time.perf_counter() - begun)
        spent = os.times()
        processor.append(sum(spent[2:4]) - sum(before[2:4]))
    return min(times), min(processor), out


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        run = make(Path(place) / "runs" / "night", Night())
        size = (run / "journal.jsonl").stat().st_size
        print(f"{HOURS:g} h at {RATE} batches a second, {STALLS} stalls: a journal of {size / 1e6:.0f} MB\n")
        html = Path(place) / "report.html"
        rows = [
            ("terminal", *took(Path(place))),
            ("JSON", *took(Path(place), "--json")),
            ("HTML", *took(Path(place), "--html", str(html))),
        ]
        written = html.stat().st_size
    print(f"{'form':10s} {'seconds':>8s} {'processor':>10s} {'bytes':>10s}")
    for name, seconds, processor, out in rows:
        print(f"{name:10s} {seconds:8.2f} {processor:10.2f} {written if name == 'HTML' else len(out):10d}")
    return concluded([Goal("seconds for the HTML", rows[2][1], SECONDS), Goal("its MB", written / 1e6, MB)], "\n")


if __name__ == "__main__":
    raise SystemExit(main())
