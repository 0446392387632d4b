"""`scripts/bench chaos`: is each promise kept if stallguard, a training or the machine fails?

Makes faults one after the other, each on real processes: a real `stallguard run` of a real child.  Most children are
small scripts that count their batches through the probe without a training library, so that a fault costs about a
second; a few train with Keras.  A fault that cannot be made on this machine is named and not counted.  Every row is
also a test (tests/test_bench_chaos.py), the long ones excepted.

`--only NAME,...` and `--list` choose; `--keep` keeps the folders of the rows that failed.  `--without-guards` takes the
guard of each row out of a copy of stallguard, and expects that the promise is broken then (guardless.py).
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from chaos_faults.fault import Fault
from chaos_faults.stage import Broken, Stage
from chaos_faults.table import FAULTS
from harness.results import Goal, concluded

LEAST = 60  # rows


class Result(NamedTuple):
    """What became of a row.  `ok`: None if the fault cannot be made here."""

    fault: Fault
    seen: str
    ok: bool | None
    seconds: float


def made(fault: Fault, folder: Path, package: Path | None = None) -> tuple[str, bool]:
    """Make one fault in `folder`; return what was seen, and whether the promise was kept.

    `package`: the directory of a copy of stallguard that runs in place of ours.
    """
    try:
        with Stage(folder, package) as stage:
            seen = fault.check(stage)
            left = stage.left_over()
            if left:
                raise Broken(f"left behind: {', '.join(left)}")  # noqa: TRY301 - as a check does
    except Broken as broken:
        return str(broken), False
    except Exception as error:  # noqa: BLE001 - a check that fails is a row that is not ok
        return f"{type(error).__name__}: {error} ({traceback.extract_tb(error.__traceback__)[-1]})", False
    return seen, True


def tried(fault: Fault, keep: bool = False) -> Result:
    began = time.monotonic()
    missing = fault.needs()
    if missing:
        return Result(fault, f"not made: {missing}", None, 0.0)
    folder = Path(tempfile.mkdtemp(prefix="sgc-", dir="/tmp"))  # short, for the paths of sockets
    seen, ok = "", False
    try:
        seen, ok = made(fault, folder)
    finally:
        if ok or not keep:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            seen += f" (kept in {folder})"
    return Result(fault, seen, ok, time.monotonic() - began)


def shown(results: Sequence[Result]) -> str:
    """Return of each fault what was done, promised and seen, and whether it is what was promised."""
    marks = {True: "ok", False: "BROKEN", None: "-"}
    return "\n".join(
        f"{marks[one.ok]:<8}{one.fault.name}: {one.fault.done}\n{'':<8}promised: {one.fault.promised}\n"
        f"{'':<8}seen: {one.seen}"
        for one in results
    )


def chosen(only: str) -> list[Fault]:
    """Return the rows that are wanted.  Exits with a message if a name is unknown."""
    names = only.split(",") if only else [fault.name for fault in FAULTS]
    known = {fault.name: fault for fault in FAULTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"bench chaos: no fault {unknown[0]!r}; --list shows them all")
    return [known[name] for name in names]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench chaos")
    parser.add_argument("--only", default="", metavar="NAME,...")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the folders of rows that fail")
    parser.add_argument("--without-guards", action="store_true", help="expect that each row fails")
    options = parser.parse_args()
    faults = chosen(options.only)
    if options.list:
        for fault in faults:
            print(f"{fault.name}: {fault.done}\n    {fault.promised}")
        return 0
    for one in (signal.SIGTERM, signal.SIGINT):  # SIGINT is ignored in the background of a script
        signal.signal(one, signal.default_int_handler)
    if options.without_guards:
        from chaos_faults import guardless

        return guardless.main(faults)
    began, results = time.monotonic(), []
    for number, fault in enumerate(faults, 1):
        result = tried(fault, options.keep)
        results.append(result)
        words = {True: "ok", False: f"BROKEN: {result.seen}", None: result.seen}[result.ok]
        print(f"{number}/{len(faults)} {fault.name}: {words} ({result.seconds:.1f} s)", file=sys.stderr, flush=True)
    print(shown(results))
    broken = [result.fault.name for result in results if result.ok is False]
    made = sum(result.ok is not None for result in results)
    goals = [Goal("broken promises", len(broken), 0)]
    goals += [] if options.only else [Goal(f"faults missing of {LEAST}", max(0, LEAST - made), 0)]
    words = f"broken: {', '.join(broken)}; " if broken else ""
    return concluded(goals, f"\n{made} faults, {time.monotonic() - began:.0f} s; {words}")


if __name__ == "__main__":
    sys.exit(main())
