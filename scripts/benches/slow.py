"""`scripts/bench slow`: is the reason of a slow training named, and the line that is to blame?

Runs 19 trainings with one bottleneck each, and a healthy one, under a real `stallguard run`, and reads their reports.
A training that cannot be made here (a control group needs root) is not counted.  It takes half an hour on a machine
that does nothing else; a finding about other processes is not counted if there were any.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from harness.groups import Unavailable
from harness.results import Goal, concluded, table
from slowness import cost
from slowness.cases import CASES, Case
from slowness.runs import Bottleneck, Ran, run

OTHERS = ("busy-machine", "low-priority")  # findings that are true if other programs run, the second if this is niced
BUSY = 0.25  # cores that other programs take: from there, that they slow a training can be true
WRONG = 1  # of all: the goal is 19 of 20
SHARE = 0.001  # of a core: the sampler's cost
THREADS = (3, 50)
HEAD = ("program", "expected", "named first", "right", "line", "named", "seconds", "share", "at the line",
        "others, cores")  # fmt: skip


class Judged(NamedTuple):
    """What a run's report says, and whether it is right."""

    case: Case
    ran: Ran
    first: Bottleneck | None

    @property
    def is_cause_right(self) -> bool:
        """Whether the cause is named first; of a healthy training that was sampled, whether nothing is said."""
        is_read = self.ran.code == 0 and self.ran.report.bottlenecks is not None and self.ran.profile is not None
        return is_read and (self.first.kind if self.first else "") == self.case.expected

    @property
    def is_line_right(self) -> bool | None:
        """Whether the line is named; None if no line is to blame."""
        if not self.case.marked:
            return None
        first = self.first
        return first is not None and Path(first.file) == self.case.path and first.line in self.case.marked

    def row(self) -> tuple[str, ...]:
        first = self.first or Bottleneck("nothing")
        is_read = self.ran.report.bottlenecks is not None
        profile = self.ran.profile
        spots = [spot for spot in profile.spots if spot.file == str(self.case.path)] if profile else []
        at_line = sum(spot.seconds for spot in spots if spot.line in self.case.marked)
        at_line /= profile.seconds if profile else 1.0
        return (
            self.case.name, self.case.expected or "nothing", first.kind if is_read else "not in the report",
            "yes" if self.is_cause_right else f"exit {self.ran.code}" if self.ran.code else "NO",
            ", ".join(map(str, self.case.marked)) or "-", str(first.line or "-"), f"{first.seconds:.1f}",
            f"{first.share:.0%}", f"{at_line:.0%}" if self.case.marked else "-",
            f"{self.ran.others:.1f}",
        )  # fmt: skip


def judge(case: Case, ran: Ran) -> Judged:
    said = ran.report.bottlenecks or []
    disturbed = OTHERS if ran.others >= BUSY and case.expected not in OTHERS else ()
    counted = [one for one in said if one.kind not in disturbed]
    return Judged(case, ran, counted[0] if counted else None)


def goals_of(judged: list[Judged], *, is_whole: bool) -> list[Goal]:
    """Return the goals; one wrong cause is allowed in all of them."""
    names = {one.case.name for one in judged}
    wrong = {one.case.name for one in judged if not one.is_cause_right}
    lines = {one.case.name for one in judged if one.is_line_right is False}
    healthy = {one.case.name for one in judged if not one.case.expected}
    goals = [Goal(f"wrong causes of {len(names)}", float(len(wrong)), float(WRONG if is_whole else 0))]
    goals.append(Goal("wrong lines", float(len(lines)), 0.0))
    return [*goals, Goal("findings in a healthy training", float(len(healthy & wrong)), 0.0)] if healthy else goals


def costs(place: Path) -> list[Goal]:
    goals = []
    for threads in THREADS:
        share = cost.share(threads, place)
        print(f"the sampler takes {share:.4%} of a core with {threads} threads (processor time of its thread)")
        goals.append(Goal(f"the sampler's part of a core, {threads} threads", share, SHARE))
    return goals


def main() -> int:
    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help="run this program alone; can be repeated"
    )
    parser.add_argument("--list", action="store_true", help="list the programs, and run nothing")
    parser.add_argument("--keep", type=Path, help="where the runs stay that were judged wrong")
    asked = parser.parse_args()
    if asked.list:
        for case in CASES:
            print(f"{case.name:<16}{case.expected or 'nothing':<22}{case.title}")
        return 0
    began, judged, left_out = time.perf_counter(), [], []
    for case in [case for case in CASES if case.name in (asked.only or names)]:
        with tempfile.TemporaryDirectory(prefix="sg-slow-") as place:
            try:
                found = [judge(case, ran) for ran in run(case, Path(place))]
            except Unavailable as error:
                left_out.append(f"{case.name} is not run: {error}")
                continue
            if asked.keep and not all(one.is_cause_right for one in found):
                shutil.copytree(place, asked.keep / case.name, dirs_exist_ok=True)
        judged += found
        for one in found:
            print(*one.row(), sep=" | ", flush=True)
    print("\n" + table(HEAD, [one.row() for one in judged]))
    print(*left_out, sep="\n")
    with tempfile.TemporaryDirectory(prefix="sg-slow-") as place:
        goals = [*goals_of(judged, is_whole=not asked.only), *costs(Path(place))]
    return concluded(goals, f"took {time.perf_counter() - began:.0f} s\n")


if __name__ == "__main__":
    sys.exit(main())
