"""Runs to report on: the synthetic nights of the bench, made short."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import msgspec

from stallguard.core.actions import Action
from stallguard.core.events import Event
from stallguard.storage.paths import RunDir

BENCH = Path(__file__).parents[2] / "scripts" / "benches" / "report.py"


def _bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("report_bench", BENCH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


bench = _bench()


def night(place: Path, minutes: float = 20, rate: int = 20, stalls: int = 2) -> RunDir:
    """Write a run of so many minutes with so many stalls; return its directory."""
    return RunDir(bench.make(place / "runs" / "night", bench.Night(minutes / 60, rate, stalls)))


def line(second: float, kind: str, data: object) -> bytes:
    """Return a line of a journal, `second` seconds after ten o'clock."""
    minutes, seconds = divmod(second, 60)
    utc = f"2026-03-07T{10 + int(minutes // 60):02d}:{int(minutes % 60):02d}:{seconds:06.3f}Z"
    return (
        msgspec.json.encode({"schema": 1, "utc": utc, "at": 100.0 + second, "kind": kind, "data": data})
        + b"\n"
    )


def journal(path: Path, *happened: tuple[float, Event | Action]) -> Path:
    """Write a journal of (second, event or action)."""
    path.write_bytes(b"".join(_line(second, what) for second, what in happened))
    return path


def _line(second: float, what: Event | Action) -> bytes:
    if isinstance(what, Event):
        return line(second, "event", msgspec.structs.replace(what, at=100.0 + second))
    return line(second, "action", what)
