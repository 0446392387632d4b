"""`scripts/bench chaos`: is each promise kept if stallguard, a training or the machine fails?

Makes faults one after the other, each on real processes: a real `stallguard run` of a real child.  Most children are
small scripts that count their batches through the probe without a training library, so that a fault costs about a
second; a few train with Keras.  A fault that cannot be made on this machine is named and not counted.  Every row is
also a test (tests/test_bench_chaos.py), the long ones excepted.

`--only NAME,...` and `--list` choose; `--keep` keeps the folders of the rows that failed.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from chaos_faults.fault import Fault
from chaos_faults.stage import Broken, Stage
from chaos_faults.table import FAULTS

LEAST = 60  # rows
WIDTHS = (34, 52, 52)  # columns of the table, in characters


class Result(NamedTuple):
    """What became of a row.  `ok`: None if the fault cannot be made here."""

    fault: Fault
    seen: str
    ok: bool | None
    seconds: float


def tried(fault: Fault, keep: bool = False) -> Result:
    """Make one fault; return what was seen."""
    began = time.monotonic()
    missing = fault.needs()
    if missing:
        return Result(fault, f"not made: {missing}", None, 0.0)
    folder = Path(tempfile.mkdtemp(prefix="sgc-", dir="/tmp"))  # short, for the paths of sockets
    seen, ok = "", False
    try:
        with Stage(folder) as stage:
            seen = fault.check(stage)
            left = stage.left_over()
            if left:
                raise Broken(f"left behind: {', '.join(left)}")  # noqa: TRY301 - as a check does
        ok = True
    except Broken as broken:
        seen = str(broken)
    except Exception as error:  # noqa: BLE001 - a check that fails is a row that is not ok
        seen = f"{type(error).__name__}: {error} ({traceback.extract_tb(error.__traceback__)[-1]})"
    finally:
        if ok or not keep:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            seen += f" (kept in {folder})"
    return Result(fault, seen, ok, time.monotonic() - began)


def shown(results: Sequence[Result]) -> str:
    """Return the table: fault, promise, what was seen, and whether it is what was promised."""
    lines = []
    for result in results:
        mark = {True: "ok", False: "BROKEN", None: "-"}[result.ok]
        name = f"{result.fault.name}: {result.fault.done}"
        cells = [
            textwrap.wrap(text, width)
            for text, width in zip((name, result.fault.promised, result.seen), WIDTHS, strict=True)
        ]
        for number in range(max(map(len, cells))):
            parts = [
                (cell[number] if number < len(cell) else "").ljust(width)
                for cell, width in zip(cells, WIDTHS, strict=True)
            ]
            lines.append(" | ".join([*parts, mark if number == 0 else ""]).rstrip())
    head = " | ".join(
        [*(name.ljust(w) for name, w in zip(("fault", "promised", "seen"), WIDTHS, strict=True)), "ok"]
    )
    return "\n".join([head, "-" * len(head), *lines])


def chosen(only: str) -> list[Fault]:
    """Return the rows that are wanted.  Exits with a message if a name is unknown."""
    names = only.split(",") if only else [fault.name for fault in FAULTS]
    known = {fault.name: fault for fault in FAULTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"bench chaos: no fault {unknown[0]!r}; --list shows them all")
    return [known[name] for name in names]


def main() -> int:
    """Make the faults, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/bench chaos")
    parser.add_argument("--only", default="", metavar="NAME,...")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the folders of rows that fail")
    options = parser.parse_args()
    faults = chosen(options.only)
    if options.list:
        for fault in faults:
            print(f"{fault.name}: {fault.done}\n    {fault.promised}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began, results = time.monotonic(), []
    for number, fault in enumerate(faults, 1):
        result = tried(fault, options.keep)
        results.append(result)
        words = {True: "ok", False: f"BROKEN: {result.seen}", None: result.seen}[result.ok]
        print(
            f"{number}/{len(faults)} {fault.name}: {words} ({result.seconds:.1f} s)",
            file=sys.stderr,
            flush=True,
        )
    print(shown(results))
    broken = [result.fault.name for result in results if result.ok is False]
    made = sum(result.ok is not None for result in results)
    few = made < LEAST and not options.only
    verdict = (
        f"broken: {', '.join(broken)}" if broken else f"fewer than {LEAST}" if few else "all promises kept"
    )
    print(f"\n{made} faults, {len(broken)} broken promises, {time.monotonic() - began:.0f} s; {verdict}")
    return 1 if broken or few else 0


if __name__ == "__main__":
    sys.exit(main())
