"""The journal is readable after a kill, with a full disk, and if another program changed it."""

from __future__ import annotations

import datetime as dt
import gzip
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.core.events import Heartbeat, Sampled, Ticked, UserCommand
from stallguard.core.readings import Process
from stallguard.storage import journal
from stallguard.supervisor.notices import journal_line

EVENTS = [
    Ticked(at=1.0),
    Heartbeat(at=2.0, attempt=1, beats=5, phase="step"),
    Sampled(at=3.0, reading=Process(cpu=1.5, state="running", census={"futex": 3})),
    UserCommand(at=4.0, verb="stop"),
]


def write(path: Path, complain: Callable[[str], None] = lambda _: None) -> None:
    book = journal.Journal(path, complain)
    for event in EVENTS:
        book.write(event.at, *journal_line(event))
    book.close()


def test_events_come_back_as_they_were(tmp_path: Path) -> None:
    write(tmp_path / "journal.jsonl")

    assert list(journal.events(tmp_path / "journal.jsonl")) == EVENTS


def test_every_line_has_what_a_reader_of_a_log_expects(tmp_path: Path) -> None:
    write(tmp_path / "journal.jsonl")

    first = msgspec.json.decode((tmp_path / "journal.jsonl").read_bytes().splitlines()[0])

    assert list(first) == ["time", "clock", "level", "event", "run", "attempt"]
    assert (first["clock"], first["level"], first["event"]) == (1.0, "debug", "clock.ticked")
    assert first["time"].endswith("Z")


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


def test_a_full_disk_is_reported_once_and_raises_nothing() -> None:
    announced: list[str] = []

    write(Path("/dev/full"), announced.append)

    assert len(announced) == 1
    assert "No space left" in announced[0]


def test_rotated_parts_are_read_in_the_order_they_were_written(tmp_path: Path) -> None:
    for name in ("journal.jsonl", "journal.2.jsonl", "journal.10.jsonl"):
        (tmp_path / name).write_bytes(b"")

    names = [part.name for part in journal.parts(tmp_path / "journal.jsonl")]

    assert names == ["journal.2.jsonl", "journal.10.jsonl", "journal.jsonl"]


def test_a_journal_that_grows_is_compressed_in_parts_and_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    book = journal.Journal(path, lambda _: None, most=4 * 3000)  # a quarter of it is for the older parts
    for number in range(200):
        book.write(float(number), *journal_line(Ticked(at=float(number))))
    book.close()

    files = sorted(tmp_path.iterdir())
    assert [event.at for event in journal.events(path)] == [float(number) for number in range(200)]
    assert all(file.suffix == ".gz" for file in files if file != path)
    assert sum(file.stat().st_size for file in files) < 200 * 70, "half of what was written at most"


def test_a_journal_takes_no_more_room_than_it_may_and_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    book = journal.Journal(path, lambda _: None, most=8000)
    for number in range(2000):
        book.write(float(number), *journal_line(Ticked(at=float(number))))
    book.close()

    at = [event.at for event in journal.events(path)]
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 8400
    assert at[0] == 0.0, "the beginning says what was asked"
    assert at[-1] == 1999.0
    assert at == sorted(at)


def test_a_part_that_was_just_being_compressed_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path)
    (tmp_path / "journal.1.jsonl").write_bytes(path.read_bytes())
    with gzip.open(tmp_path / "journal.1.jsonl.gz", "wb") as file:
        file.write(path.read_bytes())

    assert list(journal.events(path)) == EVENTS * 2


def test_a_part_that_is_damaged_costs_its_own_lines_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path)
    packed = gzip.compress(path.read_bytes())
    (tmp_path / "journal.1.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "journal.2.jsonl.gz").write_bytes(b"no archive")

    assert list(journal.events(path))[-len(EVENTS) :] == EVENTS


def test_a_line_nested_too_deep_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path)
    with path.open("ab") as file:
        file.write(b"[" * 100_000 + b"\n")
        file.write(b'{"schema":1,"utc":"","at":1,"kind":"event","data":{"type":"ticked","x":' + b"[" * 100_000 + b"\n")
    write(path)

    assert list(journal.events(path)) == EVENTS * 2


def test_a_short_write_loses_no_line(tmp_path: Path) -> None:
    """Of a file of 300 bytes at most the kernel takes a part of a line, and refuses the rest; then there is room."""
    path = tmp_path / "journal.jsonl"
    script = f"""
import resource, signal
from pathlib import Path
from stallguard.storage import journal
from stallguard.core.events import Ticked
from stallguard.supervisor.notices import journal_line
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
book = journal.Journal(Path({str(path)!r}), lambda _: None)
for number in range(8):
    small = 300 if number == 3 else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (small, resource.RLIM_INFINITY))
    book.write(float(number), *journal_line(Ticked(at=float(number))))
"""
    subprocess.run([sys.executable, "-c", script], check=True)

    assert [event.at for event in journal.events(path)] == [0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 7.0]


def test_what_stands_behind_a_place_is_found_again_wherever_it_went(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    book = journal.Journal(path, lambda _: None, most=4 * 2000)
    places = []
    for number in range(100):
        book.write(float(number), *journal_line(Ticked(at=float(number))))
        places.append(book.place())
    book.close()

    for number in (0, 10, 40, 99):
        place = places[number]
        assert place is not None
        assert journal.holds(path, place)
        assert [event.at for event in journal.events(path, place)] == [float(at) for at in range(number + 1, 100)]
        assert not journal.holds(path, msgspec.structs.replace(place, tail=b"x" * len(place.tail)))
        assert not journal.holds(path, msgspec.structs.replace(place, part=99))


def test_the_wall_clock_of_a_line_is_that_of_its_time(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    book = journal.Journal(path, lambda _: None, now=lambda: 1000.0)
    book.write(1000.0, *journal_line(Ticked(at=1000.0)))
    book.write(995.0, *journal_line(Ticked(at=995.0)))
    book.close()

    now, before = (dt.datetime.fromisoformat(entry.line.time) for entry in journal.read(path))
    assert dt.timedelta(seconds=4.5) < now - before < dt.timedelta(seconds=5.5)


def _move(path: Path) -> None:
    path.rename(path.with_name("journal.jsonl.1"))


def _move_and_create(path: Path) -> None:
    _move(path)
    path.touch()


def _move_away(path: Path) -> None:
    path.rename(path.parent.parent / "archived")


def _empty_after_copying(path: Path) -> None:
    path.with_name("journal.jsonl.1").write_bytes(path.read_bytes())
    path.write_bytes(b"")


def _empty_after_packing(path: Path) -> None:
    path.with_name("journal.jsonl.1.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.write_bytes(b"")


def _move_to_a_part(path: Path) -> None:
    path.rename(path.with_name(f"journal.{len(list(path.parent.glob('journal.?.jsonl'))) + 1}.jsonl"))


def _edit(path: Path) -> None:
    draft = path.with_name("draft")
    draft.write_bytes(path.read_bytes())
    draft.replace(path)


@pytest.mark.parametrize(
    "displace",
    [
        _move, _move_and_create, _move_away, _empty_after_copying, _empty_after_packing, _move_to_a_part, _edit,
        Path.unlink,
    ],
)  # fmt: skip
def test_what_another_program_takes_away_under_a_living_run_is_told_once_and_read_on(
    tmp_path: Path, displace: Callable[[Path], None]
) -> None:
    path, said, seconds = tmp_path / "run" / "journal.jsonl", list[str](), iter(range(0, 1000, 2))
    path.parent.mkdir()
    book = journal.Journal(path, said.append, now=lambda: float(next(seconds)))
    many = [Ticked(at=float(number)) for number in range(12)]
    for event in many:
        if event.at in (4.0, 8.0):
            for older in path.parent.glob("journal.jsonl.1*"):  # as logrotate does before the next time
                older.rename(older.with_name(older.name.replace(".1", ".2")))
            displace(path)
        book.write(event.at, *journal_line(event))
    book.close()

    assert list(journal.events(path)) == many
    assert len(said) == 1
    assert "without" not in said[0]


def test_a_journal_that_was_emptied_without_a_copy_goes_on_and_says_that_lines_are_missing(tmp_path: Path) -> None:
    path, said, seconds = tmp_path / "journal.jsonl", list[str](), iter(range(0, 1000, 2))
    book = journal.Journal(path, said.append, now=lambda: float(next(seconds)))
    for event in EVENTS:
        if event is EVENTS[2]:
            path.write_bytes(b"")
        book.write(event.at, *journal_line(event))
    book.close()

    assert list(journal.events(path)) == EVENTS[2:]
    assert len(said) == 1
    assert "without its earlier lines" in said[0]


def test_a_directory_that_is_gone_is_reported_once_and_raises_nothing(tmp_path: Path) -> None:
    path, said, seconds = tmp_path / "run" / "journal.jsonl", list[str](), iter(range(0, 1000, 2))
    path.parent.mkdir()
    book = journal.Journal(path, said.append, now=lambda: float(next(seconds)))
    shutil.rmtree(path.parent)
    for event in EVENTS:
        book.write(event.at, *journal_line(event))
    book.close()

    assert len(said) == 1
    assert "cannot be written" in said[0]
