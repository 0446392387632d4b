"""The simulated half of the matrix: random cells through the whole core, judged by what the documents promise.

`bench matrix --simulated 1 --cell silence=spin,phase=callback,seed=7` plays one cell again, by its SPEC.  Deterministic
by --seed: cell number n of a seed is always the same.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.results import Goal, concluded
from matrix_cells.simulated_cells import DIMENSIONS, Cell, Wrong, draw, parsed
from matrix_cells.simulated_oracle import wrongs
from matrix_cells.simulated_play import play

CHUNK = 250  # cells that a process plays before it reports
SHOWN = 20  # wrong cells that are printed
SEEDS = 10**9  # cells a seed can have


def judged(cell: Cell) -> list[Wrong]:
    """Return what is wrong in a cell; an exception of the core is wrong too."""
    try:
        return wrongs(play(cell))
    except Exception as error:  # noqa: BLE001 - this cell broke it
        where = traceback.extract_tb(error.__traceback__)[-1]
        return [Wrong("no exception", f"{error!r} at {Path(where.filename).name}:{where.lineno}")]


Values = Counter[tuple[str, str]]  # a dimension and its value -> cells


def chunk(seeds: range) -> tuple[Values, list[tuple[Cell, list[Wrong]]], float]:
    """Play some cells; return how many had each value, those that are wrong, and the seconds of processor time."""
    began, cells = time.process_time(), [draw(seed) for seed in seeds]
    found = [(cell, bad) for cell in cells if (bad := judged(cell))]
    return values(cells), found, time.process_time() - began


def values(cells: Iterable[Cell]) -> Values:
    """Return how many cells have each value of each dimension."""
    return Counter(pair for cell in cells for pair in zip(cell._fields[:-1], map(str, cell), strict=False))


def chunks(first: int, cells: int) -> Iterator[range]:
    """Yield the seeds of all cells, in chunks."""
    for begin in range(first, first + cells, CHUNK):
        yield range(begin, min(begin + CHUNK, first + cells))


def shown(counts: Values, bad: Values) -> str:
    lines = [f"{'dimension':14} {'value':16} {'cells':>9} {'wrong':>6}"]
    for name, values in DIMENSIONS.items():
        lines += [f"{name:14} {value:16} {counts[name, value]:9} {bad[name, value]:6}" for value in values]
    return "\n".join(lines)


def one_cell(spec: str) -> int:
    """Play one cell, print what is wrong, and return the exit code."""
    cell = parsed(spec)
    found = judged(cell)
    print(cell.spec)
    for wrong in found:
        print(f"  {wrong.promise}: {wrong.difference}")
    return concluded([Goal("wrong cells", int(bool(found)), 0)])


def many(cells: int, seed: int, processes: int) -> int:
    counts, wrong, seconds = Values(), list[tuple[Cell, list[Wrong]]](), 0.0
    work = list(chunks(seed * SEEDS, cells))
    pool = multiprocessing.get_context("spawn").Pool(processes) if processes > 1 else None
    for played, found, took in pool.imap_unordered(chunk, work) if pool else map(chunk, work):
        counts += played
        wrong += found
        seconds += took
    if pool:
        pool.terminate()
    promises = Counter(name for _, each in wrong for name in {one.promise for one in each})
    print(shown(counts, values(cell for cell, _ in wrong)))
    print(f"\n{1000 * seconds / max(1, cells):.1f} ms of processor time a cell")
    for promise, number in promises.most_common():
        print(f"{number:6} cells break: {promise}")
    for cell, each in wrong[:SHOWN]:
        print(f"\n--cell {cell.spec}")
        print("\n".join(f"    {one.promise}: {one.difference}" for one in each))
    return concluded([Goal("wrong cells", len(wrong), 0)], f"\n{cells} cells; ")
