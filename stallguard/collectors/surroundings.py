"""Evidence beside the stacks of a stuck process: its tree, environment, versions, last records and last output.

Each function is the `gather` of a Collector.  Must not judge, and must not depend on a platform.
"""

from __future__ import annotations

import contextlib
import platform
import re
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from stallguard import __version__, host
from stallguard.collectors import EvidenceContext, Facts, Nothing, gpu_reports
from stallguard.collectors.evidence_text import Sheet
from stallguard.host.psutil_errors import ERRORS
from stallguard.storage import journal, rotation

EVIDENCE_TOOLS = host.evidence_tools()
TAIL = 128 << 10  # bytes of output
RECORDS = 768 << 10  # bytes of journal: some minutes at four samples a second
REPORTS_MAX = 10
_LINE_ENDS = re.compile(rb"[\n\r\x08]")
LIBRARIES = ("psutil", "msgspec", "structlog", "click", "rich", "numpy", "watchdog", "jinja2")


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
    found = gpu_reports.newer(places, context.since)[:REPORTS_MAX]
    texts = {path.name: path.read_text(errors="replace") for path in found}
    read = {name: gpu_reports.parse(text, name) for name, text in texts.items()}
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
