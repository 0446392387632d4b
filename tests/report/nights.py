"""Runs to report on: the synthetic nights of the bench, made short."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType

import msgspec

from stallguard.core.actions import Action
from stallguard.core.events import Event
from stallguard.report import document, html_page
from stallguard.storage.paths import RunDir
from tests.storage.lines import encoded

EMPTY: Mapping[str, str] = MappingProxyType({})
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


def page(run: RunDir, target: Path | None = None, environment: Mapping[str, str] = EMPTY) -> Path:
    """Write the page of a run, by default beside it; return its path."""
    path = target or run.path / "report.html"
    text = html_page.render(document.make(run, environment), beside=path.parent == run.path)
    path.write_text(text, "utf-8", "replace")
    return path


def line(second: float, **fields: object) -> bytes:
    """Return a line of a journal with fields of any kind, `second` seconds after ten o'clock."""
    return msgspec.json.encode({"time": _time(second), "clock": 100.0 + second, "level": "debug"} | fields) + b"\n"


def _time(second: float) -> str:
    minutes, seconds = divmod(second, 60)
    return f"2026-03-07T{10 + int(minutes // 60):02d}:{int(minutes % 60):02d}:{seconds:06.3f}Z"


def journal(path: Path, *happened: tuple[float, Event | Action]) -> Path:
    """Write a journal of (second, event or action)."""
    path.write_bytes(b"".join(written(second, what) for second, what in happened))
    return path


def written(second: float, what: Event | Action) -> bytes:
    """Return the line that a run writes `second` seconds after ten o'clock."""
    return encoded(what, _time(second), 100.0 + second)
