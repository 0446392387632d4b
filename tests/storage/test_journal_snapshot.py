"""The core's value beside the journal: used if everything about it is right, else the journal is folded whole."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from stallguard.core import fold, recovery
from stallguard.core.events import Event, Heartbeat, Launched, ProbeConnected, Ticked
from stallguard.core.limits import Limits
from stallguard.core.run import Run
from stallguard.storage import journal
from stallguard.storage.paths import RunDir
from stallguard.supervisor.notices import journal_line
from tests.simulation.simulation import Simulation
from tests.simulation.subjects import OneTraining

LIMITS = Limits()


def night(seconds: int) -> list[Event]:
    run = Simulation(OneTraining(LIMITS.detector), now=0.0, tick=1.0, several=True)
    run.start(7, batch=1.0, place="a")
    return [event for event in run.train(seconds).events if not isinstance(event, Ticked)]


def lived(directory: RunDir, events: list[Event], until: int) -> Run:
    """Write the journal as a run does, save after `until` events, and return the run at the end."""
    book = journal.Journal(directory.journal, lambda _: None, most=800_000)
    run = fold.begin(events[0].at)
    for number, event in enumerate(events):
        book.write(event.at, *journal_line(event))
        run, actions = fold.advance(run, event, LIMITS)
        for action in actions:
            book.write(event.at, *journal_line(action))
        if number == until:
            place = book.place()
            assert place is not None
            journal.save_snapshot(directory, run, place)
    book.close()
    return run


def taken_up(directory: RunDir) -> Run | None:
    before, place = journal.load_snapshot(directory) or (None, None)
    return recovery.rebuilt(journal.events(directory.journal, place), LIMITS, run=before)


@pytest.fixture
def directory(tmp_path: Path) -> RunDir:
    (tmp_path / "one").mkdir()
    return RunDir(tmp_path / "one")


@pytest.mark.costly
@pytest.mark.parametrize("until", [5, 300, 1500])
def test_what_is_saved_and_the_rest_of_the_journal_bring_the_run_that_was(directory: RunDir, until: int) -> None:
    run = lived(directory, night(800), until)

    before = journal.load_snapshot(directory)
    assert before is not None
    assert before[0].now < run.now
    assert taken_up(directory) == run == recovery.rebuilt(journal.events(directory.journal), LIMITS)


@pytest.mark.costly
def test_most_of_a_long_journal_is_not_folded_again(directory: RunDir) -> None:
    lived(directory, night(1500), 2950)
    began = time.process_time()
    taken_up(directory)
    short = time.process_time() - began
    journal.snapshot_file(directory).unlink()
    began = time.process_time()
    taken_up(directory)

    assert short < 0.3 * (time.process_time() - began)


def changed(directory: RunDir, **fields: object) -> None:
    path = journal.snapshot_file(directory)
    kept = msgspec.msgpack.decode(path.read_bytes())
    path.write_bytes(msgspec.msgpack.encode(kept | fields))


def of_another_version(directory: RunDir) -> None:
    changed(directory, version="0.0.9")


def of_another_run(directory: RunDir) -> None:
    changed(directory, run="two")


def of_a_later_form(directory: RunDir) -> None:
    changed(directory, schema=journal.SNAPSHOT_SCHEMA + 1)


def damaged(directory: RunDir) -> None:
    data = bytearray(journal.snapshot_file(directory).read_bytes())
    data[len(data) // 2] ^= 1
    journal.snapshot_file(directory).write_bytes(data)


def cut(directory: RunDir) -> None:
    journal.snapshot_file(directory).write_bytes(journal.snapshot_file(directory).read_bytes()[:-100])


def deep(directory: RunDir) -> None:
    journal.snapshot_file(directory).write_bytes(b"\x91" * 100_000)


def no_journal_of_its_own(directory: RunDir) -> None:
    text = (
        directory.journal.read_bytes().replace(b'"beats":7,', b'"beats":8,').replace(b'clock":139.0', b'clock":138.0')
    )
    directory.journal.write_bytes(text)


def a_journal_that_was_cut(directory: RunDir) -> None:
    directory.journal.write_bytes(directory.journal.read_bytes()[:5000])


@pytest.mark.costly
@pytest.mark.parametrize(
    "spoil", [of_another_version, of_another_run, of_a_later_form, damaged, cut, deep, no_journal_of_its_own,
              a_journal_that_was_cut],
)  # fmt: skip
def test_what_cannot_be_relied_upon_is_passed_over(directory: RunDir, spoil) -> None:
    lived(directory, night(150), 280)
    assert journal.load_snapshot(directory) is not None
    spoil(directory)

    assert journal.load_snapshot(directory) is None
    assert taken_up(directory) == recovery.rebuilt(journal.events(directory.journal), LIMITS)


@pytest.mark.costly
def test_it_is_saved_now_and_then(directory: RunDir) -> None:
    book = journal.Journal(directory.journal, lambda _: None)
    saver = journal.SnapshotSaver(directory, book)
    run = fold.begin(0.0)
    ages = []
    for event in night(1000):
        book.write(event.at, *journal_line(event))
        run, _ = fold.advance(run, event, LIMITS)
        saver.look(run)
        found = journal.load_snapshot(directory) if event.at % 50 == 0 else None
        ages += [run.now - found[0].now] if found else []
    book.close()

    assert ages
    assert max(ages) <= journal.SNAPSHOT_EVERY


def test_a_training_whose_command_is_not_utf_8_is_not_saved_and_nothing_fails(directory: RunDir) -> None:
    book = journal.Journal(directory.journal, lambda _: None)
    saver = journal.SnapshotSaver(directory, book)
    run = fold.begin(0.0)
    events = [Launched(at=1.0, attempt=1, pid=7), ProbeConnected(at=2.0, attempt=1, pid=7, command="x.py \udcff")]
    for event in [*events, *(Heartbeat(at=at, attempt=1, pid=7, beats=int(at)) for at in (400.0, 800.0))]:
        book.write(event.at, *journal_line(event))
        run, _ = fold.advance(run, event, LIMITS)
        saver.look(run)
    book.close()

    assert journal.load_snapshot(directory) is None


@contextlib.contextmanager
def no_room(path: Path) -> Iterator[None]:
    """Let no file of this process grow beyond the size of `path`: writing fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_after_lines_were_lost_the_value_is_saved_as_soon_as_there_is_room(directory: RunDir) -> None:
    troubles: list[str] = []
    book = journal.Journal(directory.journal, troubles.append)
    saver = journal.SnapshotSaver(directory, book)
    events = night(60)
    run = fold.begin(events[0].at)
    for number, event in enumerate(events):
        is_full = 40 <= number < 80
        with no_room(directory.journal) if is_full else contextlib.nullcontext():
            book.write(event.at, *journal_line(event))
            run, _ = fold.advance(run, event, LIMITS)
            saver.look(run)
    book.close()

    assert len(troubles) == 1
    assert not list(directory.path.glob(".*")), "no draft is left"
    assert recovery.rebuilt(journal.events(directory.journal), LIMITS) != run, "the journal alone is not enough"
    assert taken_up(directory) == run
