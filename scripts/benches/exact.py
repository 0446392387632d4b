"""`scripts/bench exact [--quick]`: does a disturbed training end as the undisturbed one, or is the difference said?

Runs scripts as users write them (exactness/scripts_*.py) under a real `stallguard run`, disturbs them (killed in
mid-epoch, in a save, between epochs; stalled and continued in slices; cut into segments; edited and resumed), and
compares weights, optimizer, history, files and the callbacks' own values with those of a plain run, bit for bit.
Each cell of the table is the same, said, SILENT or a CRASH (exactness/verdicts.py says what that means).

`--quick` fills a few cells in about five minutes; all of them take hours.  `--only SHAPE,...`, `--disturbance
NAME,...` and `--list` choose; `--keep DIR` keeps the folders of cells that are not the same, with what differs.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from exactness.catalog import QUICK, SHAPES
from exactness.cells import Result, Shapes
from exactness.runs import end_all, interpreter
from exactness.scripts_loops import BESIDE
from exactness.shape import DISTURBANCES, Shape
from exactness.verdicts import CRASH, NOT_REACHED, SAID, SAME, SILENT
from harness.results import Goal, concluded, table

LEAST_SAME = 0.85  # of the cells
Plan = list[tuple[int, Shape, list[str]]]  # index in the catalog, shape, disturbances


def chosen(options: argparse.Namespace) -> Plan:
    """Return what is to be run.  Exits with a message if a name is unknown or an environment is missing."""
    shapes = {shape.name: shape for shape in SHAPES}
    names = options.only.split(",") if options.only else list(shapes)
    wanted = options.disturbance.split(",") if options.disturbance else list(DISTURBANCES)
    for kind, given, known in (("shape", names, shapes), ("disturbance", wanted, DISTURBANCES)):
        unknown = [name for name in given if name not in known]
        if unknown:
            sys.exit(f"bench exact: no {kind} {unknown[0]!r}; --list shows them all")
    plan: Plan = []
    for index, shape in enumerate(SHAPES):
        fitting = QUICK.get(shape.name, ()) if options.quick else shape.disturbances
        disturbances = [name for name in fitting if name in wanted]
        if shape.name in names and disturbances:
            plan.append((index, shape, disturbances))
    absent = sorted({shape.python for _, shape, _ in plan if not interpreter(shape).exists()})
    if absent:
        print(f"left out: no environment {', '.join(absent)} (scripts/setup all makes them)")
    return [row for row in plan if row[1].python not in absent]


class Bench:
    """The results so far; several threads fill it in."""

    def __init__(self, total: int) -> None:
        """`total`: how many cells there are to fill in."""
        self.results: list[Result] = []
        self.broken: dict[str, list[str]] = {}
        self._total = total
        self._lock = threading.Lock()

    def run(self, index: int, shape: Shape, disturbances: list[str], folder: Path, keep: Path | None) -> None:
        """Fill in the cells of one shape.  If any is not the same, the shape is checked to be one that can be."""
        cells = Shapes(shape, index, folder, keep)
        made = [self._noted(cells.fill(name)) for name in disturbances]
        wrong: list[str] = []
        if any(result.verdict.kind not in (SAME, NOT_REACHED) for result in made):
            wrong = cells.broken()
        with self._lock:
            if wrong:
                self.broken[shape.name] = wrong
            else:
                self.results += made

    def _noted(self, result: Result) -> Result:
        with self._lock:
            self._total -= 1
            words = f"{result.shape}, {result.disturbance}: {result.verdict.kind} ({result.seconds:.0f} s)"
            words += f", though {result.verdict.detail}" * (result.verdict.kind == SAME and bool(result.verdict.detail))
            print(f"{words}; {self._total} to go", file=sys.stderr, flush=True)
        return result


def shown(results: list[Result], broken: dict[str, list[str]], names: list[str]) -> str:
    kinds = {(result.shape, result.disturbance): result.verdict.kind for result in results}
    rows = [
        (name, *("broken" if name in broken else kinds.get((name, column), "") for column in DISTURBANCES))
        for name in names
    ]
    return table(("script", *DISTURBANCES), rows)


def goals(results: list[Result], broken: dict[str, list[str]]) -> list[Goal]:
    count = Counter(result.verdict.kind for result in results)
    cells = sum(count.values()) - count[NOT_REACHED]
    return [
        Goal("silent cells", count[SILENT], 0),
        Goal("crashed cells", count[CRASH], 0),
        Goal("broken scripts", len(broken), 0),
        Goal("share of cells that are not the same", 1 - count[SAME] / cells if cells else 1.0, 1 - LEAST_SAME),
    ]


def listing(plan: Plan) -> str:
    rows = []
    for _, shape, disturbances in plan:
        first = next(iter(shape.texts(BESIDE).values())).splitlines()[0]
        rows.append((shape.name, first.strip('"# '), ", ".join(disturbances)))
    return table(("script", "what it is", "disturbances"), rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench exact")
    parser.add_argument("--quick", action="store_true", help="a few cells, in at most five minutes")
    parser.add_argument("--only", default="", metavar="SHAPE,...")
    parser.add_argument("--disturbance", default="", metavar="NAME,...")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="where the folders of cells that are not the same stay")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    plan = chosen(options)
    if options.list:
        print(listing(plan))
        return 0
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    bench = Bench(sum(len(disturbances) for _, _, disturbances in plan))
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(bench.run, *row, Path(folder), options.keep) for row in plan]
        try:
            for future in waiting:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
            raise
    print(shown(bench.results, bench.broken, [shape.name for _, shape, _ in plan]))
    for result in sorted(bench.results):
        if result.verdict.kind in (SAID, SILENT, CRASH):
            print(f"{result.verdict.kind}: {result.shape}, {result.disturbance}: {result.verdict.detail}")
    for name, lines in bench.broken.items():
        print(f"broken: {name} differs between two plain runs: {'; '.join(lines)}")
    count = Counter(result.verdict.kind for result in bench.results)
    totals = ", ".join(f"{count[kind]} {kind}" for kind in (SAME, SAID, SILENT, CRASH, NOT_REACHED))
    found = goals(bench.results, bench.broken)
    return concluded(found, f"\n{totals}; {time.monotonic() - began:.0f} s; ")


if __name__ == "__main__":
    sys.exit(main())
