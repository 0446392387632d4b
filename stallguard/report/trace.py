"""The trace of a run for OpenTelemetry: the run, its attempts and its incidents are spans, sent by OTLP over HTTP.

`send` starts this module as a program of its own, `python -m stallguard.report.trace RUN`, at the end of a run if an
address is set: the SDK of OpenTelemetry, its exporter, and the journal of a whole run take time and memory that a
supervisor must not keep.  So the module imports what it makes the spans of only in that program, and `send` must not
raise.  The exporter reads the address from OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT.
Spans contain ids, times, numbers and causes: no arguments, no output, no paths.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from stallguard.storage.paths import RunDir

NO_SDK = (
    "metrics.otlp is set and OpenTelemetry is not installed: no trace is sent; "
    "install stallguard from its clone with the extra: uv tool install --force '.[otel]'"
)
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PATIENCE = 10.0  # seconds for the whole program
ROOT = Path(__file__).resolve().parents[2]  # as the child's directory: nothing of the user's can be imported


def is_installed() -> bool:
    """Return whether the extra `otel` is installed."""
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ImportError:
        return False


def is_wanted(address: str, env: Mapping[str, str]) -> bool:
    """Return whether an address is set.  `address`: the setting metrics.otlp."""
    return bool(address) or any(env.get(name) for name in ENDPOINTS)


def send(run: Path, address: str, env: Mapping[str, str]) -> str:
    """Send the trace of a run by a process of its own; return why that failed, "" if it was accepted.

    `address`: the setting metrics.otlp; "" for that of the environment.
    """
    environment = dict(env) | ({ENDPOINTS[0]: address} if address else {})
    if address:
        environment.pop(ENDPOINTS[1], None)
    command = [sys.executable, "-P", "-m", "stallguard.report.trace", str(run.resolve())]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, timeout=PATIENCE, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it was not accepted within {PATIENCE:g} s"
    except OSError as error:
        return str(error)
    words = done.stderr.decode(errors="replace").strip().splitlines()
    return "" if done.returncode == 0 else (words[-1] if words else f"exit code {done.returncode}")


TRIES = 5.0  # seconds for which the exporter tries
Value = str | int | float


class TraceSpan(NamedTuple):
    """One span.  `began`, `ended`: seconds since the epoch; `parent`: index of the span that it is in, or None."""

    name: str
    began: float
    ended: float
    parent: int | None
    facts: dict[str, Value]
    failed: bool


def spans(run: RunDir) -> list[TraceSpan]:
    """Return the spans of a run: the run first, then its attempts, then its incidents."""
    from stallguard.report import attempt_rows, incidents, journal_record
    from stallguard.storage import run_files

    record, end = journal_record.read(run.journal), run_files.outcome(run)
    tries, troubles = attempt_rows.attempts(record), incidents.incidents(record)
    facts: dict[str, Value] = {"stallguard.run": run.id, "stallguard.state": run_files.state(run)}
    if end is not None:
        facts |= {"stallguard.exit_code": end.code, "stallguard.stalls": end.incidents,
                  "stallguard.attempts": end.attempts}  # fmt: skip
        facts |= {} if end.batches is None else {"stallguard.batches": end.batches}
        facts |= {} if end.crashes is None else {"stallguard.crashes": end.crashes}
        facts |= {} if end.effective is None else {"stallguard.effective": end.effective}
    found = [TraceSpan("run", record.first, record.last, None, facts, failed=end is None or end.code != 0)]
    for one in tries:
        facts = {"stallguard.attempt": one.number, "stallguard.batches": one.batches,
                 "stallguard.factor": one.factor, "stallguard.device": one.device}  # fmt: skip
        facts |= {} if one.code is None else {"stallguard.exit_code": one.code}
        ended = record.last if one.ended is None else one.ended
        found.append(TraceSpan(f"attempt {one.number}", one.began, ended, 0, facts, failed=bool(one.code)))
    places = {one.number: index for index, one in enumerate(tries, 1)}
    for trouble in troubles:
        facts = {"stallguard.outcome": trouble.outcome, "stallguard.lost_seconds": round(trouble.lost, 3)}
        if trouble.findings:
            facts |= {"stallguard.cause": trouble.findings[0].cause,
                      "stallguard.confidence": trouble.findings[0].confidence}  # fmt: skip
        ended = record.last if trouble.ended is None else trouble.ended
        parent = places.get(trouble.attempt, 0)
        found.append(TraceSpan(trouble.kind, trouble.began, max(trouble.began, ended), parent, facts, failed=True))
    return found


def exported(found: Sequence[TraceSpan], version: str) -> list[Any]:
    """Return spans as those of the SDK."""
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    resource = Resource.create({"service.name": "stallguard", "service.version": version})
    provider, kept = TracerProvider(sampler=ALWAYS_ON, resource=resource), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer, made = provider.get_tracer("stallguard", version), list[trace.Span]()
    for one in found:
        context = None if one.parent is None else trace.set_span_in_context(made[one.parent])
        span = tracer.start_span(one.name, context, attributes=one.facts, start_time=round(one.began * 1e9))
        span.set_status(trace.StatusCode.ERROR if one.failed else trace.StatusCode.OK)
        made.append(span)
    for one, span in zip(found, made, strict=True):
        span.end(round(one.ended * 1e9))
    return list(kept.get_finished_spans())


def main(place: str) -> None:
    """Send the trace of the run in a directory.  Raises SystemExit with the reason if it was not accepted."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    from stallguard import __version__
    from stallguard.storage.paths import RunDir

    found = spans(RunDir(Path(place)))
    result = OTLPSpanExporter(timeout=TRIES).export(exported(found, __version__))
    if result is not SpanExportResult.SUCCESS:
        raise SystemExit(1)  # the exporter has logged the reason as the last line


if __name__ == "__main__":
    main(sys.argv[1])
