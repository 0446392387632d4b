"""The saves of a loop that a library runs: what an order and an error do."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest

from stallguard.probe import outbox
from stallguard.probe.beats import EPOCH_END, STEP, Beats
from stallguard.probe.checkpoint import loop_saves
from stallguard.probe.checkpoint.loop_saves import SAVE, STOP, LoopSaves


class Told:
    """A context that records the notes that it gets."""

    def __init__(self, folder) -> None:
        """`folder`: of the checkpoints."""
        self.checkpoint_directory, self.place, self.resuming = str(folder), "here", False
        self.settings = SimpleNamespace(checkpoint_every=60.0, checkpoint_cost=0.01)
        self.mail = SimpleNamespace(own_thread=lambda: None)
        self.command, self.notes, self.surprises = 0, [], []
        self.beats = Beats(outbox.begin(outbox.private(), 1, 2, 3))
        self.request_attention = self.beats.request_attention

    def get(self, _field):
        """Return the order."""
        return self.command

    def set(self, _field, value):
        """Take the order."""
        self.command = value

    def note(self, kind, text, **_facts):
        """Keep a note."""
        self.notes.append((kind, text))

    say = note

    def surprise(self, where, error):
        """Keep an error."""
        self.surprises.append((where, error))

    def saved(self):
        """Count a checkpoint."""
        self.notes.append(("made", ""))

    def flag(self, _bit):
        """Do nothing."""

    def own_work(self):
        """Return a context manager that does nothing."""
        return _Nothing()

    def phase(self, _name):
        """Return the same."""
        return _Nothing()


class _Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


@pytest.fixture
def told(tmp_path):
    return Told(tmp_path)


def test_an_error_of_a_save_is_said_once_and_the_next_one_counts(told, tmp_path):
    saves = LoopSaves(told)

    def full():
        raise OSError(28, "No space left on device")

    assert not saves.save(full, str(tmp_path / "loop"))
    assert not saves.save(full, str(tmp_path / "loop"))
    assert [kind for kind, _ in told.notes] == ["unsaved"]
    assert "No space left on device" in told.notes[0][1]
    assert saves.save(lambda: None, str(tmp_path / "loop"))
    assert [kind for kind, _ in told.notes] == ["unsaved", "saved", "made"]


def test_an_order_to_save_is_taken_once_and_one_to_stop_stays(told):
    saves = LoopSaves(told)
    assert not saves.is_ordered()
    told.command = SAVE
    assert saves.is_ordered()
    assert not saves.is_ordered()
    assert not saves.must_end
    told.command = STOP
    assert saves.must_end
    assert saves.must_end


def test_what_cannot_be_saved_is_ended_by_the_library_itself(told):
    saves, stopped = LoopSaves(told), []
    saves.end(False, lambda: stopped.append(True), "Lightning")
    assert stopped == [True]
    assert saves.is_over
    assert told.notes == [("stop", "asked Lightning to end this training after the step")]


def test_a_saved_training_is_ended_by_sigterm(told, monkeypatch):
    """It waits for the signal, if that did not come yet."""
    saves, sent = LoopSaves(told), []
    monkeypatch.setattr(loop_saves.SigtermHandler, "wait", lambda handler: setattr(handler, "asked", True))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    saves.end(True, lambda: sent.append("by itself"), "Lightning")
    assert sent == [(os.getpid(), signal.SIGTERM)]
    assert told.notes[0][0] == "stop"


def steps_of(told, saves):
    """Return a step, and the arguments with which it was looked at."""
    looks = []
    return saves.after_step(lambda *words: looks.append(words))(lambda number: 2 * number), looks


@pytest.mark.parametrize("why", ["a save is due", "attention", "the end of an epoch"])
def test_after_a_step_is_looked_at_if_there_can_be_something_to_do(told, why):
    saves = LoopSaves(told)
    step, looks = steps_of(told, saves)
    assert (step(3), looks) == (6, [])
    if why == "a save is due":
        saves.pace.next = 0.0
    elif why == "attention":
        told.request_attention()
    else:
        told.beats.enter(EPOCH_END)
    assert (step(4), looks) == (8, [(4,)])
    saves.pace.next = float("inf")
    told.beats.enter(STEP)
    assert (step(5), looks) == (10, [(4,)])


def test_a_signal_to_end_is_looked_at_until_the_process_ends(told):
    """In the middle of a step of several micro-batches it cannot."""
    saves = LoopSaves(told)
    step, looks = steps_of(told, saves)
    saves.sigterm._handle()
    for number in (1, 2, 3):
        step(number)
    assert looks == [(1,), (2,), (3,)]


def test_an_error_after_a_step_is_not_the_scripts(told):
    def fails(number):
        raise ValueError(number)

    saves = LoopSaves(told)
    told.request_attention()
    assert saves.after_step(fails)(lambda number: 2 * number)(3) == 6
    assert [type(error) for _, error in told.surprises] == [ValueError]


def test_an_error_of_the_probe_is_no_error_of_the_training(told):
    def breaks():
        raise ValueError("odd")

    assert LoopSaves(told).guarded("before fit", breaks) is None
    assert [where for where, _ in told.surprises] == ["before fit"]
