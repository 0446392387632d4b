"""Evidence beside the stacks of a stuck process: its tree, environment, versions, last records and output, reports.

Each function is the `gather` of a Collector.  Must not judge, and must not depend on a platform.

A report of macOS is about a GPU restart, a jetsam kill, a crash, a hang or a panic.  An .ips file is a line of JSON
(the header) and a JSON object (the body).  The daemon writes late or not at all, and a report of a GPU restart names
the process whose work was running: a missing report proves nothing, and a report does not prove the cause.
`parse_report` is pure; a field that is missing or of another shape is left out.
"""

from __future__ import annotations

import contextlib
import json
import platform
import re
import sys
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import psutil

from stallguard import __version__, host
from stallguard.collectors import EvidenceContext, Facts, Nothing, Sheet
from stallguard.core.device_account import account, described
from stallguard.core.events import AnyEvent, Heartbeat, Sampled
from stallguard.core.readings import Device
from stallguard.errors import UNREADABLE
from stallguard.host.psutil_errors import ERRORS
from stallguard.storage import journal, rotation

EVIDENCE_TOOLS = host.evidence_tools()
TAIL = 128 << 10  # bytes of output
RECORDS = 768 << 10  # bytes of journal: some minutes at four samples a second
REPORTS_MAX = 10
_LINE_ENDS = re.compile(rb"[\n\r\x08]")
LIBRARIES = ("psutil", "msgspec", "structlog", "click", "rich", "numpy", "watchdog", "jinja2")

PLACES_MAX = 2000  # files considered in one directory
MARGIN = 5.0  # seconds before `since` that still count: file times are coarse
KINDS = {  # by bug_type of the header
    "284": "gpu restart", "298": "jetsam", "309": "crash", "385": "crash", "210": "panic", "288": "hang",
}  # fmt: skip
NAMES = {"gpuEvent": "gpu restart", "JetsamEvent": "jetsam", "panic": "panic"}
ENGINES = {3: "compute", 1: "graphics"}  # analysis.guilty_dm
VICTIMS_MAX = 5


def processes(context: EvidenceContext, sheet: Sheet) -> Facts:
    """Write the process tree; first without command lines, whose reading blocks if a process is stuck in the kernel."""
    try:
        root = psutil.Process(context.root or context.pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.Error as error:
        raise Nothing("the process is gone") from error
    sheet.json("processes.json", [_row(process) for process in tree])
    rows = []
    for process in tree:
        row = _row(process) | {"command": []}
        with contextlib.suppress(*ERRORS):
            row["command"] = list(process.cmdline())
        rows.append(row)
    sheet.json("processes.json", rows)
    return {"processes": len(tree)}


def _row(process: psutil.Process) -> dict[str, Any]:
    row: dict[str, Any] = {"pid": process.pid}
    with contextlib.suppress(*ERRORS), process.oneshot():
        row |= {"name": process.name(), "parent": process.ppid(), "state": process.status()}
        row |= {"age": round(time.time() - process.create_time(), 1), "threads": process.num_threads()}
        cpu, memory = process.cpu_times(), process.memory_info()
        row |= {"user": cpu.user, "system": cpu.system, "rss": memory.rss}
    return row


def environment(context: EvidenceContext, sheet: Sheet) -> None:
    """Write the environment of the child, values of harmless variables only."""
    if not context.environment:
        raise Nothing("the environment of this process is not known")
    sheet.clean_json("environment.json", sheet.redactor.environment(context.environment))


def versions(context: EvidenceContext, sheet: Sheet) -> None:
    """Write the versions of the system, of stallguard and of what the probe found, and the command line."""
    supervisor = {"python": sys.version, "stallguard": __version__} | dict.fromkeys(LIBRARIES, "absent")
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            supervisor[name] = metadata.version(name)
    sheet.json(
        "versions.json",
        {
            "system": platform.platform(),
            "machine": platform.machine(),
            "macos": platform.mac_ver()[0],
            "training": dict(context.versions),
            "supervisor": supervisor,
            "argv": list(context.argv),
        },
    )


def output(context: EvidenceContext, sheet: Sheet) -> None:
    """Write the end of the script's output, in whole lines."""
    sheet.data("output.txt", _tail(context, "output.log", TAIL))


def records(context: EvidenceContext, sheet: Sheet) -> None:
    """Write the last minutes of beats, samples and judgements: the end of the journal."""
    sheet.data("journal.jsonl", _tail(context, "journal.jsonl", min(RECORDS, sheet.left)))


def device(context: EvidenceContext, sheet: Sheet) -> Facts:
    """Write what the GPU did since the last progress, by the readings in the journal."""
    decode = msgspec.json.Decoder(AnyEvent).decode
    since, seen = 0.0, []
    for line in _tail(context, "journal.jsonl", RECORDS).splitlines():
        with contextlib.suppress(*UNREADABLE):
            event = decode(line)
            if isinstance(event, Heartbeat) and event.pid in (0, context.pid):
                since = event.progress_at
            elif isinstance(event, Sampled) and isinstance(event.reading, Device):
                seen.append((event.at, event.reading))
    did = account(((at, one) for at, one in seen if one.pid in (0, context.pid)), since, float("inf"))
    if did is None:
        raise Nothing("no reading of the GPU is newer than the last progress")
    sheet.json("device.json", did)
    return {"device": described(did)}


def _tail(context: EvidenceContext, name: str, size: int) -> bytes:
    if context.run is None:
        raise Nothing("the directory of the run is not known")
    data = tail(context.run / name, size)
    if not data:
        raise Nothing(f"{name} is empty")
    return data


def tail(path: Path, size: int, *, parts: bool = True) -> bytes:
    """Return the last whole lines of a file, at most `size` bytes; carriage returns of a progress bar end lines too.

    A cut line is left out: the missing part can be the name that identifies a secret.  `parts`: continue in older
    parts.
    """
    data = b""
    for part in reversed(journal.parts(path) if parts else [path]):
        room = size - len(data) + 1
        with journal.opened(part) as file:
            if part.suffix != rotation.PACKED:  # compressed: must be read from its beginning; it is small
                file.seek(max(0, file.seek(0, 2) - room))
            data = file.read()[-room:] + data
        if len(data) > size:
            begin = _LINE_ENDS.search(data)
            return data[begin.end() :] if begin else b""
    return data


def reports(context: EvidenceContext, sheet: Sheet) -> Facts:
    """Write the system's own reports that are newer than the attempt, and a summary."""
    places = EVIDENCE_TOOLS.report_places()
    if not places:
        raise Nothing("this system keeps no such reports")
    found = newer_reports(places, context.since)[:REPORTS_MAX]
    texts = {path.name: path.read_text(errors="replace") for path in found}
    read = {name: parse_report(text, name) for name, text in texts.items()}
    if read:
        sheet.json("reports.json", read)
    for name, text in texts.items():
        sheet.text(f"report-{name}", text)
    return {"reports": sorted({report.kind for report in read.values() if report})}


def source(context: EvidenceContext, sheet: Sheet) -> None:
    """Write the script's text, if the user allows that."""
    if not context.include_source:
        raise Nothing("the script's text is taken with --include-source only")
    if context.script is None:
        raise Nothing("the file of the script is not known")
    sheet.text(f"source-{context.script.name}", context.script.read_text(errors="surrogateescape"))


class SystemReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """One report.  `process`: the one it names; `facts`: its content as text; `victims`: killed pids."""

    kind: str
    at: str = ""  # local time with offset, as written
    system: str = ""
    process: str = ""
    facts: dict[str, str] = {}
    victims: tuple[int, ...] = ()


ReportFacts = tuple[dict[str, str], tuple[int, ...]]  # facts and victims of a SystemReport


def parse_report(text: str, name: str = "") -> SystemReport | None:
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
    facts, victims = _READERS[kind](body) if kind in _READERS else ({}, ())
    return SystemReport(
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


def _gpu(body: Mapping[str, Any]) -> ReportFacts:
    analysis = _object(body.get("analysis"))
    facts = {
        "reason": analysis.get("restart_reason_desc"),
        "code": analysis.get("restart_reason"),
        "signature": analysis.get("signature"),
        "engine": ENGINES.get(_number(analysis.get("guilty_dm"))),
    }
    return _said(facts), ()


def _jetsam(body: Mapping[str, Any]) -> ReportFacts:
    memory = _object(body.get("memoryStatus"))
    page = _number(memory.get("pageSize") or body.get("pageSize")) or 16384  # of Apple silicon
    listed = body.get("processes")
    entries = map(_object, listed if isinstance(listed, list) else ())
    victims = [entry for entry in entries if entry.get("reason")]
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


def _crash(body: Mapping[str, Any]) -> ReportFacts:
    exception, end = _object(body.get("exception")), _object(body.get("termination"))
    facts = {"exception": exception.get("type"), "signal": exception.get("signal"), "because": end.get("indicator")}
    return _said(facts), (_number(body.get("pid")),) if body.get("pid") else ()


_READERS = {"gpu restart": _gpu, "jetsam": _jetsam, "crash": _crash}


def _said(facts: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in facts.items() if value not in (None, "", "0 MB")}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 10**9 else f"{count / 1e6:.0f} MB"


def newer_reports(places: Iterable[Path], since: float) -> list[Path]:
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
