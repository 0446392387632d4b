"""The sender never blocks, never raises, loses nothing that matters, and finds a supervisor that comes back."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from stallguard.probe import beats as b
from stallguard.probe import outbox, wire
from stallguard.probe.outbox import LIMIT, WAITING, Outbox
from stallguard.probe.sender import SECOND, Sender

TICK = SECOND // 20


class Ear:
    """A supervisor's socket that can be closed and opened again."""

    def __init__(self, path):
        self.path = path
        self.socket = None

    def open(self):
        self.path.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind(str(self.path))
        return self

    def close(self):
        self.socket.close()

    def take(self):
        """Return all that waits: records by kind, notes as dicts."""
        found = []
        while True:
            try:
                data = self.socket.recv(4096)
            except BlockingIOError:
                return found
            record = wire.unpack(data)
            found.append(wire.KINDS[record["kind"]] if record else json.loads(data))


@pytest.fixture
def ear(tmp_path):
    there = Ear(tmp_path / "s").open()
    yield there
    there.close()


@pytest.fixture
def beats():
    return b.Beats(outbox.begin(outbox.private(), 1, 2, 3))


@pytest.fixture
def mail():
    return Outbox(1, 2)


@pytest.fixture
def sender(beats, mail, ear):
    made = Sender(beats, mail, str(ear.path))
    yield made
    made.abandon()


def test_greets_first(sender, ear):
    sender.turn(SECOND)
    first, hello, *_ = ear.take()
    assert (first, hello["kind"], hello["token"]) == ("hello", "hello", 1)


def test_without_a_socket_the_page_shows_that_the_program_runs(sender, beats, ear):
    ear.close()
    ear.path.unlink()
    for turn in (1, 2):
        sender.turn(turn * TICK)
        assert beats.slots[wire.SLOT["sent_ns"]] == turn * TICK


def test_a_page_is_fresh_only_if_it_was_published(sender, beats, ear):
    """Else a supervisor that is away, and comes back in a hang, reads a phase that is over."""
    sender.turn(SECOND)
    assert beats.fresh_until > beats._last
    sender.abandon()
    ear.close()
    ear.path.unlink()
    beats.fresh_until = 0
    sender.turn(2 * SECOND)
    assert beats.fresh_until == 0


def test_a_change_is_sent_at_the_next_tick_and_silence_is_a_pulse_a_second(sender, beats, ear):
    sender.turn(SECOND)
    ear.take()
    beats.moved()
    sender.turn(SECOND + TICK)
    assert ear.take() == ["state"]
    sent = []
    for tick in range(2, 44):
        sender.turn(SECOND + tick * TICK)
        sent += ear.take()
    assert sent == ["pulse"] * 2


def test_a_thousand_beats_between_two_ticks_are_one_record(sender, beats, ear):
    sender.turn(SECOND)
    ear.take()
    for _ in range(1000):
        beats.add(b.HAND, 1)
    sender.turn(SECOND + TICK)
    assert ear.take() == ["state"]
    assert beats.slots[wire.SLOT["beats"]] == 1000


def test_a_loop_of_short_steps_is_interrupted_less_often(sender, beats):
    sender.turn(SECOND)
    pauses = []
    for tick, changes in enumerate((1, 7, 8, 500, 1), start=1):
        for _ in range(changes):
            beats.moved()
        sender.turn(SECOND + tick * TICK)
        pauses.append(sender._pause())
    assert pauses == [0.05, 0.05, 0.15, 0.15, 0.05]


def test_a_deaf_supervisor_blocks_nothing_and_loses_no_note(sender, beats, mail, ear):
    sender.turn(SECOND)
    for tick in range(100):  # more than any queue holds
        beats.moved()
        sender.turn(SECOND + tick * TICK)
    mail.note("phase", "warm-up", {})
    sender.turn(6 * SECOND)
    assert not any(isinstance(one, dict) and one["kind"] == "phase" for one in ear.take())
    sender.turn(6 * SECOND + TICK)
    assert [one["text"] for one in ear.take() if isinstance(one, dict)] == ["warm-up"]


def test_a_longest_pause_that_was_dropped_is_reported_again(sender, beats, ear):
    sender.turn(SECOND)
    for tick in range(100):
        beats.moved()
        sender.turn(SECOND + tick * TICK)
    beats._longest = beats.slots[wire.SLOT["longest_ns"]] = 123
    beats.moved()
    sender.turn(7 * SECOND)
    assert beats.slots[wire.SLOT["longest_ns"]] == 123
    ear.take()
    beats.moved()
    sender.turn(7 * SECOND + TICK)
    assert beats.slots[wire.SLOT["longest_ns"]] == 0


def test_falls_silent_with_the_supervisor_and_greets_the_next_one(sender, mail, ear):
    sender.turn(SECOND)
    ear.close()
    mail.note("save", "while nobody listened", {})
    for second in range(2, 6):
        sender.turn(second * SECOND)
    ear.open()
    sender.turn(7 * SECOND)
    kind, hello, note, *_ = ear.take()
    assert (kind, hello["kind"], note["text"]) == ("hello", "hello", "while nobody listened")


def test_tries_an_absent_supervisor_once_a_second(beats, mail, tmp_path):
    sender = Sender(beats, mail, str(tmp_path / "late"))
    sender.turn(SECOND)
    ear = Ear(tmp_path / "late").open()
    sender.turn(SECOND + TICK)
    assert ear.take() == []
    sender.turn(2 * SECOND + TICK)
    assert ear.take()[0] == "hello"
    ear.close()
    sender.abandon()


def test_the_hello_is_sent_again_when_it_changes_but_not_with_every_import(sender, mail, ear):
    sender.turn(SECOND)
    ear.take()
    hellos = []
    for tick in range(1, 9):
        mail.hook_installed(wire.HOOKS[tick])
        sender.turn(SECOND + tick * TICK)
        hellos += [one for one in ear.take() if isinstance(one, dict)]
    assert hellos == []
    sender.turn(2 * SECOND)
    (hello,) = [one for one in ear.take() if isinstance(one, dict)]
    assert hello["hooks"] == list(wire.HOOKS[1:9])


def test_a_command_is_noticed(sender, beats):
    beats.slots[wire.SLOT["command"]] = wire.COMMANDS.index("stop")
    sender.turn(SECOND)
    assert beats.attention


def test_a_forked_worker_says_nothing(sender, ear):
    sender.abandon()
    sender.goodbye()
    assert ear.take() == []


class Caught(Outbox):
    """The thread is caught between the sending of a note and its being forgotten, until `gate` opens."""

    def __init__(self):
        super().__init__(1, 2)
        self.within, self.gate = threading.Event(), threading.Event()

    def sent(self):
        if threading.current_thread() is not threading.main_thread():
            self.within.set()
            self.gate.wait(5)
        super().sent()


def test_a_goodbye_in_the_middle_of_a_turn_says_every_note_once(beats, ear):
    mail = Caught()
    for text in "abc":
        mail.note("phase", text, {})
    sender = Sender(beats, mail, str(ear.path))
    thread = threading.Thread(target=sender._run)
    thread.start()
    assert mail.within.wait(5)
    opener = threading.Timer(0.05, mail.gate.set)
    opener.start()
    sender.goodbye()
    thread.join()
    opener.join()
    heartbeat = ear.take()
    assert [one["text"] for one in heartbeat if isinstance(one, dict) and one["kind"] == "phase"] == ["a", "b", "c"]
    assert heartbeat[-1] == "bye"


def test_a_hello_fits_one_datagram_whatever_is_in_it(mail):
    for number in range(20):
        mail.beyond(f"{number}: " + "ü" * 200)
    hello = mail.hello()
    assert len(hello) <= LIMIT
    assert json.loads(hello)["beyond"][0].startswith("0: ü")


def test_a_note_that_is_too_long_for_a_datagram_is_shortened_and_not_lost(mail):
    mail.note("inexact", "\u6570" * 900, {"why": "\u6570" * 400})
    (sent,) = mail.waiting()

    note = json.loads(sent)
    assert len(sent) <= LIMIT
    assert len(note["text"]) >= 50
    mail.note("inexact", "a" * 900, {})
    assert json.loads(mail.waiting()[1])["text"] == "a" * 900


def test_texts_arrive_as_they_were(mail):
    text = 'a "quoted"\nline \\ with ünïcode \x07 \U0001f600'
    mail.note("phase", text, {"n": 3, "flag": True, "none": None})
    note = json.loads(mail.waiting()[0])
    assert (note["text"], note["facts"]) == (text, {"n": "3", "flag": "True", "none": "None"})


def test_waiting_notes_are_bounded(mail):
    for number in range(10 * WAITING):
        mail.note("phase", str(number), {})
    texts = [json.loads(note)["text"] for note in mail.waiting()]
    assert texts == [str(number) for number in range(WAITING)]


def test_the_hello_names_the_threads_of_progress_bars(sender, ear):
    sender.turn(SECOND)
    sender.waits.displays = {140: 77}
    sender.turn(3 * SECOND)
    assert [one["threads"] for one in ear.take() if isinstance(one, dict)][-1] == [77]
