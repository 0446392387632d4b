"""The journal is readable whatever happened to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stallguard import journal
from stallguard.core.events import Asked, Heard, Sampled, Ticked
from stallguard.core.readings import Process

EVENTS = [
    Ticked(at=1.0),
    Heard(at=2.0, attempt=1, beats=5, phase="step"),
    Sampled(at=3.0, reading=Process(cpu=1.5, state="running", census={"futex": 3})),
    Asked(at=4.0, verb="stop"),
]


def write(path: Path, complain: Callable[[str], None] = lambda _: None) -> None:
    book = journal.Journal(path, complain)
    for event in EVENTS:
        book.write(event.at, "event", event)
    book.close()


def test_events_come_back_as_they_were(tmp_path: Path) -> None:
    write(tmp_path / "journal.jsonl")

    assert list(journal.events(tmp_path / "journal.jsonl")) == EVENTS


def test_every_line_has_a_schema_and_both_clocks(tmp_path: Path) -> None:
    write(tmp_path / "journal.jsonl")

    first = msgspec.json.decode((tmp_path / "journal.jsonl").read_bytes().splitlines()[0])

    assert (first["schema"], first["at"], first["kind"]) == (1, 1.0, "event")
    assert first["utc"].endswith("Z")


@given(cut=st.integers(min_value=0, max_value=400))
def test_a_journal_cut_anywhere_keeps_every_whole_line(tmp_path_factory: object, cut: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "journal.jsonl"  # type: ignore[attr-defined]
    write(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: max(0, len(whole) - cut)])

    found = list(journal.events(path))

    lines = path.read_bytes().count(b"\n")
    assert found[:lines] == EVENTS[:lines]


def test_writing_goes_on_after_a_line_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path)
    path.write_bytes(path.read_bytes()[:-10])

    write(path)

    assert list(journal.events(path)) == [*EVENTS[:-1], *EVENTS]


def test_a_full_disk_is_told_once_and_raises_nothing() -> None:
    told: list[str] = []

    write(Path("/dev/full"), told.append)

    assert len(told) == 1
    assert "No space left" in told[0]


def test_rotated_parts_are_read_in_the_order_they_were_written(tmp_path: Path) -> None:
    for name in ("journal.jsonl", "journal.2.jsonl", "journal.10.jsonl"):
        (tmp_path / name).write_bytes(b"")

    names = [part.name for part in journal.parts(tmp_path / "journal.jsonl")]

    assert names == ["journal.2.jsonl", "journal.10.jsonl", "journal.jsonl"]


def test_a_journal_that_grows_is_turned_and_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    book = journal.Journal(path, lambda _: None, most=4 * 2000)
    for number in range(200):
        book.write(float(number), "event", Ticked(at=float(number)))
    book.close()

    at = [event.at for event in journal.events(path)]
    files = list(tmp_path.iterdir())
    assert len(files) == journal.PARTS
    assert all(file.stat().st_size < 2200 for file in files)
    assert at[0] == 0.0, "the beginning says what was asked"
    assert at[-1] == 199.0
    assert at == sorted(at)
