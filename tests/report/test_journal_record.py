"""A journal gives a report wherever it is cut, and whatever else is in it."""

from __future__ import annotations

import datetime as dt
import os

import pytest

from stallguard.core.actions import Announce
from stallguard.core.events import Heartbeat, Launched
from stallguard.report import attempt_rows, document, html_page, incidents, journal_record, summary, timeline
from tests import examples
from tests.report.nights import journal, line, night, written

TAIL = 4096  # bytes, each of which may be the last one that reached the disk


@pytest.fixture
def small(tmp_path):
    """A run whose journal is short enough to be read four thousand times, with an incident in its last bytes."""
    run = night(tmp_path, minutes=4, stalls=1)
    lines = run.journal.read_bytes().splitlines(keepends=True)
    kept = [text for number, text in enumerate(lines) if b'"probe.heartbeat"' not in text or number % 20 == 0]
    kept = [text for text in kept if b'"sensor.sampled"' not in text]
    stall = next(number for number, text in enumerate(kept) if b'"training.stalled"' in text)
    run.journal.write_bytes(b"".join(kept[: stall + 14]))
    return run


def clock(_at: float) -> str:
    return "10:00"


def announced(path):
    known = journal_record.read(path)
    tries, troubles = attempt_rows.attempts(known), incidents.incidents(known)
    sums = summary.totals(known, tries, troubles)
    return troubles, summary.story("lost", {}, sums, tries, troubles, clock)


@pytest.mark.costly
def test_a_journal_cut_at_every_byte_of_its_end_still_tells_its_story(small):
    size, before = small.journal.stat().st_size, 2
    assert size > TAIL
    seen = set()
    for cut in range(size, size - TAIL, -examples.of(1, fast=7)):
        os.truncate(small.journal, cut)
        troubles, sentences = announced(small.journal)
        assert sentences[0].startswith("stallguard itself ended unexpectedly")
        assert len(troubles) <= before
        before = len(troubles)
        seen.add((len(troubles), len(troubles[0].findings) if troubles else 0))
    assert seen >= {(1, 2), (1, 0), (0, 0)}


@pytest.mark.costly
def test_a_cut_journal_gives_whole_html(small):
    size = small.journal.stat().st_size
    for cut in range(size, size - TAIL, -311):
        os.truncate(small.journal, cut)
        text = html_page.render(document.make(small, {}, dt.UTC))
        assert text.rstrip().endswith("</html>")
    os.truncate(small.journal, 0)
    assert "no batch" in html_page.render(document.make(small, {}, dt.UTC))


def test_foreign_lines_are_passed_by(tmp_path):
    good = written(5, Announce("probe.remark", {"text": "kept"}))
    bad = (
        b"\xff\xfe\n", b"{}\n", b"[1, 2]\n", line(1, event="from.a.later.version"),
        line(2, event="probe.heartbeat", attempt="first"), line(3, event=["training.stalled"]),
        good.replace(b"2026-03", b"2026-99"), good.replace(b"2026-03-07T10:00:05.000Z", b"0001-01-01T00:00:00"),
    )  # fmt: skip
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"".join(bad) + good + good[:-9])

    known = journal_record.read(path)

    assert [what.facts["text"] for _, what in known.happened if isinstance(what, Announce)] == ["kept"]
    assert known.heartbeat == []


def test_times_are_those_of_the_wall_and_never_fall(tmp_path):
    """A night may hold a sleep, and two starts of the machine, each with a monotonic clock of its own."""
    path = journal(tmp_path / "journal.jsonl", (0, Launched(0.0, 1, 7)), (3600, Heartbeat(0.0, 1, beats=5)))
    early = line(10, event="probe.heartbeat", clock=3.0, attempt=1, beats=6)
    path.write_bytes(path.read_bytes() + early)

    known = journal_record.read(path)

    ten = dt.datetime(2026, 3, 7, 10, tzinfo=dt.UTC).timestamp()
    assert (known.first, known.last) == (ten, ten + 3600)
    assert [at - ten for at, _ in known.heartbeat] == [3600, 3600]


def test_the_newest_record_before_a_time_is_found(tmp_path):
    path = journal(tmp_path / "j.jsonl", *((second, Heartbeat(0.0, 1, beats=second)) for second in range(1, 5)))
    known = journal_record.read(path)

    found = known.heartbeat_before(known.first + 2.5)

    assert found is not None
    assert found[1].beats == 3
    assert known.heartbeat_before(known.first - 1) is None


def test_the_timeline_of_an_empty_journal_is_empty(tmp_path):
    empty = timeline.timeline(journal_record.read(tmp_path / "nothing"), [], [])

    assert empty.panels == []
    assert empty.bands == []
