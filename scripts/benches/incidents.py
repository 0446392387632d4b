"""`scripts/bench incidents`: has the same trouble the same name and the right cause each time, another trouble another?

Runs 17 programs that hang, and nine that go wrong in another way, RUNS times each, under a real `stallguard run`, and
reads the name of the incident and the cause that is named first.  Each hang has its own directory, working directory,
home, number of lines above the code, batch size, port and length before it.  Ctrl-C ends it early, with the table of
what was done.  The detector's patience is shortened, so that a run takes half a minute; two cores take 40 minutes for
all.  The diagnosis is as shipped.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import msgspec

from harness.children import BENCHES, ROOT, ended, guarding, started, until
from harness.groups import Unavailable, group
from harness.results import Goal, concluded, table
from stallguard.core import history
from stallguard.core.actions import Diagnosed
from stallguard.core.detection import detector
from stallguard.core.diagnosis import causes, diagnose
from stallguard.core.events import Heartbeat
from stallguard.core.limits import DetectorLimits
from stallguard.report import incident_history
from stallguard.storage import journal
from stallguard.storage.paths import RunDir

DRILL = ROOT / "stallguard" / "drills" / "train.py"
SCRIPTS = ROOT / "tests" / "guarded" / "scripts"
CHILD = BENCHES / "incidents_child.py"
LONGEST = 200.0  # seconds that a run may take
LIMIT = 300_000_000  # bytes of the control group
HEALTHY, CROWDED = 30.0, 90.0  # seconds of a training before, and at most while, others take the cores
OTHER_NAMES = 0.01  # of all runs: the goal is that 99 % have the name that most runs of their kind have
# Patience in seconds.  Only how soon a stall is noticed depends on it, not what it is called.
PATIENCE = {"deadlock": 8, "external": 8, "spin": 10, "working": 60}
ROWS = ("step", "epoch_first_step", "epoch_boundary", "batch_callbacks", "unclassified", "idle")
ROWS_OF_ENDS = ("exit", "importing")  # beside them, for the programs that do not hang in a training
SLOWDOWN = {"slow_window": 2, "slow_steps": 8, "slow_least": 8, "slow_windows": 3}
NONE = "no name"
DIAGNOSED = str(Diagnosed.__struct_config__.tag)
Varied = tuple[list[str], dict[str, str]]


class Kind(NamedTuple):
    """A program that goes wrong in one way.  `vary`: its arguments and what is replaced in it, anew for each run."""

    name: str
    cause: str
    script: Path
    vary: Callable[[random.Random, Path, int], Varied]
    hangs: bool = True  # and has a name
    patient: bool = False  # its silence is not a stall yet


class Found(NamedTuple):
    """What one run gave."""

    name: str
    cause: str


def drill(kind: str, cause: str) -> Kind:
    def vary(chance: random.Random, _place: Path, _port: int) -> Varied:
        batch, at = chance.choice((24, 32, 48, 64)), chance.randrange(70, 110)
        return ["--kind", kind, "--batch", str(batch), "--at", str(at)], {}

    return Kind(f"drill {kind}", cause, DRILL, vary)


def once(script: str, kind: str, name: str, cause: str) -> Kind:
    """Return a Keras training of the tests that hangs once."""

    def vary(chance: random.Random, place: Path, _port: int) -> Varied:
        rows, at = chance.choice((4, 8, 16)), chance.randrange(60, 110)
        sizes = {"(8, ": f"({rows}, ", "AT, PACE = 80": f"AT, PACE = {at}", "AT, BATCHES = 80": f"AT, BATCHES = {at}",
                 "batch_size=8": f"batch_size={rows}", "8 * BATCHES": f"{rows} * BATCHES"}  # fmt: skip
        return [kind, str(place / "memory")], sizes

    return Kind(name, cause, SCRIPTS / script, vary)


def wait(kind: str) -> Kind:
    def vary(chance: random.Random, _place: Path, port: int) -> Varied:
        return [kind, str(port)], {"BATCHES, PACE = 60": f"BATCHES, PACE = {chance.randrange(60, 100)}"}

    return Kind(f"wait {kind}", causes.HOST_DEADLOCK, SCRIPTS / "waits.py", vary)


def loop(chance: random.Random, place: Path, _port: int) -> Varied:
    """Return the arguments of the loop of the tests."""
    return ["evening", "400", "0.05", str(chance.randrange(70, 110)), str(place / "memory")], {}


def spin(chance: random.Random, _place: Path, _port: int) -> Varied:
    """Return the arguments of the loop of the tests that searches for ever."""
    return [], {"AT = 80": f"AT = {chance.randrange(60, 110)}"}


def child(name: str, cause: str, *, patient: bool = False) -> Kind:
    return Kind(name, cause, CHILD, lambda *_: ([name], {}), hangs=False, patient=patient)


KINDS = (
    drill("op", causes.DEVICE_WAIT), drill("lock", causes.HOST_DEADLOCK), drill("gil", causes.GIL_HELD),
    drill("spin", causes.BUSY_LOOP), drill("stopped", causes.STOPPED),
    once("stall_once.py", "generator", "blocked generator", causes.INPUT_STARVATION),
    once("stall_once.py", "lock", "lock in a callback", causes.HOST_DEADLOCK),
    once("steps.py", "lock", "lock in a step", causes.HOST_DEADLOCK),
    once("steps.py", "dequeue", "queue in a step", causes.DEVICE_WAIT),
    *map(wait, ("lock", "with", "event", "queue", "join", "feeder")),
    Kind("lock in a loop", causes.HOST_DEADLOCK, SCRIPTS / "loop.py", loop),
    Kind("search without end", causes.BUSY_LOOP, SCRIPTS / "search.py", spin),
    child("outside", causes.OUTSIDE_WAIT), child("limit", causes.OUT_OF_MEMORY),
    child("oom", causes.OUT_OF_MEMORY_KILL), child("exception", causes.SCRIPT_ERROR),
    child("segfault", causes.NATIVE_CRASH), child("killed", causes.KILLED),
    child("silent exit", causes.SILENT_EXIT, patient=True), child("exit hang", causes.EXIT_HANG),
    child("neighbour", causes.THROTTLED),
)  # fmt: skip


def settings(kind: Kind) -> list[str]:
    """Return the options that shorten the patience, and end a run at its first stall."""
    names = ROWS if kind.hangs else ROWS + ROWS_OF_ENDS
    rows = {
        f"detector.rows.{row}.{prior}{name}": f"{seconds}s"
        for row in names for name, seconds in PATIENCE.items() for prior in ("", "prior_")
    }  # fmt: skip
    values = ({} if kind.patient else rows) | {f"detector.{name}": str(value) for name, value in SLOWDOWN.items()} | {
        "detector.act_after": "1s", "detector.learning": "6s", "policy.on_stall": "stop", "policy.max_restarts": "0",
        "policy.causes": "stopped=stop", "checkpoint.enabled": "off", "notify.desktop": "off",
    }  # fmt: skip
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def tried(kind: Kind, seed: int) -> Found:
    """Run a kind once, at a place and with sizes that depend on `seed`; return what is said.  Raises Unavailable."""
    chance = random.Random(f"{kind.name} {seed}")
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"sg-{chance.randrange(10**6)}-")))
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        limited = [str(stack.enter_context(group(memory=LIMIT)))] if kind.name == "oom" else []
        place = home.joinpath(*(f"d{chance.randrange(1000)}" for _ in range(chance.randrange(1, 5))))
        place.mkdir(parents=True)
        arguments, replaced = kind.vary(chance, place, server.getsockname()[1])
        text = kind.script.read_text()
        for old, new in replaced.items():
            text = text.replace(old, new)
        script = place / kind.script.name
        script.write_text("# a line\n" * chance.randrange(40) + text)
        cwd = chance.choice((place, place.parent, home))
        command = guarding(os.path.relpath(script, cwd), *arguments, *limited, options=settings(kind))
        with started(command, home / "home", cwd) as guard:
            if kind.cause == causes.THROTTLED:
                crowd(guard, home / "home")
            ended(guard, LONGEST)
        run = RunDir((home / "home" / "runs" / "latest").resolve())
        # The last one: before it, a busy machine can make a healthy training pause for longer than the shortened
        # patience.
        seen = incident_history.of_run(run)[-1:]
        return Found(seen[0].name if seen and seen[0].name else NONE, named(run.journal))


def crowd(guard: subprocess.Popen[bytes], home: Path) -> None:
    """Let other processes take the cores of a training that has found its pace, then end the run."""
    path = home / "runs" / "latest" / "journal.jsonl"
    until(lambda: path.exists() and any(isinstance(one, Heartbeat) and one.beats for one in journal.events(path)),
          LONGEST, 2.0)  # fmt: skip
    time.sleep(HEALTHY)
    burn = [sys.executable, "-c", "while True: pass"]
    burners = [subprocess.Popen(burn) for _ in range(12 * (os.cpu_count() or 1))]
    until(lambda: implied(path), CROWDED, 2.0)
    for burner in burners:
        burner.kill()
        burner.wait()
    guard.send_signal(signal.SIGTERM)


def named(path: Path) -> str:
    """Return the cause that a journal names first, of its last trouble; of one that is only slow, the implied one."""
    entries = [entry.raw for entry in journal.read(path) if entry.line.event == DIAGNOSED]
    findings = [found for raw in entries if (found := msgspec.json.decode(raw, type=Diagnosed).findings)]
    return findings[-1][0].cause if findings else implied(path) or "nothing"


def implied(path: Path) -> str:
    """Return the likeliest cause at any time of a journal in which nothing stalled; "" if it was never slow."""
    limits = msgspec.convert(SLOWDOWN, DetectorLimits)
    story, detector_state, best = history.History(), detector.start(), (0.0, "")
    for event in journal.events(path):
        story, detector_state = history.remember(story, event), detector.observe(detector_state, event, limits)
        if detector_state.judgement.slow > 1.0:
            first = diagnose.diagnose(story, detector_state.judgement, event.at)[0]
            best = max(best, (first.confidence, first.cause))
    return best[1]


def judged(found: dict[str, list[Found]]) -> list[Goal]:
    rows, alike, hung, wrong = [], 0, 0, 0
    owners: dict[str, set[str]] = defaultdict(set)
    for kind in (kind for kind in KINDS if kind.name in found):
        seen = found[kind.name]
        names, named = Counter(one.name for one in seen), Counter(one.cause for one in seen)
        usual, same = next(((name, n) for name, n in names.most_common() if name != NONE), (NONE, 0))
        wrong += len(seen) - named[kind.cause]
        if kind.hangs:
            alike, hung = alike + same, hung + len(seen)
            for name in names.keys() - {NONE}:
                owners[name].add(kind.name)
        others = ", ".join(f"{name} {number}" for name, number in names.items() if name != usual)
        shown = (f"{same}/{len(seen)}", usual, others or "-") if kind.hangs else ("-",) * 3
        causes_of = ", ".join(f"{cause} {number}" for cause, number in named.most_common())
        rows.append((kind.name, *shown, f"{named[kind.cause]}/{len(seen)}", kind.cause, causes_of))
    print(table(("kind", "same", "name", "other names", "right", "cause", "named"), rows))
    merged = [name for name, kinds in owners.items() if len(kinds) > 1]
    print("\n".join(f"{name} is the name of: {', '.join(sorted(owners[name]))}" for name in merged))
    return [
        *([Goal("share of hangs with another name", 1 - alike / hung, OTHER_NAMES)] if hung else ()),
        Goal("names of several kinds", len(merged), 0),
        Goal("runs with another cause", wrong if rows else math.nan, 0),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="of each kind [10]")
    parser.add_argument("--jobs", type=int, default=4, help="at a time [4]")
    parser.add_argument("--seed", type=int, default=0, help="of the places and sizes [0]")
    parser.add_argument("kinds", nargs="*", help="only those whose name contains one of these words")
    options = parser.parse_args()
    wanted = [kind for kind in KINDS if not options.kinds or any(word in kind.name for word in options.kinds)]
    # One that lets others take the cores disturbs what runs beside it.
    beside = [kind for kind in wanted if kind.cause != causes.THROTTLED]
    alone = [kind for kind in wanted if kind.cause == causes.THROTTLED]
    found: dict[str, list[Found]] = defaultdict(list)
    began, done = time.perf_counter(), 0
    for kinds, jobs in ((beside, options.jobs), (alone, 1)):
        pool = ThreadPoolExecutor(jobs)
        seeds = range(options.seed * 1000, options.seed * 1000 + options.runs)
        waiting = {pool.submit(tried, kind, seed): kind.name for seed in seeds for kind in kinds}
        try:
            for future in as_completed(waiting):
                kind, done = waiting[future], done + 1
                try:
                    one = future.result()
                except Unavailable as error:
                    print(f"{kind} is left out: {error}", flush=True)
                    continue
                found[kind].append(one)
                print(f"{done}  {time.perf_counter() - began:.0f} s  {kind}: {one.name}, {one.cause}", flush=True)
        except KeyboardInterrupt:
            print(f"ended early after {done} runs")
            break
        finally:
            pool.shutdown(cancel_futures=True)
    return concluded(judged(found))


if __name__ == "__main__":
    sys.exit(main())
