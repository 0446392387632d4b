"""The receiver of records: real sockets, pages and processes; what their probes would send is sent by the test."""

from __future__ import annotations

import contextlib
import queue
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from stallguard.core.events import Event, Exited, Heartbeat, ProbeConnected, ProbeNote, ProcessLeft
from stallguard.host import system
from stallguard.probe import wire
from stallguard.storage import paths
from stallguard.supervisor import attempt_watch, heartbeats
from stallguard.supervisor.heartbeats import HeartbeatListener, Track, is_news
from tests.host.children import eventually
from tests.supervisor.listening import TOKEN, Ear, Probe


def test_a_record_arrives_as_an_event_in_seconds(ear: Ear) -> None:
    probe = ear.probe()
    with probe.socket:
        probe.send(beats=7, changes=9, phase=wire.PHASES.index("step"), epoch=2, longest_ns=250_000_000)

        event = ear.next()

    assert isinstance(event, Heartbeat)
    assert (event.beats, event.phase, event.epoch, event.longest) == (7, "step", 2, 0.25)


def test_a_record_that_is_merged_with_the_next_is_observed_so_that_each_is_seen_once(ear: Ear) -> None:
    probe = ear.probe()
    with probe.socket:
        for beats in (1, 2, 3):
            probe.send(beats=beats, changes=beats, beat_ns=beats * 10**9)
        posted = [ear.next(), ear.next()]

    seen = [event for event in (*posted, *ear.merged) if isinstance(event, Heartbeat)]
    assert [event.beats for event in posted if isinstance(event, Heartbeat)] == [1, 3]
    assert {(event.beats, event.beat_at) for event in seen} == {(1, 1.0), (2, 2.0), (3, 3.0)}


def test_a_probe_that_stepped_aside_is_known_by_its_record(ear: Ear) -> None:
    probe = ear.probe()
    with probe.socket:
        probe.send(beats=7, flags=wire.FLAG_STACKS_ARMED)
        probe.send(beats=7, flags=wire.FLAG_STACKS_ARMED | wire.FLAG_STEPPED_ASIDE)
        seen = [ear.next(), ear.next()]

    assert [event.aside for event in seen if isinstance(event, Heartbeat)] == [False, True]


def test_a_foreign_token_is_not_received(ear: Ear) -> None:
    probe = ear.probe()
    with probe.socket:
        probe.send(beats=1, token=TOKEN + 1)
        probe.send(beats=2, token=TOKEN)

        event = ear.next()

    assert isinstance(event, Heartbeat)
    assert event.beats == 2


def test_what_was_stored_but_never_sent_is_read_from_the_page_before_the_exit_is_passed_on(ear: Ear) -> None:
    probe = ear.probe()
    with probe.socket:
        probe.send(beats=1, changes=1)
        ear.next()
        probe.store(beats=40, changes=80)
        ear.beats.exited(3, None)

        last, end = ear.next(), ear.next(Exited)

    assert isinstance(last, Heartbeat)
    assert last.beats == 40
    assert isinstance(end, Exited)
    assert end.code == 3


@pytest.mark.waits
def test_a_silent_socket_makes_the_page_speak(ear: Ear) -> None:
    probe = ear.probe()
    with probe.socket:
        probe.send(beats=1, changes=1)
        ear.next()
        probe.store(beats=9, changes=9)

        event = ear.next()

    assert isinstance(event, Heartbeat)
    assert (event.beats, event.page) == (9, True)


@pytest.mark.waits
def test_a_beat_that_only_its_hook_stored_is_progress_too(ear: Ear) -> None:
    """A probe whose own thread cannot run leaves beats in the page, and nothing of what follows from them."""
    probe = ear.probe()
    now = time.monotonic_ns()
    with probe.socket:
        probe.send(beats=3, changes=7, beat_ns=now - 10**9, progress_ns=now - 10**9)
        ear.next()
        probe.store(beats=9, changes=7, beat_ns=now, progress_ns=now - 10**9)

        event = ear.next()

    assert isinstance(event, Heartbeat)
    assert (event.beats, event.page) == (9, True)
    assert event.progress_at == pytest.approx(now / 1e9)


def test_the_hello_becomes_a_greeting_and_other_notes_stay_notes(ear: Ear) -> None:
    probe = ear.probe()
    with probe.socket:
        probe.say('{"token":77,"pid":PID,"kind":"hello","armed":true,"hooks":["fit"],"beyond":["x"],"place":"a-1"}')
        probe.say('{"token":77,"pid":PID,"kind":"resume","text":"from epoch 2"}')
        probe.socket.send(b"{not json")
        probe.socket.send(b'{"token": 1, "text": "\xff"}')

        hello, note = ear.next(ProbeConnected), ear.next(ProbeNote)

    assert isinstance(hello, ProbeConnected)
    assert (hello.pid, hello.armed, hello.hooks, hello.beyond) == (probe.pid, True, ("fit",), ("x",))
    assert hello.place == "a-1"
    assert isinstance(note, ProbeNote)
    assert (note.pid, note.text) == (probe.pid, "from epoch 2")


def test_a_command_line_is_reported_without_its_secrets(ear: Ear) -> None:
    ear.probe().say('{"token":77,"pid":PID,"kind":"hello","command":"train.py --api-key hunter2hunter2 3"}')

    hello = ear.next(ProbeConnected)

    assert isinstance(hello, ProbeConnected)
    assert hello.command.startswith("train.py --api-key")
    assert hello.command.endswith("3")
    assert "hunter2" not in hello.command


def test_each_process_has_a_record_of_its_own(ear: Ear) -> None:
    launcher, trainer = ear.probe(), ear.probe()
    launcher.send(beats=0, changes=1)
    ear.next()
    trainer.send(beats=5, changes=5, flags=wire.FLAG_TRAINS)
    launcher.send(beats=0, changes=900)
    ear.beats.exited(0, None)

    last = {event.pid: event for event in ear.until_exit() if isinstance(event, Heartbeat)}

    assert {pid: (event.beats, event.trains) for pid, event in last.items()} == {
        launcher.pid: (0, False), trainer.pid: (5, True),
    }  # fmt: skip


def test_the_longest_pause_of_one_process_is_not_reported_of_another(ear: Ear) -> None:
    one, other = ear.probe(), ear.probe()
    one.send(beats=1, changes=1, longest_ns=5_000_000_000)
    other.send(beats=1, changes=1, longest_ns=1_000_000)

    heartbeat = {event.pid: event.longest for event in (ear.next(), ear.next()) if isinstance(event, Heartbeat)}

    assert heartbeat == {one.pid: 5.0, other.pid: 0.001}


def test_a_pause_keeps_its_phase_when_its_record_is_merged_with_a_later_one(ear: Ear) -> None:
    probe = ear.probe()
    checkpoint, step = (wire.PHASES.index(name) for name in ("checkpoint", "step"))
    probe.send(beats=1, changes=1)
    ear.next()
    probe.send(beats=2, changes=2, longest_ns=900_000_000, longest_phase=checkpoint)
    probe.send(beats=3, changes=3, longest_ns=5_000_000, longest_phase=step)

    event = ear.next()

    assert isinstance(event, Heartbeat)
    assert (event.beats, event.longest, event.longest_phase) == (3, 0.9, "checkpoint")


def test_of_records_that_waited_the_newest_is_posted(tmp_path: Path) -> None:
    """An older one makes every training look a quarter of a second more silent than it is."""
    place, clock, posted = paths.socket_dir("/tmp"), [10.0], list[Event]()
    listener = HeartbeatListener(place, tmp_path, posted.append, lambda: clock[0])
    listener._reset(1, TOKEN)
    probe = Probe(listener.path, tmp_path)
    for sent in ((1,), (2, 3, 4)):
        for beats in sent:
            probe.send(beats=beats, changes=beats)
        listener._drain()
        clock[0] += 5.0
    listener.close()
    probe.end()
    shutil.rmtree(place)

    assert [event.beats for event in posted if isinstance(event, Heartbeat)] == [1, 4]


def test_a_training_that_begins_to_train_is_news(ear: Ear) -> None:
    probe = ear.probe()
    probe.send(changes=1)
    ear.next()
    began = time.monotonic()
    probe.send(changes=1, flags=wire.FLAG_TRAINS)

    event = ear.next()

    assert isinstance(event, Heartbeat)
    assert event.trains
    assert time.monotonic() - began < 1.0


BYE = wire.KINDS.index("bye")


@pytest.mark.waits
@pytest.mark.parametrize(("flags", "how"), [(0, "ended"), (wire.FLAG_FAILED, "failed")])
def test_one_that_said_goodbye_has_left_when_its_process_is_gone_and_not_before(ear: Ear, flags: int, how: str) -> None:
    """An interpreter may hang on its way out: until it is gone somebody must look after it."""
    probe = ear.probe()
    probe.send(beats=3, kind=BYE, flags=flags, phase=wire.PHASES.index("finishing"))
    heartbeat = ear.next()
    with pytest.raises(queue.Empty):
        ear.heartbeat.get(timeout=3.0)  # longer than the silence after which pages are read
    probe.end()

    left = ear.next(ProcessLeft)

    assert isinstance(heartbeat, Heartbeat)
    assert heartbeat.beats == 3
    assert left == ProcessLeft(at=left.at, attempt=1, pid=probe.pid, how=how)


@pytest.mark.parametrize("in_page", [True, False], ids=["lost", "late"])
def test_a_goodbye_that_was_lost_or_comes_late_is_a_goodbye(
    in_page: bool, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue of the socket can be full, and the program can end between two looks."""
    monkeypatch.setattr(heartbeats, "PAGE_AFTER", 0.2)
    probe = ear.probe()
    probe.send(beats=3, changes=3)
    ear.next()
    lives, last = Track.lives, wire.PHASES.index("finishing")

    def ends_now(track: Track) -> bool:
        if probe.process.poll() is None:
            if in_page:
                probe.store(kind=BYE, phase=last)
            else:
                probe.set(kind=BYE, phase=last)
                probe.socket.send(wire.pack(probe.values))
            probe.end()
        return lives(track)

    monkeypatch.setattr(Track, "lives", ends_now)
    left = ear.next(ProcessLeft)
    monkeypatch.undo()
    ear.beats.exited(0, None)

    assert left == ProcessLeft(at=left.at, attempt=1, pid=probe.pid, how="ended")
    assert not [event for event in ear.until_exit() if isinstance(event, ProcessLeft)]


@pytest.mark.waits
def test_one_that_was_killed_has_left_after_the_last_that_its_page_shows(ear: Ear) -> None:
    probe = ear.probe()
    probe.send(beats=3, changes=3)
    ear.next()
    probe.store(beats=8, changes=8)
    probe.end()

    last, left = ear.next(), ear.next(ProcessLeft)

    assert isinstance(last, Heartbeat)
    assert last.beats == 8
    assert left == ProcessLeft(at=left.at, attempt=1, pid=probe.pid, how="vanished")


@pytest.mark.waits
@pytest.mark.parametrize(("stamped", "expected"), [(0.0, [5]), (60.0, [])])
def test_a_program_that_never_had_a_socket_is_followed_by_its_page_while_its_probe_runs(
    ear: Ear, stamped: float, expected: list[int]
) -> None:
    """The page of a program that was replaced has an old stamp: what runs in the process now is another one."""
    now = time.monotonic()
    probe = ear.probe(began=int((now - 100.0) * 1e9))
    seen = []
    while time.monotonic() < now + 5.0 and not seen:
        probe.store(beats=5, changes=5, sent_ns=int((time.monotonic() - stamped) * 1e9))
        with contextlib.suppress(queue.Empty):
            seen.append(ear.heartbeat.get(timeout=0.5))

    assert [event.beats for event in seen if isinstance(event, Heartbeat)] == expected


@pytest.mark.waits
def test_a_process_that_is_stopped_has_not_left(ear: Ear) -> None:
    probe = ear.probe()
    probe.send(beats=3, changes=3)
    ear.next()
    probe.process.send_signal(signal.SIGSTOP)

    with pytest.raises(queue.Empty):
        ear.heartbeat.get(timeout=5.0)


def test_another_program_in_the_same_process_is_another_training(ear: Ear) -> None:
    """As after an os.execv: the page of the same name is another file, which the commands must reach."""
    before = ear.probe(began=1)
    before.send(beats=7, changes=7)
    ear.next()
    after = ear.probe(began=2, process=before.process)
    after.send(beats=1, changes=1)

    left, heartbeat = ear.next(ProcessLeft), ear.next()
    ear.beats.ask("stop")

    assert left == ProcessLeft(at=left.at, attempt=1, pid=before.pid, how="replaced")
    assert isinstance(heartbeat, Heartbeat)
    assert heartbeat.beats == 1
    assert wire.unpack(after.page.read_bytes())["command"] == wire.COMMANDS.index("stop")


@pytest.mark.waits
@pytest.mark.parametrize("program", ["sleep 60", "sh -c 'read line; exec sleep 60'"])
def test_a_process_that_runs_a_program_without_a_probe_has_left(ear: Ear, program: str) -> None:
    """As after os.execv("/bin/sh", ...), also if it is the same program again: no last record is sent."""
    process = subprocess.Popen(["sh", "-c", f"read line; exec {program}"], stdin=subprocess.PIPE)
    # Popen returns in the middle of execve(2).
    assert eventually(lambda: system.program_image(process.pid) is not None, 20.0)
    probe = ear.probe(process=process)
    for beats in (6, 7):
        probe.send(beats=beats, changes=beats)
        ear.next()
        time.sleep(1.0)  # else the second record is merged
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.close()

    left = ear.next(ProcessLeft)

    assert left == ProcessLeft(at=left.at, attempt=1, pid=probe.pid, how="replaced")


@pytest.mark.waits
def test_processes_of_an_earlier_stallguard_are_looked_after(tmp_path: Path) -> None:
    place = paths.socket_dir("/tmp")
    ear = Ear(place, tmp_path)
    probe = ear.probe()
    probe.store(beats=4, changes=4)
    gone = subprocess.Popen(["true"])
    gone.wait()
    ear.beats.exited(0, None)
    ear.next(Exited)
    ear.beats.follow(2, TOKEN, [probe.pid, gone.pid])

    left, heartbeat = ear.next(ProcessLeft), ear.next()
    ear.beats.close()
    probe.end()
    shutil.rmtree(place)

    assert left == ProcessLeft(at=left.at, attempt=2, pid=gone.pid, how="vanished")
    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.pid, heartbeat.beats, heartbeat.page) == (probe.pid, 4, True)


def test_a_command_is_stored_where_the_hooks_of_each_training_look(ear: Ear) -> None:
    probes = [ear.probe(), ear.probe()]
    for probe in probes:
        probe.send(beats=1)
        ear.next()

    assert ear.beats.ask("stop")

    commands = [wire.unpack(probe.page.read_bytes())["command"] for probe in probes]
    assert commands == [wire.COMMANDS.index("stop")] * 2


@pytest.mark.parametrize(("command", "asked"), [("stop", "stop"), ("save", "none")])
def test_an_end_that_was_asked_for_is_asked_of_what_begins_later_too(ear: Ear, command: str, asked: str) -> None:
    ear.beats.ask(command)
    probe = ear.probe()
    probe.page.write_bytes(wire.pack(probe.values))  # what the probe stored before it spoke
    probe.socket.send(wire.pack(probe.values))
    ear.next()

    assert wire.unpack(probe.page.read_bytes())["command"] == wire.COMMANDS.index(asked)


def test_closing_leaves_no_socket_behind(tmp_path: Path) -> None:
    place = paths.socket_dir("/tmp")
    ear = Ear(place, tmp_path)
    ear.beats.close()

    assert list(place.iterdir()) == []
    place.rmdir()


def heartbeat(at: float, **fields: object) -> Heartbeat:
    return Heartbeat(at=at, attempt=1, **fields)  # type: ignore[arg-type]


def record(**fields: int) -> dict[str, int]:
    return dict.fromkeys(wire.FIELDS, 0) | fields


def test_steady_records_are_merged_and_the_end_of_a_silence_is_news() -> None:
    old = heartbeat(10.0, changes=5, progress_at=10.0, phase="importing")
    soon = record(changes=6, progress_ns=int(10.1e9))
    after_silence = record(changes=6, progress_ns=int(13e9))

    assert not is_news(old, soon, 10.1)
    assert is_news(old, soon, 11.0)
    assert is_news(old, after_silence, 10.5)
    assert is_news(None, soon, 0.0)


def test_after_a_minute_it_is_said_that_no_library_was_loaded_and_later_that_one_is(tmp_path: Path) -> None:
    place, clock, posted = paths.socket_dir("/tmp"), [100.0], list[Event]()
    listener = HeartbeatListener(place, tmp_path, posted.append, lambda: clock[0])
    listener._reset(1, TOKEN)
    probe = Probe(listener.path, tmp_path)
    mark = tmp_path / (wire.WAITING % probe.pid)
    mark.touch()
    notes = []
    for clock[0] in (159.0, 161.0, 170.0):
        listener.outside.look(clock[0])
        notes.append([(event.kind, event.facts["outside"]) for event in posted if isinstance(event, ProbeNote)])
    probe.send(beats=1)
    listener._drain()
    listener.close()
    probe.end()
    shutil.rmtree(place)

    assert notes == [[], *[[("outside", attempt_watch.NO_LIBRARY)]] * 2]
    assert [event.facts for event in posted if isinstance(event, ProbeNote)][1:] == [{"outside": ""}]
