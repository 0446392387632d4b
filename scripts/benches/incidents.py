"""`scripts/bench incidents`: does the same hang have the same name each time, and another hang another?

Runs 17 programs that hang, RUNS times each, under a real `stallguard run`, and reads the name of the incident.  Each
run has its own directory, working directory, home, number of lines above the code, batch size, port and length before
the hang.  Ctrl-C ends it early, with the table of what was done.  The detector's patience is shortened, so that a run
takes half a minute; two cores take half an hour for all.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import socket
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness.children import ended, guarding, started
from harness.results import Goal, table, verdict
from stallguard.report import incident_history
from stallguard.storage.paths import RunDir

ROOT = Path(__file__).resolve().parents[2]
DRILL = ROOT / "stallguard" / "drills" / "train.py"
SCRIPTS = ROOT / "tests" / "guarded" / "scripts"
LONGEST = 200.0  # seconds that a run may take
OTHER_NAMES = 0.01  # of all runs: the goal is that 99 % have the name that most runs of their kind have
# Patience in seconds.  Only how soon a stall is noticed depends on it.
PATIENCE = {"deadlock": 8, "external": 8, "spin": 10, "working": 60}
ROWS = ("step", "epoch_first_step", "epoch_boundary", "batch_callbacks", "unclassified", "idle")
NONE = "no name"


class Kind(NamedTuple):
    """A program that hangs in one way.  `vary`: its arguments and what is replaced in it, anew for each run."""

    name: str
    script: Path
    vary: Callable[[random.Random, Path, int], tuple[list[str], dict[str, str]]]


def drill(kind: str) -> Kind:
    """Return a kind of `stallguard drill`."""

    def vary(chance: random.Random, _place: Path, _port: int) -> tuple[list[str], dict[str, str]]:
        batch, at = chance.choice((24, 32, 48, 64)), chance.randrange(70, 110)
        return ["--kind", kind, "--batch", str(batch), "--at", str(at)], {}

    return Kind(f"drill {kind}", DRILL, vary)


def once(script: str, kind: str, name: str) -> Kind:
    """Return a Keras training of the tests that hangs once."""

    def vary(chance: random.Random, place: Path, _port: int) -> tuple[list[str], dict[str, str]]:
        rows, at = chance.choice((4, 8, 16)), chance.randrange(60, 110)
        sizes = {"(8, ": f"({rows}, ", "AT, PACE = 80": f"AT, PACE = {at}", "AT, BATCHES = 80": f"AT, BATCHES = {at}",
                 "batch_size=8": f"batch_size={rows}", "8 * BATCHES": f"{rows} * BATCHES"}  # fmt: skip
        return [kind, str(place / "memory")], sizes

    return Kind(name, SCRIPTS / script, vary)


def wait(kind: str) -> Kind:
    """Return a loop of the tests that waits in Python."""

    def vary(chance: random.Random, _place: Path, port: int) -> tuple[list[str], dict[str, str]]:
        return [kind, str(port)], {"BATCHES, PACE = 60": f"BATCHES, PACE = {chance.randrange(60, 100)}"}

    return Kind(f"wait {kind}", SCRIPTS / "waits.py", vary)


def loop(chance: random.Random, place: Path, _port: int) -> tuple[list[str], dict[str, str]]:
    """Return the arguments of the loop of the tests."""
    return ["evening", "400", "0.05", str(chance.randrange(70, 110)), str(place / "memory")], {}


def spin(chance: random.Random, _place: Path, _port: int) -> tuple[list[str], dict[str, str]]:
    """Return the arguments of the loop of the tests that searches for ever."""
    return [], {"AT = 80": f"AT = {chance.randrange(60, 110)}"}


KINDS = (
    *map(drill, ("op", "lock", "gil", "spin", "stopped")),
    once("stall_once.py", "generator", "blocked generator"),
    once("stall_once.py", "lock", "lock in a callback"),
    once("steps.py", "lock", "lock in a step"),
    once("steps.py", "dequeue", "queue in a step"),
    *map(wait, ("lock", "with", "event", "queue", "join", "feeder")),
    Kind("lock in a loop", SCRIPTS / "loop.py", loop),
    Kind("search without end", SCRIPTS / "search.py", spin),
)


def settings() -> list[str]:
    """Return the options that shorten the patience, and end a run at its first stall."""
    values = {
        f"detector.rows.{row}.{prior}{name}": f"{seconds}s"
        for row in ROWS for name, seconds in PATIENCE.items() for prior in ("", "prior_")
    } | {
        "detector.act_after": "1s", "detector.learning": "6s", "policy.on_stall": "stop", "policy.max_restarts": "0",
        "policy.causes": "stopped=stop", "checkpoint.enabled": "off", "notify.desktop": "off",
    }  # fmt: skip
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def name_of(kind: Kind, seed: int) -> str:
    """Run a kind once, at a place and with sizes that depend on `seed`; return the name of its incident."""
    chance = random.Random(f"{kind.name} {seed}")
    with (
        tempfile.TemporaryDirectory(prefix=f"sg-{chance.randrange(10**6)}-") as made,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        home = Path(made)
        place = home.joinpath(*(f"d{chance.randrange(1000)}" for _ in range(chance.randrange(1, 5))))
        place.mkdir(parents=True)
        arguments, replaced = kind.vary(chance, place, server.getsockname()[1])
        text = kind.script.read_text()
        for old, new in replaced.items():
            text = text.replace(old, new)
        script = place / kind.script.name
        script.write_text("# a line\n" * chance.randrange(40) + text)
        cwd = chance.choice((place, place.parent, home))
        command = guarding(os.path.relpath(script, cwd), *arguments, options=settings())
        with started(command, home / "home", cwd) as guard:
            ended(guard, LONGEST)
        found = incident_history.of_run(RunDir((home / "home" / "runs" / "latest").resolve()))
    # The last one: before it, a busy machine can make a healthy training pause for longer than the shortened patience.
    return found[-1].name or NONE if found else NONE


def print_table(found: dict[str, Counter[str]]) -> list[Goal]:
    """Print kind by names, and return the goals."""
    rows, alike = [], 0
    owners: dict[str, set[str]] = defaultdict(set)
    for kind, names in found.items():
        total = names.total()
        usual, same = next(((name, n) for name, n in names.most_common() if name != NONE), (NONE, 0))
        alike += same
        others = ", ".join(f"{name} {number}" for name, number in names.items() if name != usual)
        rows.append((kind, f"{same}/{total}", usual, others or "-"))
        for name in names:
            if name != NONE:
                owners[name].add(kind)
    print(table(("kind", "same", "name", "other names"), rows))
    merged = [name for name, kinds in owners.items() if len(kinds) > 1]
    print("\n".join(f"{name} is the name of: {', '.join(sorted(owners[name]))}" for name in merged))
    runs = sum(names.total() for names in found.values())
    print(f"{runs} runs, {len(owners)} names of {len(found)} kinds")
    return [
        Goal("share of runs with another name", 1 - alike / runs if runs else math.nan, OTHER_NAMES),
        Goal("names of several kinds", float(len(merged)), 0.0),
    ]


def main() -> int:
    """Run every kind, print the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="of each kind [10]")
    parser.add_argument("--jobs", type=int, default=4, help="at a time [4]")
    parser.add_argument("--seed", type=int, default=0, help="of the places and sizes [0]")
    parser.add_argument("kinds", nargs="*", help="only those whose name contains one of these words")
    options = parser.parse_args()
    wanted = [kind for kind in KINDS if not options.kinds or any(word in kind.name for word in options.kinds)]
    found: dict[str, Counter[str]] = {}
    began, done = time.perf_counter(), 0
    pool = ThreadPoolExecutor(options.jobs)
    waiting = {
        pool.submit(name_of, kind, options.seed * 1000 + number): kind
        for number in range(options.runs)
        for kind in wanted
    }
    try:
        for future in as_completed(waiting):
            kind, name, done = waiting[future].name, future.result(), done + 1
            found.setdefault(kind, Counter())[name] += 1
            print(f"{done}/{len(waiting)}  {time.perf_counter() - began:.0f} s  {kind}: {name}", flush=True)
    except KeyboardInterrupt:
        print(f"ended early: {done} of {len(waiting)} runs are counted")
    finally:
        pool.shutdown(cancel_futures=True)
    goals = print_table({kind.name: found[kind.name] for kind in wanted if kind.name in found})
    print(verdict(goals))
    return 0 if found and all(goal.holds for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
