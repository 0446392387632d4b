"""What the script's own code changes in a library's loop comes back in the next attempt, or is named."""

# ruff: noqa: PLW0603 - what scripts do

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stallguard.probe.checkpoint import file_events, script_state
from stallguard.probe.checkpoint.object_walk import Walk
from stallguard.probe.checkpoint.schedule import CheckpointSchedule
from stallguard.probe.checkpoint.script_state import Kept, ScriptState, joined, kept_in

total = 0


class Callback:
    seen = 0

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.table = np.zeros(3)
        self.by_name: dict[str, Any] = {"settings": 1}

    def step(self, number: int) -> None:
        global total
        total += number
        Callback.seen += 1
        self.losses.append(number / 2)
        self.table[number % 3] += number
        self.by_name["best"] = {"at": number}


class Rows:
    """Data whose values depend on how many were drawn before."""

    def __init__(self) -> None:
        self.drawn = 0

    def draw(self) -> int:
        self.drawn += 1
        return self.drawn


class Attempt:
    """One process of the script: its objects, and what the probe says of them."""

    def __init__(self, folder: Path, make: Callable[[], Any] = Callback) -> None:
        global total
        total, Callback.seen = 0, 0
        self.callback, self.rows = make(), Rows()
        self.beyond: list[str] = []
        self.said: list[tuple[str, str]] = []
        context: Any = SimpleNamespace(
            beyond=self.beyond.append, say=lambda kind, text: self.said.append((kind, text)),
            settings=SimpleNamespace(checkpoint_most=1e9),
        )  # fmt: skip
        pace = CheckpointSchedule(0.0, 1.0, 0.0)
        self.state = ScriptState(context, pace, str(folder / "files"), self._enter, self._enter_data)

    def _enter(self, walked: Walk) -> None:
        walked.enter(self.callback, "callback")

    def _enter_data(self, walked: Walk) -> None:
        walked.enter(self.rows, "data")

    def kept(self) -> Kept:
        """Return what is kept now, as it comes from the disk."""
        facts, blobs = joined({"step": 1}, [b"of the loop"], self.state.read())
        return kept_in(json.loads(json.dumps(facts)), [memoryview(bytes(one)) for one in blobs])


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    """Return what makes an attempt in a directory of its own; no file is registered after the test."""
    monkeypatch.chdir(tmp_path)
    yield lambda make=Callback: Attempt(tmp_path, make)
    file_events.events.listener = None


def test_attributes_classes_and_globals_come_back_into_the_objects_of_another_start(attempt):
    first = attempt()
    first.state.begin()
    for number in range(1, 5):
        first.callback.step(number)
    kept = first.kept()

    second = attempt()
    mine = second.callback.losses
    second.state.begin()
    second.state.restore(kept)
    assert second.callback.losses == [0.5, 1.0, 1.5, 2.0]
    assert second.callback.losses is mine, "others refer to the same list"
    assert second.callback.table.tolist() == first.callback.table.tolist()
    assert second.callback.by_name == {"settings": 1, "best": {"at": 4}}
    assert (total, Callback.seen) == (10, 4)
    assert second.said == []


def test_what_did_not_change_keeps_the_value_of_the_new_start(attempt):
    first = attempt()
    first.state.begin()
    first.callback.step(1)
    kept = first.kept()
    second = attempt()
    second.callback.by_name["settings"] = 2  # the script was edited
    second.state.begin()
    second.state.restore(kept)
    assert second.callback.by_name == {"settings": 2, "best": {"at": 1}}


@pytest.mark.parametrize("length", [0, 100_000])
def test_what_a_resumed_training_leaves_out_comes_back_though_it_has_not_changed_since(attempt, length):
    first = attempt()
    first.callback.losses += [0.5] * length
    first.state.note_before()
    first.callback.losses.append(7.0)  # by a check of the validation before the first batch
    if length:
        del first.callback.losses[0]
    first.state.begin()
    kept = first.kept()
    second = attempt()
    second.state.note_before()
    second.state.begin()
    second.state.restore(kept)
    assert second.callback.losses == [*[0.5] * (length - 1), 7.0]


def test_data_are_drawn_again_from_what_they_were_as_the_epoch_opened(attempt):
    first = attempt()
    first.state.begin()
    first.rows.draw()
    first.state.data_open()  # of the second epoch
    first.rows.draw()
    first.rows.draw()
    kept = first.kept()

    second = attempt()
    second.state.restore_opening(kept)
    assert second.rows.draw() == 2
    second.state.begin()
    second.state.restore(kept)
    assert second.rows.drawn == 3


def test_data_that_were_restored_as_they_opened_are_kept_again(attempt):
    """What they had at the script's start is the baseline, not what was restored."""
    first = attempt()
    first.state.begin()
    first.rows.draw()
    first.state.data_open()
    second = attempt()
    second.state.restore_opening(first.kept())
    second.state.begin()
    third = attempt()
    third.state.restore(second.kept())
    assert third.rows.drawn == 1


def test_an_array_that_the_data_change_as_they_are_drawn_comes_back_and_is_named(attempt):
    first = attempt()
    first.rows.table = np.zeros((500, 500))  # 2 MB
    first.state.begin()
    first.rows.table[300, 7] += 1
    kept = first.kept()
    assert script_state.changed_data(kept) == ["data.table"]

    second = attempt()
    second.rows.table = np.zeros((500, 500))
    second.state.restore(kept)
    assert second.rows.table[300, 7] == 1.0


def test_what_the_data_write_while_they_are_drawn_again_is_named(attempt, tmp_path):
    log, other = (tmp_path / "drawn.txt").open("a"), (tmp_path / "other.txt").open("a")
    with log, other:
        other.write("before\n")
        one = attempt()
        one.state.listen(resumes=True)
        one.state.begin()
        assert one.state.written() == []
        log.write("1\n")
        assert one.state.written() == ["drawn.txt"]


def test_a_look_at_the_data_that_takes_long_is_not_repeated_in_each_epoch(attempt, monkeypatch):
    monkeypatch.setattr(script_state, "LOOK", -1.0)
    first = attempt()
    first.state.begin()
    first.state.data_open()
    walks: list[object] = []
    monkeypatch.setattr(first, "_enter_data", walks.append)
    first.state._roots[script_state.DATA] = walks.append
    first.state.data_open()
    assert walks == []


class Locked:
    def __init__(self) -> None:
        self.thread = threading.Thread()
        self.sums: list[int] = []


def test_what_cannot_be_kept_is_named_as_the_loop_begins_and_at_the_resume(attempt):
    first = attempt(Locked)
    first.state.begin()
    assert len(first.beyond) == 1
    assert "callback.thread" in first.beyond[0]
    first.callback.sums.append(1)
    kept = first.kept()
    assert len(first.beyond) == 1, "once"
    second = attempt(Locked)
    second.state.restore(kept)
    assert second.callback.sums == [1]
    assert [kind for kind, _ in second.said] == ["resume"]
    assert "not restored, if it has changed: callback.thread" in second.said[0][1]


def test_an_object_of_the_probe_is_no_state_of_the_script(attempt):
    first = attempt()
    first.callback.watch, first.callback.folders = first.state, (one for one in ())
    first.callback.loop = Walk().enter  # a method of one
    first.state.begin()
    assert len(first.beyond) == 1
    assert "callback.folders (generator)" in first.beyond[0]
    assert "watch" not in first.beyond[0]


def numbers():
    yield from range(100)


class Drawing:
    def __init__(self) -> None:
        self.source = numbers()
        self.sums: list[int] = []


def test_a_checkpoint_that_lacks_what_has_changed_says_so_at_the_resume(attempt):
    first = attempt(Drawing)
    first.state.begin()
    first.callback.sums.append(next(first.callback.source))
    first.kept()
    named = len(first.beyond)
    second = attempt(Drawing)
    second.state.restore(first.kept())
    assert len(first.beyond) == named, "once"
    assert second.callback.sums == [0]
    assert second.said[0][0] == "inexact"
    assert "lacks the state of callback.source" in second.said[0][1]


def test_what_has_no_place_any_more_is_named_and_the_rest_restored(attempt):
    first = attempt()
    first.callback.inner = Rows()
    first.state.begin()
    first.callback.inner.draw()
    first.callback.step(3)
    second = attempt()
    second.state.restore(first.kept())
    assert second.callback.losses == [1.5]
    assert [kind for kind, _ in second.said] == ["inexact"]
    assert "not restored: callback.inner.drawn" in second.said[0][1]


def test_files_that_the_script_appends_to_are_cut_back_to_the_checkpoint(attempt, tmp_path):
    log = tmp_path / "log.txt"

    class Logging(Callback):
        def __init__(self) -> None:
            super().__init__()
            self.file = log.open("a")

    first = attempt(Logging)
    first.state.listen(resumes=False)
    first.state.begin()
    first.callback.file.write("one\n")
    kept = first.kept()
    first.callback.file.write("two\n")
    first.callback.file.close()
    second = attempt(Logging)
    second.state.listen(resumes=True)
    second.state.begin()
    second.state.restore(kept)
    second.callback.file.write("two again\n")
    second.callback.file.close()
    assert log.read_text() == "one\ntwo again\n"
    assert (tmp_path / "files" / "cut-off").read_text().endswith("two\n")


def test_without_numpy_all_of_it_is_named(attempt, monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", None)
    first = attempt()
    first.state.begin()
    assert "numpy is not installed" in first.beyond[0]
    second = attempt()
    second.state.restore(first.state.read())
    assert "numpy is not installed" in second.said[0][1]


class Refusing(dict):
    """A container of the script's that cannot be looked at."""

    def items(self):
        raise RuntimeError("not now")


def test_an_object_that_cannot_be_looked_at_costs_no_checkpoint_and_is_named(attempt):
    first = attempt()
    first.callback.odd = Refusing(a=1)
    first.state.begin()
    assert "all that the script's code keeps (RuntimeError: not now)" in first.beyond[0]
    kept = first.kept()
    second = attempt()
    second.state.restore(kept)
    assert second.said[0][0] == "inexact"
    assert "RuntimeError: not now" in second.said[0][1]


def test_one_that_came_since_the_beginning_costs_no_checkpoint_either(attempt):
    first = attempt()
    first.state.begin()
    first.callback.odd = Refusing(a=1)
    kept = first.kept()
    first.kept()
    assert [one for one in first.beyond if "not now" in one] == first.beyond[-1:]
    second = attempt()
    second.callback.odd = Refusing(a=1)
    second.state.restore(kept)
    assert "RuntimeError: not now" in second.said[0][1]


def test_a_checkpoint_of_an_earlier_version_has_nothing_to_restore(attempt):
    second = attempt()
    second.state.restore(kept_in({"step": 1}, [b"of the loop"]))
    assert second.said == []
