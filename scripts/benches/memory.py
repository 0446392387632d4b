"""`scripts/bench memory [--trainings N]`: is a training that leaks started again before its memory runs out?

First simulated nights (shortage/nights.py): how often a healthy one is called short of memory, and how long before the
end of a leaking one it is announced, a checkpoint is asked for and the training is ended.  Then real Keras trainings
with five kinds of leak, each in a control group whose limit it reaches within a minute: they must finish, and the
kernel must kill none.  `--trainings 100`, the full proof, takes an hour; `--trainings 0` leaves them out.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from harness.children import BENCHES, ended, guarding, started
from harness.groups import Unavailable, group, inside
from harness.results import Goal, concluded, quantile, table, upper_bound
from shortage import nights, watched
from shortage.nights import SHAPES
from stallguard.core.actions import Diagnosed
from stallguard.core.diagnosis import causes
from stallguard.core.events import Exited
from stallguard.core.text import duration
from stallguard.storage import journal

CHILD = BENCHES / "memory_child.py"
# Bytes in the group: what TensorFlow and stallguard take of it, and what is left for the leak.
LEAST, LEAK = 350_000_000, 700_000_000
SECONDS = (30.0, 60.0)  # until it is used up; twice that, the training takes
AT_ONCE = 3
LONGEST = 900.0  # seconds that a run may take on a busy machine
FOUND = str(Diagnosed.__struct_config__.tag)
AHEAD = (causes.MEMORY_RUNS_OUT, causes.STEPS_NEED_MORE)


class Ran(NamedTuple):
    """A run that is over.  `restarts`: before memory ran out; `kills`: by the kernel, for memory."""

    shape: str
    code: int | None
    restarts: int
    halved: int
    kills: int
    batches: int  # trained in all
    again: int  # of them a second time
    finished: bool
    place: Path

    @property
    def in_time(self) -> bool:
        """Whether each attempt that would have run out of memory was ended before, and the training finished."""
        return self.finished and self.code == 0 and self.restarts > 0 and self.kills == 0


def run_all(count: int, seed: int, place: Path) -> list[Ran]:
    found = list[Ran]()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        numbers = range(count)
        for one in pool.map(
            lambda number: run(SHAPES[number % len(SHAPES)], seed + number, place / str(number)), numbers
        ):
            found.append(one)
            print(
                f"{len(found)} of {count}: {one.shape}: {'in time' if one.in_time else one}",
                file=sys.stderr,
                flush=True,
            )
    return found


def run(shape: str, seed: int, place: Path) -> Ran:
    place.mkdir(parents=True)
    home = place / "home"
    seconds = float(np.random.default_rng(seed).uniform(*SECONDS))
    with group(memory=LEAST + LEAK, swaps=False) as around:
        words = (str(CHILD), shape, str(LEAK), f"{seconds:.1f}", str(seed))
        command = [*inside(around), *guarding(*words, options=("--set", "notify.desktop=off"))]
        with started(command, home, place, place / "output.txt", TF_CPP_MIN_LOG_LEVEL="2") as guard:
            code = ended(guard, LONGEST)
    return _read(shape, place, code)


def _read(shape: str, place: Path, code: int | None) -> Ran:
    path = place / "home" / "runs" / "latest" / "journal.jsonl"
    ends = [event for event in journal.events(path) if isinstance(event, Exited)]
    actions = [
        msgspec.json.decode(entry.raw, type=Diagnosed) for entry in journal.read(path) if entry.line.event == FOUND
    ]
    ahead = [
        one.decision for one in actions
        if one.decision is not None and one.decision.action == "restart" and one.findings[0].cause in AHEAD
    ]  # fmt: skip
    kills = sum(1 for one in ends if one.memory_kill or one.code == -signal.SIGKILL)
    rows = (place / "batches.csv").read_text().split() if (place / "batches.csv").exists() else []
    return Ran(
        shape, code, len(ahead), sum(one.slices > 1 for one in ahead), kills, len(rows), len(rows) - len(set(rows)),
        (place / "end.txt").exists(), place,
    )  # fmt: skip


HOURS, LEAKING, TRAININGS = 4000, 250, 20
FALSE, LATE = 1.0, 0.05  # false alarms in 1000 healthy hours; share of leaks that are not met in time


def healthy_alarm(seed: tuple[int, int]) -> str:
    """Return what was said or done in a healthy night, "" if nothing."""
    night = nights.healthy(np.random.default_rng(seed))
    seen = watched.watch(night)
    done = [name for name in ("told", "asked", "ended") if getattr(seen, name) is not None]
    return f"{', '.join(done)}: night {seed[1]}, {', '.join(night.parts)}" if done else ""


def leak_times(job: tuple[int, int, str]) -> tuple[str, float, watched.Seen] | None:
    """Return the shape of a leaking night, when its memory is used up, and what was done; None if it never is."""
    seed, number, shape = job
    night = nights.leaking(np.random.default_rng((seed, number)), shape)
    if night.over is None:
        return None
    return shape, night.over * nights.EVERY, watched.watch(night)


def simulated(hours: float, leaking: int, seed: int) -> list[Goal]:
    """Play the nights, print what came of them, and return the goals."""
    count = max(1, round(hours / nights.HOURS))
    with multiprocessing.Pool() as pool:
        said = pool.map(healthy_alarm, [(seed, number) for number in range(count)], chunksize=5)
        jobs = [(seed + 1, number, nights.SHAPES[number % len(nights.SHAPES)]) for number in range(leaking)]
        found = [one for one in pool.map(leak_times, jobs, chunksize=5) if one is not None]
    alarms, played = [one for one in said if one], count * nights.HOURS
    print(
        f"{played:g} healthy hours: {len(alarms)} false alarms, {1000 * len(alarms) / played:.2f} in 1000 h "
        f"(95 %: {upper_bound(len(alarms), played):.2f})"
    )
    for one in alarms[:5]:
        print(f"  {one}")
    rows = []
    for shape in nights.SHAPES:
        mine = [(end, seen) for name, end, seen in found if name == shape]
        ended = [end - seen.ended for end, seen in mine if seen.ended is not None]
        told = [end - seen.told for end, seen in mine if seen.told is not None]
        asked = [end - seen.asked for end, seen in mine if seen.asked is not None]
        halved = sum(seen.halved for _, seen in mine)
        rows.append(
            (shape, str(len(mine)), _spread(told), _spread(asked), _spread(ended), str(len(ended)), str(halved))
        )
    head = ("leak", "nights", "announced before", "checkpoint before", "ended before", "in time", "half the batch")
    print("\n" + table(head, rows) + "\n(5 %, median, 95 % of the nights)")
    missed = sum(seen.ended is None for _, _, seen in found)
    return [
        Goal("false alarms in 1000 simulated hours", round(1000 * len(alarms) / played, 2), FALSE),
        Goal("share of simulated leaks not met", round(missed / max(1, len(found)), 3), LATE),
    ]


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    return ", ".join(duration(quantile(seconds, share)) for share in (0.05, 0.5, 0.95))


def real(count: int, seed: int, place: Path) -> list[Goal]:
    """Run real trainings, print what came of them, and return the goals."""
    try:
        found = run_all(count, seed, place)
    except Unavailable as error:
        print(f"\nreal trainings are left out: {error}")
        return [Goal("real trainings that cannot be run here", count, 0)]
    rows = []
    for shape in nights.SHAPES:
        mine = [one for one in found if one.shape == shape]
        rows.append((
            shape, str(len(mine)), str(sum(one.in_time for one in mine)), str(sum(one.restarts for one in mine)),
            str(sum(one.halved for one in mine)), str(sum(one.kills for one in mine)),
            str(sum(one.finished for one in mine)), str(sum(one.again for one in mine)),
        ))  # fmt: skip
    head = ("leak", "trainings", "in time", "restarts", "half the batch", "kills", "finished", "batches again")
    print("\n" + table(head, rows))
    late = sum(not one.in_time for one in found)
    return [Goal("share of real trainings not met in time", round(late / max(1, len(found)), 3), LATE)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=HOURS, help="healthy hours to simulate")
    parser.add_argument("--leaking", type=int, default=LEAKING, help="leaking nights to simulate")
    parser.add_argument("--trainings", type=int, default=TRAININGS, help="real trainings")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="directory for the runs of the real trainings")
    options = parser.parse_args()
    goals = simulated(options.hours, options.leaking, options.seed)
    if options.trainings:
        with tempfile.TemporaryDirectory(prefix="sg-memory-") as folder:
            goals += real(options.trainings, options.seed, options.keep or Path(folder) / "runs")
    return concluded(goals, "\n")


if __name__ == "__main__":
    sys.exit(main())
