"""The trace of a run reaches an OTLP receiver on this machine, if an address is set, and never disturbs the run."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallguard.report import trace
from stallguard.storage import journal
from tests.guarded.runs import guard

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

LOOP = Path(__file__).parents[1] / "guarded" / "scripts" / "loop.py"
QUIET = ("--set", "notify.desktop=off")
CRASH = """
import os, stallguard, time
for _ in range(3):
    stallguard.beat()
    time.sleep(0.05)
if not os.path.exists("crashed"):
    open("crashed", "w").close()
    os.kill(os.getpid(), 11)
"""


@contextlib.contextmanager
def receiver(code: int = 200) -> Iterator[tuple[str, list[tuple[str, ExportTraceServiceRequest]]]]:
    """Yield the address of an OTLP receiver that answers `code`, and what it got: path and content."""
    got: list[tuple[str, ExportTraceServiceRequest]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            import gzip

            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            got.append((self.path, ExportTraceServiceRequest.FromString(body)))
            self.send_response(code)
            self.end_headers()

        def log_message(self, *_words: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("by", ["setting", "environment"])
def test_run_attempts_and_incidents_are_spans_of_one_trace(tmp_path: Path, by: str) -> None:
    (tmp_path / "train.py").write_text(CRASH)
    with receiver() as (address, got):
        setting = ("--set", f"metrics.otlp={address}") if by == "setting" else ()
        env = {} if setting else {"OTEL_EXPORTER_OTLP_ENDPOINT": address}
        words = (*QUIET, *setting, "--set", "policy.backoff=0s", "train.py", "--token=hunter2hunter2")
        done = guard(tmp_path / "home", *words, cwd=tmp_path, env=env)

    assert done.code == 0, done.err
    ((path, request),) = got
    assert path == "/v1/traces"
    (resource,) = request.resource_spans
    assert {one.key: one.value.string_value for one in resource.resource.attributes}["service.name"] == "stallguard"
    spans = [span for scope in resource.scope_spans for span in scope.spans]
    by_name = {span.name: span for span in spans}
    assert sorted(by_name) == ["attempt 1", "attempt 2", "crash", "run"]
    run = by_name["run"]
    assert {span.trace_id for span in spans} == {run.trace_id}
    parents = {name: span.parent_span_id for name, span in by_name.items()}
    assert parents == {
        "run": b"", "attempt 1": run.span_id, "attempt 2": run.span_id, "crash": by_name["attempt 1"].span_id,
    }  # fmt: skip
    facts = {one.key: one.value for one in run.attributes}
    assert facts["stallguard.run"].string_value == done.run.name
    assert facts["stallguard.attempts"].int_value == 2
    for span in spans:
        assert run.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= run.end_time_unix_nano + 1_000_000_000
    assert run.end_time_unix_nano - run.start_time_unix_nano < 300e9
    assert b"hunter2" not in request.SerializeToString()


def test_nothing_is_sent_without_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not trace.is_wanted("", {"OTEL_SERVICE_NAME": "x"})
    with receiver() as (_address, got):
        done = guard(tmp_path / "home", *QUIET, str(LOOP), "x", "2", "0.01")
    assert (done.code, got) == (0, [])


def test_a_receiver_that_refuses_is_reported_and_costs_no_exit_code(tmp_path: Path) -> None:
    with receiver(403) as (address, got):
        words = (*QUIET, "--set", f"metrics.otlp={address}", str(LOOP), "x", "2", "0.01")
        done = guard(tmp_path / "home", *words)

    assert (done.code, len(got)) == (0, 1)
    assert "the trace of the run is not sent: " in done.err
    assert "403" in done.err
    assert done.run is not None
    messages = [entry.line.message for entry in journal.read(done.run / "journal.jsonl")]
    assert any("the trace of the run is not sent" in text for text in messages)
