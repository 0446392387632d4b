"""`scripts/bench state`: is every kind of state in a killed and resumed training the same at the end, or is it said?

Trainings are built at random from a catalog of stateful things (stateful/of_*.py, python_*.py), each put at a place
(attribute of a callback, model or layer, closure, global, default argument, function of the pipeline ...) and changed
by each batch.  `--backend trainer,lightning,track-torch,track-mlx` builds them as such loops.  Each runs undisturbed,
and again under the probe, killed by SIGKILL at one to three random instants and resumed.  The results are compared bit
for bit; stateful/judge.py says what the verdicts mean.

First each thing is at each place alone, then several are in one training.  `--case SPEC` runs one case.  Things of
libraries that are not installed are left out, and counted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.results import Goal, concluded, table
from stateful.cases import DATA, PLACES, Case, drawn, parsed
from stateful.children import Children
from stateful.judge import CRASH, FAILURES, OVER, OWN, SAID, SAME, SILENT, UNFIT, UNSTEADY, Verdict
from stateful.loops import LOOPS
from stateful.things import Thing, catalog

CASES = 200
KEPT = Path(__file__).resolve().parent / "stateful" / "kept.txt"
FAST = 40  # random cases beside those that are kept
SHRUNK = 40  # failures of several things that are tried again with fewer
KINDS = (SAME, SAID, OVER, SILENT, CRASH, OWN, UNSTEADY, UNFIT)


def kept(backend: str) -> list[Case]:
    """Return the cases that failed once and need a backend."""
    lines = [line.partition("#")[0].strip() for line in KEPT.read_text("utf-8").splitlines()]
    return [case for case in (parsed(line) for line in lines if line) if case.backend == backend]


class Results:
    """What was found of all cases of a run."""

    def __init__(self, *, shown: bool = True) -> None:
        """`shown`: failures are printed as they are found."""
        self.verdicts: list[Verdict] = []
        self.absent: dict[str, set[str]] = {}  # backend: modules that are not installed
        self.left_out: set[str] = set()  # things that no backend had
        self._shown = shown

    def add(self, found: Verdict, _seen: dict[str, Any]) -> None:
        """Keep a verdict, and print it if it is a failure."""
        self.verdicts.append(found)
        if self._shown and found.kind in FAILURES:
            print(f"{found.kind}: {found.case.spec()}  {found.detail}", flush=True)

    def available(self, backend: str, libraries: list[str]) -> dict[str, Thing]:
        wanted = {name for thing in catalog().values() for name in thing.modules()}
        self.absent[backend] = wanted - set(libraries)
        here = {name: one for name, one in catalog().items() if not set(one.modules()) - set(libraries)}
        return here if backend not in LOOPS else {name: one for name, one in here.items() if not one.is_of_keras()}


def run_backend(backend: str, options: argparse.Namespace, results: Results) -> None:
    asked = [one for one in map(parsed, options.case) if one.backend == backend]
    with Children(backend, options.processes, options.keep, asked) as children:
        things = results.available(backend, children.libraries)
        results.left_out = (results.left_out or set(catalog())) - set(things)
        if options.case:
            cases: Iterable[Case] = asked
        else:
            cases = drawn(backend, things, options.cases, options.seed, options.most, alone=not options.fast)
        if options.fast:
            known = [one for one in kept(backend) if all(name in things for name, _ in one.things)]
            cases = itertools.chain(known, cases)
        until = time.monotonic() + options.minutes * 60
        children.run(itertools.takewhile(lambda _: time.monotonic() < until, cases), results.add)
        if not options.case:
            shrink(children, results, backend)


def shrink(children: Children, results: Results, backend: str) -> None:
    """Find which thing of a failed case with several fails alone; its case is added to the results."""
    alone = {one.case.things[0] for one in results.verdicts if one.kind in FAILURES and len(one.case.things) == 1}
    smaller: list[Case] = []
    for one in results.verdicts:
        if one.kind not in FAILURES or len(one.case.things) == 1 or one.case.backend != backend:
            continue
        pairs = [pair for pair in one.things if pair not in alone]
        smaller += [one.case._replace(things=(pair,)) for pair in pairs]
    children.run(smaller[:SHRUNK], results.add)


def groups() -> dict[str, str]:
    """Return {name of a thing: its group in the table}."""
    found = {}
    for name, thing in catalog().items():
        found[name] = thing.modules()[0].partition(".")[0] if thing.needs else name.partition(".")[0]
        if not thing.needs:
            found[name] = "numpy" if name.startswith("np.") else "keras" if name.startswith("keras") else "python"
    return found


def shown(results: Results) -> str:
    of = groups()
    by_group: dict[str, Counter[str]] = defaultdict(Counter)
    by_place: dict[str, Counter[str]] = defaultdict(Counter)
    failing: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in results.verdicts:
        for name, place in one.case.things:
            kind = one.kind if one.kind not in FAILURES or (name, place) in one.things else SAME
            by_group[of[name]][kind] += 1
            by_place[place][kind] += 1
            by_place[place]["resumed"] += one.resumed and not one.over
            by_group[of[name]]["resumed"] += one.resumed and not one.over
        if one.kind in FAILURES:
            for name, place in one.things:
                if len(one.case.things) == 1:
                    failing[name, one.kind][place] += 1
    columns = (*KINDS, "resumed")

    def rows(counted: dict[str, Counter[str]]) -> list[tuple[str, ...]]:
        return [(name, *(str(counted[name][kind] or "") for kind in columns)) for name in sorted(counted)]

    parts = [table(("library", *columns), rows(by_group)), table(("place", *columns), rows(by_place))]
    if failing:
        lines = [
            (name, kind, ", ".join(f"{place} {count}" for place, count in sorted(found.items())))
            for (name, kind), found in sorted(failing.items())
        ]
        parts.append(table(("fails alone", "verdict", "places"), lines))
    return "\n\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench state")
    parser.add_argument("--cases", type=int, metavar="N", help="of each backend")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no case of a backend begins later")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--backend", default="tensorflow", metavar="NAME,...", help=", ".join(DATA))
    parser.add_argument("--most", type=int, default=4, help="things in one training")
    parser.add_argument("--case", action="append", default=[], metavar="SPEC", help="run this case alone")
    parser.add_argument("--fast", action="store_true", help="what failed once, and a few random cases: 3 minutes")
    parser.add_argument("--keep", type=Path, help="where the folders of all cases stay")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where each verdict goes as a line of JSON")
    options = parser.parse_args()
    options.cases = options.cases or (FAST if options.fast else CASES)
    began, results = time.monotonic(), Results()
    for backend in {parsed(spec).backend for spec in options.case} or options.backend.split(","):
        run_backend(backend, options, results)
    count = Counter(one.kind for one in results.verdicts)
    if options.out:
        with options.out.open("a", encoding="utf-8") as file:
            for one in results.verdicts:
                row = [one.kind, one.case.spec(), one.detail, one.things, one.resumed, one.over]
                file.write(json.dumps(row) + "\n")
    if options.case:
        for one in results.verdicts:
            print(f"{one.kind}: {one.case.spec()}  {one.detail}{' (resumed)' if one.resumed else ''}")
    else:
        print(f"\n{shown(results)}\n")
    for backend, absent in results.absent.items():
        if absent:
            print(f"left out with {backend}, not installed: {', '.join(sorted(absent))}")
    print(f"{len(catalog()) - len(results.left_out)} of {len(catalog())} things in {len(PLACES)} places")
    cases = len(results.verdicts)
    found = [
        Goal("silent cases", count[SILENT], 0),
        Goal("crashed cases", count[CRASH], 0),
        Goal("cases that prove nothing", (count[UNSTEADY] + count[UNFIT]) / cases if cases else math.nan, 0.1),
    ]
    if not options.fast:  # it is said that the fit starts over, not that a file keeps its earlier lines
        found.append(Goal("cases that differ after a start over", count[OVER], 0))
    resumed = sum(one.resumed and not one.over for one in results.verdicts)
    totals = ", ".join(f"{count[kind]} {kind}" for kind in KINDS)
    seconds = time.monotonic() - began
    return concluded(found, f"\n{len(results.verdicts)} cases: {totals}; {resumed} resumed; {seconds:.0f} s; ")


if __name__ == "__main__":
    sys.exit(main())
