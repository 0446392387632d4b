"""The ear: real sockets, real pages, a probe played by the test."""

from __future__ import annotations

import queue
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallguard import paths
from stallguard.core.events import Event, Exited, Greeted, Heard, Noted
from stallguard.probe import wire
from stallguard.supervisor.beats import Beats, better, is_news

TOKEN = 77


class Probe:
    """Speaks as the probe of one process would."""

    def __init__(self, address: Path, pages: Path, pid: int = 100) -> None:
        self.values = [0] * wire.SLOTS
        self.set(magic=wire.MAGIC, token=TOKEN, pid=pid, kind=1, factor=1)
        self.page = pages / f"{pid}.page"
        self.page.write_bytes(bytes(wire.SIZE))
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.connect(str(address))

    def set(self, **fields: int) -> None:
        for name, value in fields.items():
            self.values[wire.SLOT[name]] = value

    def store(self, **fields: int) -> None:
        self.set(**{"progress_ns": time.monotonic_ns(), **fields})
        with self.page.open("r+b") as file:
            file.write(wire.pack(self.values))

    def send(self, **fields: int) -> None:
        self.store(sent_ns=time.monotonic_ns(), **fields)
        self.socket.send(wire.pack(self.values))


class Ear:
    """A Beats with its mailbox."""

    def __init__(self, place: Path, pages: Path) -> None:
        self.heard: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.pages = pages
        self.beats = Beats(place, pages, self.heard.put, time.monotonic)
        self.beats.follow(1, TOKEN)

    def probe(self, pid: int = 100) -> Probe:
        return Probe(self.beats.path, self.pages, pid)

    def next(self, kind: type[Event] = Heard) -> Event:
        while True:
            event = self.heard.get(timeout=5)
            if isinstance(event, kind):
                return event


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[Ear]:
    place = paths.socket_dir()
    made = Ear(place, tmp_path)
    yield made
    made.beats.close()
    shutil.rmtree(place)


def test_a_record_arrives_as_an_event_in_seconds(ear: Ear) -> None:
    probe = ear.probe()
    with probe.socket:
        probe.send(beats=7, changes=9, phase=wire.PHASES.index("step"), epoch=2, longest_ns=250_000_000)

        event = ear.next()

    assert isinstance(event, Heard)
    assert (event.beats, event.phase, event.epoch, event.longest) == (7, "step", 2, 0.25)


def test_a_probe_that_stepped_aside_is_known_by_its_record(ear: Ear) -> None:
    probe = ear.probe()
    with probe.socket:
        probe.send(beats=7, flags=wire.FLAG_STACKS_ARMED)
        probe.send(beats=7, flags=wire.FLAG_STACKS_ARMED | wire.FLAG_STEPPED_ASIDE)
        seen = [ear.next(), ear.next()]

    assert [event.aside for event in seen if isinstance(event, Heard)] == [False, True]


def test_a_foreign_token_is_not_heard(ear: Ear) -> None:
    probe = ear.probe()
    with probe.socket:
        probe.send(beats=1, token=TOKEN + 1)
        probe.send(beats=2, token=TOKEN)

        event = ear.next()

    assert isinstance(event, Heard)
    assert event.beats == 2


def test_what_was_stored_but_never_sent_is_read_from_the_page_before_the_exit_is_passed_on(ear: Ear) -> None:
    probe = ear.probe()
    with probe.socket:
        probe.send(beats=1, changes=1)
        ear.next()
        probe.store(beats=40, changes=80)
        ear.beats.exited(3, None)

        last, end = ear.next(), ear.next(Exited)

    assert isinstance(last, Heard)
    assert last.beats == 40
    assert isinstance(end, Exited)
    assert end.code == 3


def test_a_silent_socket_makes_the_page_speak(ear: Ear) -> None:
    probe = ear.probe()
    with probe.socket:
        probe.send(beats=1, changes=1)
        ear.next()
        probe.store(beats=9, changes=9)

        event = ear.next()

    assert isinstance(event, Heard)
    assert (event.beats, event.page) == (9, True)


def test_a_beat_that_only_its_hook_stored_is_progress_too(ear: Ear) -> None:
    """A probe whose own thread cannot run leaves beats in the page, and nothing of what follows from them."""
    probe = ear.probe()
    now = time.monotonic_ns()
    with probe.socket:
        probe.send(beats=3, changes=7, beat_ns=now - 10**9, progress_ns=now - 10**9)
        ear.next()
        probe.store(beats=9, changes=7, beat_ns=now, progress_ns=now - 10**9)

        event = ear.next()

    assert isinstance(event, Heard)
    assert (event.beats, event.page) == (9, True)
    assert event.progress_at == pytest.approx(now / 1e9)


def test_the_hello_becomes_a_greeting_and_other_notes_stay_notes(ear: Ear) -> None:
    probe = ear.probe()
    with probe.socket:
        probe.socket.send(b'{"token":77,"pid":5,"kind":"hello","armed":true,"hooks":["fit"],"beyond":["x"]}')
        probe.socket.send(b'{"token":77,"pid":5,"kind":"resume","text":"from epoch 2"}')
        probe.socket.send(b"{not json")
        probe.socket.send(b'{"token": 1, "text": "\xff"}')

        hello, note = ear.next(Greeted), ear.next(Noted)

    assert isinstance(hello, Greeted)
    assert (hello.armed, hello.hooks, hello.beyond) == (True, ("fit",), ("x",))
    assert isinstance(note, Noted)
    assert note.text == "from epoch 2"


def test_the_process_that_trains_is_followed_not_the_one_that_spoke_first(ear: Ear) -> None:
    helper, trainer = ear.probe(1), ear.probe(2)
    with helper.socket, trainer.socket:
        helper.send(beats=0, changes=1)
        ear.next()
        trainer.send(beats=5, changes=5)
        helper.send(beats=0, changes=900)
        ear.beats.exited(0, None)
        seen = [event.beats for event in _until_exit(ear) if isinstance(event, Heard)]

    assert seen[-1] == 5


def _until_exit(ear: Ear) -> list[Event]:
    events: list[Event] = []
    while not events or not isinstance(events[-1], Exited):
        events.append(ear.next(Event))
    return events


def test_a_command_is_stored_where_the_hooks_look(ear: Ear) -> None:
    probe = ear.probe()
    with probe.socket:
        probe.send(beats=1)
        ear.next()

        assert ear.beats.ask("stop")

    assert wire.unpack(probe.page.read_bytes())["command"] == wire.COMMANDS.index("stop")


def test_closing_leaves_no_socket_behind(tmp_path: Path) -> None:
    place = paths.socket_dir()
    ear = Ear(place, tmp_path)
    ear.beats.close()

    assert list(place.iterdir()) == []
    place.rmdir()


def heard(at: float, **fields: object) -> Heard:
    return Heard(at=at, attempt=1, **fields)  # type: ignore[arg-type]


def record(**fields: int) -> dict[str, int]:
    return dict.fromkeys(wire.FIELDS, 0) | fields


def test_steady_records_are_merged_and_the_end_of_a_silence_is_news() -> None:
    old = heard(10.0, changes=5, progress_at=10.0, phase="importing")
    soon = record(changes=6, progress_ns=int(10.1e9))
    after_silence = record(changes=6, progress_ns=int(13e9))

    assert not is_news(old, soon, 10.1)
    assert is_news(old, soon, 11.0)
    assert is_news(old, after_silence, 10.5)
    assert is_news(None, soon, 0.0)


def test_one_that_left_gives_way_even_to_one_that_does_not_train() -> None:
    old, new = record(pid=1, beats=9), record(pid=2, beats=0)

    assert not better(old, new, set())
    assert better(old, new, {1})
