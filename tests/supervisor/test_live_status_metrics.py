"""The file for node_exporter: it can be parsed, it is whole at any time, and it agrees with the run."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_fd_to_metric_families, text_string_to_metric_families

from stallguard.core import lifecycle
from stallguard.core.events import Heartbeat
from stallguard.core.time_spent import Spent
from stallguard.supervisor import live_status
from stallguard.supervisor.live_status import LiveStatus, ProgressRates
from tests.guarded.runs import guard

LOOP = Path(__file__).parents[1] / "guarded" / "scripts" / "loop.py"
BUSY = LiveStatus(
    schema=1, run='night "1"\\x', state="running", attempt=2, batches=1234, silent=0.25, incidents=1,
    rates=ProgressRates(batches=2.5, cpu=None), effective=0.93, spent=Spent(training=90.0, stalled=6.5),
    progress=Heartbeat(at=1.0, attempt=2, beats=9, epoch=4, loss=math.nan),
)  # fmt: skip


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return each value by the name of its sample and its labels but `run`, as Prometheus' own parser reads them."""
    return {
        (one.name, *(value for name, value in one.labels.items() if name != "run")): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_what_is_known_of_a_run_is_there_by_the_parser_of_prometheus() -> None:
    text = live_status.metrics_text(BUSY, 1_763_680_000.5)
    found = samples(text)

    runs = {one.labels["run"] for family in text_string_to_metric_families(text) for one in family.samples}
    assert runs == {'night "1"\\x'}
    assert found["stallguard_state", "running"] == 1
    assert sum(value for key, value in found.items() if key[0] == "stallguard_state") == 1
    assert math.isnan(found.pop(("stallguard_loss",)))
    expected = {
        "attempt": 2, "restarts_total": 1, "stalls_total": 1, "batches_total": 1234, "batches_per_second": 2.5,
        "silent_seconds": 0.25, "effective_ratio": 0.93, "epoch": 5, "updated_timestamp_seconds": 1_763_680_000.5,
    }  # fmt: skip
    assert {key[0].removeprefix("stallguard_"): value for key, value in found.items() if len(key) == 1} == expected
    assert found["stallguard_spent_seconds_total", "stalled"] == 6.5


def test_what_is_not_known_is_left_out_and_an_end_has_its_code() -> None:
    found = samples(live_status.metrics_text(LiveStatus(1, "r", "new"), 1.0, 124))

    assert found["stallguard_state", lifecycle.FAILED] == 1
    assert found["stallguard_exit_code",] == 124
    assert not any(name.startswith("stallguard_batches") for name, *_ in found)


def test_a_reader_never_finds_half_a_file(tmp_path: Path) -> None:
    path, over, broken = tmp_path / "run.prom", threading.Event(), list[str]()
    texts = ["a" * 200_000, "b" * 300_000]
    live_status.write_metrics(path, texts[0])

    def read() -> None:
        while not over.is_set():
            if (text := path.read_text()) not in texts:
                broken.append(text[:10])

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(100):
        live_status.write_metrics(path, texts[number % 2])
    over.set()
    reader.join()

    assert broken == []
    assert [one.name for one in tmp_path.iterdir()] == ["run.prom"]
    assert path.stat().st_mode & 0o444 == 0o444


def test_a_file_that_cannot_be_written_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_status, "METRICS_EVERY", 0.01)
    troubles, tries = list[str](), threading.Semaphore(0)

    def status() -> LiveStatus:
        tries.release()
        return BUSY

    written = live_status.MetricsFile(tmp_path / "missing" / "x.prom", status, troubles.append)
    written.open()
    for _ in range(5):
        assert tries.acquire(timeout=30)
    written.close(0)

    assert len(troubles) == 1
    assert "cannot be written (No such file or directory)" in troubles[0]


def test_a_run_leaves_its_end_in_the_file(tmp_path: Path) -> None:
    textfile = tmp_path / "stallguard.prom"
    words = (
        "--set", f"metrics.textfile={textfile}", "--set", "notify.desktop=off", str(LOOP), "x", "5", "0.01",
    )  # fmt: skip
    done = guard(tmp_path / "home", *words)

    assert done.code == 0, done.err
    with textfile.open() as file:
        found = {family.name: family for family in text_fd_to_metric_families(file)}
    assert found["stallguard_batches"].samples[0].value == 5
    assert found["stallguard_exit_code"].samples[0].value == 0
    assert found["stallguard_attempt"].samples[0].labels == {"run": done.run.name}
    spent = sum(one.value for one in found["stallguard_spent_seconds"].samples)
    assert spent == pytest.approx(done.outcome()["duration_seconds"], abs=0.5)
