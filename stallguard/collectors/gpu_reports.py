"""Reports of macOS: GPU restarts, jetsam kills, crashes, hangs, panics.

An .ips file is a line of JSON (the header) and a JSON object (the body).  The daemon writes late or not at all,
and a report of a GPU restart names the process whose work was running: a missing report proves nothing, and a report
does not prove the cause. `parse` is pure; a field that is missing or of another shape is left out.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

PLACES_MAX = 2000  # files considered in one directory
MARGIN = 5.0  # seconds before `since` that still count: file times are coarse
KINDS = {  # by bug_type of the header
    "284": "gpu restart", "298": "jetsam", "309": "crash", "385": "crash", "210": "panic", "288": "hang",
}  # fmt: skip
NAMES = {"gpuEvent": "gpu restart", "JetsamEvent": "jetsam", "panic": "panic"}
ENGINES = {3: "compute", 1: "graphics"}  # analysis.guilty_dm
VICTIMS_MAX = 5


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """One report.  `process`: the one it names; `facts`: its content as text; `victims`: killed pids."""

    kind: str
    at: str = ""  # local time with offset, as written
    system: str = ""
    process: str = ""
    facts: dict[str, str] = {}
    victims: tuple[int, ...] = ()


def parse(text: str, name: str = "") -> Report | None:
    """Return a report as values; None if the file is not a report.  `name`: of its file."""
    head, _, rest = text.strip().partition("\n")
    header = _json(head)
    body = _json(rest) if header else _json(text)  # without a header, the whole text is the body
    if not header and not body:
        return None
    kind = KINDS.get(str(header.get("bug_type") or body.get("bug_type")), "")
    if not kind:
        of_ending = "hang" if name.endswith((".spin", ".hang")) else ""
        kind = next((known for start, known in NAMES.items() if name.startswith(start)), of_ending)
    analysis = _object(body.get("analysis"))
    facts, victims = _READERS.get(kind, _no_more)(body, analysis)
    return Report(
        kind=kind or "report",
        at=str(header.get("timestamp", "")),
        system=str(header.get("os_version", "")),
        process=str(body.get("process_name") or body.get("procName") or header.get("app_name") or ""),
        facts=facts,
        victims=victims,
    )


def _json(text: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        return _object(json.loads(text))
    return {}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _gpu(_body: Mapping[str, Any], analysis: Mapping[str, Any]) -> tuple[dict[str, str], tuple[int, ...]]:
    facts = {
        "reason": analysis.get("restart_reason_desc"),
        "code": analysis.get("restart_reason"),
        "signature": analysis.get("signature"),
        "engine": ENGINES.get(_number(analysis.get("guilty_dm"))),
    }
    return _said(facts), ()


def _jetsam(body: Mapping[str, Any], _analysis: Mapping[str, Any]) -> tuple[dict[str, str], tuple[int, ...]]:
    memory = _object(body.get("memoryStatus"))
    page = _number(memory.get("pageSize") or body.get("pageSize")) or 16384  # of Apple silicon
    listed = body.get("processes")
    victims = (
        [_object(entry) for entry in listed if _object(entry).get("reason")]
        if isinstance(listed, list)
        else []
    )
    killed = [
        f"{entry.get('name', '?')} (pid {entry.get('pid', '?')}, {_size(_number(entry.get('rpages')) * page)}): "
        f"{entry['reason']}"
        for entry in victims[:VICTIMS_MAX]
    ]
    facts = {
        "largest": body.get("largestProcess"),
        "free": _size(_number(_object(memory.get("memoryPages")).get("free")) * page),
        "compressor": _size(_number(memory.get("compressorSize")) * page),
        "killed": "; ".join(killed),
    }
    return _said(facts), tuple(_number(entry.get("pid")) for entry in victims)


def _crash(body: Mapping[str, Any], _analysis: Mapping[str, Any]) -> tuple[dict[str, str], tuple[int, ...]]:
    exception, end = _object(body.get("exception")), _object(body.get("termination"))
    facts = {
        "exception": exception.get("type"),
        "signal": exception.get("signal"),
        "because": end.get("indicator"),
    }
    return _said(facts), (_number(body.get("pid")),) if body.get("pid") else ()


def _no_more(
    _body: Mapping[str, Any], _analysis: Mapping[str, Any]
) -> tuple[dict[str, str], tuple[int, ...]]:
    return {}, ()


_READERS = {"gpu restart": _gpu, "jetsam": _jetsam, "crash": _crash}


def _said(facts: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in facts.items() if value not in (None, "", "0 MB")}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 10**9 else f"{count / 1e6:.0f} MB"


def newer(places: Iterable[Path], since: float) -> list[Path]:
    """Return the reports in `places` written since then (seconds since the epoch), newest first."""
    found = [(path, when) for place in places for path, when in _reports(place) if when >= since - MARGIN]
    return [path for path, _ in sorted(found, key=lambda pair: pair[1], reverse=True)]


def _reports(place: Path) -> list[tuple[Path, float]]:
    """Return the reports in a directory, each with the time of its last change; none if it cannot be read."""
    found = []
    with contextlib.suppress(OSError):  # absent, or readable by administrators only
        for path in list(place.iterdir())[:PLACES_MAX]:
            is_known = path.name.startswith(tuple(NAMES)) or "ython" in path.name
            if is_known and path.suffix in (".ips", ".spin", ".hang", ".panic"):
                with contextlib.suppress(OSError):  # moved to Retired meanwhile
                    found.append((path, path.stat().st_mtime))
    return found
