"""A collector's sheet: what it takes, and when it takes no more."""

from __future__ import annotations

import threading

import pytest

from stallguard.collectors import Collector, evidence_bundle, fit
from tests.collectors.stuck import LONG, SECRET, context, item


def test_a_late_collector_writes_nothing_any_more(tmp_path):
    late, done = threading.Event(), threading.Event()

    def slow(_context, sheet):
        late.wait(LONG)
        sheet.text("late.txt", "x")
        done.set()

    def longer(*_):  # begins when the other one's time is over, and is there until it has written
        late.set()
        done.wait(LONG)

    collectors = [Collector("slow", slow, 0.1, 1000, first=True), Collector("longer", longer, LONG, 1000)]
    manifest = evidence_bundle.gather(context(tmp_path, budget=LONG), collectors)
    assert done.is_set()
    assert item(manifest, "slow").state == "late"
    assert not (tmp_path / "1/late.txt").exists()


@pytest.mark.costly
def test_a_collector_that_floods_is_cut_and_says_so(tmp_path):
    def flood(_context, sheet):
        for number in range(100):
            sheet.text(f"flood{number}.txt", "line\n" * 100_000)

    manifest = evidence_bundle.gather(context(tmp_path), [Collector("flood", flood, LONG, 1_000_000)])
    assert sum(path.stat().st_size for path in (tmp_path / "1").iterdir()) < 1_100_000
    assert any(file.cut for file in item(manifest, "flood").files)


def test_half_a_secret_at_the_cut_is_not_written(tmp_path):
    text = "x" * 900 + "\n" + "y" * 90 + " " + SECRET + "\n"

    def write(_context, sheet):
        sheet.text("cut.txt", text)

    evidence_bundle.gather(context(tmp_path, environment={"MY_TOKEN": SECRET}), [Collector("c", write, 1.0, 1000)])
    assert b"s3cr" not in (tmp_path / "1/cut.txt").read_bytes()
    assert fit(b"no line at all " * 100, 1000) == (b"no line at all " * 100)[:488]
