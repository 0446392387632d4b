"""`scripts/bench matrix`: is the main promise kept for all combinations of training, trouble, place and setting?

Draws cells that contain every possible pair of values (`--triples`: every three), runs each for real under
`stallguard run` and compares attempts, cause, exit code, result, ledger and the words of all verbs with what the
documents promise (matrix_cells/expected.py). `--seed N` draws another array, `--cell SPEC` repeats one cell,
`--loop NAME,...` runs the array's cells of some loops, `--minutes M` ends after so long and says how many of the pairs
were tried, `--jobs N` runs so many at once, `--again` runs each wrong cell a second time, alone. `--simulated N` plays
random cells through the core instead, in milliseconds each (matrix_cells/simulated.py).
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil

from chaos_faults.stage import MARK, Broken
from harness.results import Goal, concluded
from matrix_cells import cells, simulated, trial
from matrix_cells.cells import Cell
from stallguard.config.table import tuning_rows

JOBS = 6  # a cell waits most of its time


class Result(NamedTuple):
    """Of one cell.  `wrong`: what is not as promised."""

    cell: Cell
    wrong: list[str]
    seconds: float


class Undisturbed:
    """The results of the loops without stallguard: each is trained once, when it is first asked for."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._results: dict[str, float] = {}
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def of(self, loop: str) -> float:
        with self._locks[loop]:
            if loop not in self._results:
                self._results[loop] = trial.undisturbed(loop, self._place / f"plain-{loop}")
            return self._results[loop]


def tried(cell: Cell, place: Path, undisturbed: Undisturbed, known: frozenset[str], keep: bool) -> Result:
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="c", dir=place))
    try:
        wrong = trial.tried(cell, folder / "s", undisturbed.of, known)
    except Exception as error:  # noqa: BLE001 - a cell that cannot be read is wrong
        wrong = [f"{type(error).__name__}: {error}"]
    if not (wrong and keep):
        shutil.rmtree(folder, ignore_errors=True)
    result = Result(cell, wrong, time.monotonic() - began)
    print(f"{'WRONG' if wrong else 'ok':<6}{result.seconds:5.0f} s  {cell.spec}", file=sys.stderr, flush=True)
    for one in wrong:
        print(f"         {one}{f'  ({folder})' if keep else ''}", file=sys.stderr, flush=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench matrix")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--triples", action="store_true", help="cover all combinations of three values")
    parser.add_argument("--cell", metavar="SPEC", help="run one cell: loop=keras,what=lock,...")
    parser.add_argument("--loop", default="", metavar="NAME,...", help="run only the array's cells of these loops")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no cell after so many")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--again", action="store_true", help="run each wrong cell once more, alone; then that counts")
    parser.add_argument("--keep", action="store_true", help="keep the folders of wrong cells")
    parser.add_argument("--list", action="store_true", help="print the cells, and run none")
    parser.add_argument("--simulated", type=int, metavar="N", help="play N random cells, or --cell, in the core")
    options = parser.parse_args()
    if options.simulated:
        if options.cell:
            return simulated.one_cell(options.cell)
        return simulated.many(options.simulated, options.seed, os.cpu_count() or 1)
    drawn = [cells.parsed(options.cell)] if options.cell else cells.covering(3 if options.triples else 2, options.seed)
    drawn = [cell for cell in drawn if cell.loop in options.loop.split(",")] if options.loop else drawn
    if options.list:
        print(*(cell.spec for cell in drawn), sep="\n")
        return 0
    place = Path(tempfile.mkdtemp(prefix="sgm-", dir="/tmp"))

    def ends(*_: object) -> None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(MARK, "").startswith(str(place)):
                    process.kill()
        if not options.keep:
            shutil.rmtree(place, ignore_errors=True)
        os._exit(130)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ends)
    end = time.monotonic() + options.minutes * 60.0
    known = frozenset(tuning_rows())
    try:
        undisturbed = Undisturbed(place)

        def one(cell: Cell) -> Result | None:
            return tried(cell, place, undisturbed, known, options.keep) if time.monotonic() < end else None

        with ThreadPoolExecutor(options.jobs) as pool:
            results = [result for result in pool.map(one, drawn) if result is not None]
        unsteady = list[Result]()
        if options.again:  # the machine that CI runs on does other work, too
            for at, result in enumerate(results):
                if result.wrong:
                    results[at] = tried(result.cell, place, undisturbed, known, options.keep)
                    unsteady += [] if results[at].wrong else [result]
    except Broken as broken:
        sys.exit(f"bench matrix: {broken}")
    finally:
        if not options.keep:
            shutil.rmtree(place, ignore_errors=True)
    return said(results, drawn, unsteady, options.seed)


def said(results: list[Result], drawn: list[Cell], unsteady: list[Result], seed: int) -> int:
    """Print the table and the last line; return the exit code.  `unsteady`: wrong beside others, and right alone."""
    wrong = [result for result in results if result.wrong]
    for name in Cell._fields:
        each = Counter(getattr(result.cell, name) for result in results)
        bad = Counter(getattr(result.cell, name) for result in wrong)
        print(f"{name:<12}" + ", ".join(f"{value} {each[value] - bad[value]}/{each[value]}" for value in sorted(each)))
    for result in unsteady:
        print(f"\nright alone, and beside others wrong:\n{result.cell.spec}")
        print(*(f"    {one}" for one in result.wrong), sep="\n")
    for result in wrong:
        print(f"\n{result.cell.spec}")
        print(*(f"    {one}" for one in result.wrong), sep="\n")
    if missing := cells.missing():
        print(f"\nnot here: {', '.join(missing)}")
    tried_pairs, pairs = cells.pairs([result.cell for result in results]), cells.pairs(drawn)
    once = f", {len(unsteady)} wrong when others ran" if unsteady else ""
    before = f"\nseed {seed}, {len(results)} cells{once}, {tried_pairs} of {pairs} pairs were tried; "
    return concluded([Goal("wrong cells", len(wrong) if results else math.nan, 0)], before)


if __name__ == "__main__":
    sys.exit(main())
