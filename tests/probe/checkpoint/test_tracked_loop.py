# ruff: noqa: NPY002  the global generators are what is tested
"""A loop of the script's own that hands over its objects: stopped anywhere, it ends as the undisturbed one does."""

from __future__ import annotations

import random
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stallguard.probe import wire
from stallguard.probe.checkpoint.schedule import CheckpointSchedule
from stallguard.probe.checkpoint.tracked_loop import TrackedLoop
from stallguard.probe.settings import ProbeSettings


class Told:
    """As much of the probe's context as a tracked loop uses."""

    checkpoint_directory = ""
    settings = ProbeSettings()
    place = "a1-1"

    def __init__(self, resuming=False):
        self.notes, self.saves, self.resuming, self.skipped = [], 0, resuming, 0
        self.losses = SimpleNamespace(known=False, broken=False)
        self.beats = SimpleNamespace(beat=lambda source: None, slots=[0] * len(wire.SLOT))

    def note(self, kind, text, **facts):
        self.notes.append((kind, text))

    def say(self, kind, text):
        self.note(kind, text)

    def beyond(self, sentence):
        raise AssertionError(sentence)

    def surprise(self, where, error):
        raise AssertionError(where) from error

    def saved(self):
        self.saves += 1

    def add(self, name, count=1):
        self.skipped += count

    def get(self, name):
        return 0

    def moved(self):
        pass

    restored = moved

    def own_work(self):
        return nullcontext()

    def phase(self, name):
        assert name in ("checkpoint", "input")
        return nullcontext()


class Stopped(Exception):
    """The process is killed here."""


def shuffled():
    """Yield the batches of an epoch in an order that is drawn, each with noise that is drawn as it is read."""
    order = random.sample(range(5), 5)
    for number in order:
        yield number + np.random.random()


class Loop:
    """A script: its state, and a training of three epochs that draws numbers in each step and between epochs."""

    def __init__(self, folder: Path, resuming: bool, data=shuffled, saves_at=None):
        random.seed(1)
        np.random.seed(2)
        self.weights, self.log, self.own = np.zeros(2), {"sum": 0.0, "seen": []}, np.random.default_rng(3)
        data = data or self.shuffled
        self.told, self.data, self.saves_at, self.ended = Told(resuming), data, saves_at, 0
        self.tracked = TrackedLoop(
            self.told, str(folder), CheckpointSchedule(1e9, 1.0, 0.0), (self.weights, self.log, self.own, data)
        )
        self.tracked.load()

    def shuffled(self):
        """Yield the batches of an epoch, drawn from a generator that is handed over."""
        for number in self.own.permutation(5):
            yield int(number) + self.own.random()

    def between(self, tracked, between_epochs):
        self.ended += 1
        if self.saves_at is None or self.ended in self.saves_at:
            tracked.save(0.0)

    def train(self, stop=0):
        """Train; `stop`: the batch, of this process, in which it ends."""
        steps = 0
        for epoch, batches in self.tracked.epochs(3, self.between):
            self.log["sum"] = 0.0
            for number, batch in batches:
                steps += 1
                if steps == stop:
                    raise Stopped
                dropped = random.random() + self.own.random()
                self.weights += [batch * dropped, number]
                self.log["sum"] += batch
                self.log["seen"].append((epoch, number, batch))
            np.random.random()  # as of a validation
        return self.weights.tolist(), self.log, random.random(), np.random.random(), self.own.random()


def stopped(folder, stop, **how):
    with pytest.raises(Stopped):
        Loop(folder, **{"resuming": False, **how}).train(stop)


@pytest.mark.parametrize("data", [shuffled, None], ids=["global", "handed over"])
@pytest.mark.parametrize("stop", range(1, 16))
def test_a_loop_that_is_stopped_in_any_batch_ends_as_the_undisturbed_one(tmp_path, stop, data):
    whole = Loop(tmp_path / "whole", resuming=False, data=data).train()
    stopped(tmp_path / "killed", stop, data=data)
    again = Loop(tmp_path / "killed", resuming=True, data=data)
    assert again.train() == whole
    assert [kind for kind, _ in again.told.notes] == (["resume"] if stop > 1 else [])


def test_what_the_script_does_before_the_loop_goes_on_does_not_reach_the_checkpoint(tmp_path):
    def begun(resuming):
        log = {"epochs": []}
        loop = TrackedLoop(Told(resuming), str(tmp_path), CheckpointSchedule(1e9, 1.0, 0.0), (log, ["a", "b"]))
        loop.load()
        return log, loop.batches(lambda tracked, _: tracked.save(0.0))

    log, batches = begun(resuming=False)
    next(batches)
    log["epochs"].append({"sum": 1.0})
    next(batches)
    log, batches = begun(resuming=True)
    log["epochs"][0]["sum"] = 0.0
    next(batches)
    assert log == {"epochs": [{"sum": 1.0}]}


@pytest.mark.parametrize("saves_at", [{3}, {6}, {11}])
def test_it_goes_on_from_a_checkpoint_of_some_batches_ago_and_between_epochs(tmp_path, saves_at):
    whole = Loop(tmp_path / "whole", resuming=False).train()
    stopped(tmp_path / "killed", 15, saves_at=saves_at)
    stopped(tmp_path / "killed", 2, saves_at=set(), resuming=True)  # killed once more, without a new checkpoint
    assert Loop(tmp_path / "killed", resuming=True).train() == whole


def test_a_loop_that_had_ended_is_not_trained_again(tmp_path):
    whole = Loop(tmp_path, resuming=False).train()
    again = Loop(tmp_path, resuming=True)
    assert again.train() == whole
    assert again.ended == 0


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path):
    whole = Loop(tmp_path / "whole", resuming=False).train()
    folder = tmp_path / "killed"
    stopped(folder, 9)
    newest = max(folder.glob("g*"), key=lambda one: int(one.name[1:])) / "tensors.bin"
    newest.write_bytes(newest.read_bytes()[:-1])
    again = Loop(folder, resuming=True)
    assert again.train() == whole
    ((kind, text),) = again.told.notes
    assert kind == "resume"
    assert "is damaged" in text
    assert text.endswith("the previous one is used")


def test_data_in_another_order_are_said(tmp_path):
    stopped(tmp_path, 4)
    again = Loop(tmp_path, resuming=True, data=lambda: iter([7.0, 8.0, 9.0, 10.0, 11.0]))
    again.train()
    assert any(kind == "inexact" and "another order" in text for kind, text in again.told.notes)


def test_other_objects_than_those_of_the_checkpoint_start_over_and_that_is_said(tmp_path):
    stopped(tmp_path, 4)
    told = Told(resuming=True)
    TrackedLoop(told, str(tmp_path), CheckpointSchedule(1e9, 1.0, 0.0), ({}, [1])).load()
    ((kind, text),) = told.notes
    assert kind == "inexact"
    assert text.startswith("the script's loop starts over: the script hands over other objects")


def test_a_full_disk_is_said_and_the_training_goes_on(tmp_path, monkeypatch):
    loop = Loop(tmp_path, resuming=False)
    monkeypatch.setattr(loop.tracked._store, "write", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space")))
    loop.train()
    assert [kind for kind, _ in loop.told.notes] == ["unsaved"]
    assert loop.told.saves == 0


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ((3, [1]), "object 1, of type int: its value cannot be changed in place"),
        (({}, open, [1]), "object 2, of type builtin_function_or_method: it has no state_dict"),
        (({"handle": object()}, [1]), "object 1, of type dict: object"),
        (({}, iter([1])), "object 2, of type list_iterator: the last one must give the batches of each epoch anew"),
        (({},), "object 1, of type dict: the last one must give"),
        ((), "needs the objects"),
    ],
)
def test_what_cannot_be_kept_is_refused_when_it_is_handed_over(objects, words):
    with pytest.raises(TypeError, match=words):
        TrackedLoop(Told(), "", CheckpointSchedule(1e9, 1.0, 0.0), objects)


def test_what_is_put_into_a_handed_object_later_and_cannot_be_kept_is_named_with_it(tmp_path):
    log, told = {}, Told()
    loop = TrackedLoop(told, str(tmp_path), CheckpointSchedule(1e9, 1.0, 0.0), ([1], log, ["a"]))
    loop.load()
    loop.save(0.0)
    log["handle"] = object()
    loop.save(0.0)
    ((kind, text),) = told.notes
    assert kind == "unsaved"
    assert "object 2 that was handed over to stallguard.track holds something now that cannot be kept (object)" in text
    assert told.saves == 1


class Handed:
    """A class of the script's that a dict names."""

    seen: list[int] = []  # noqa: RUF012  state of the class


def test_what_a_handed_class_holds_comes_back(tmp_path):
    def begun(resuming):
        loop = TrackedLoop(
            Told(resuming), str(tmp_path), CheckpointSchedule(1e9, 1.0, 0.0), ({"kind": Handed}, ["a", "b"])
        )
        loop.load()
        return loop.batches(lambda tracked, _: tracked.save(0.0))

    batches = begun(resuming=False)
    next(batches)
    Handed.seen.append(1)
    next(batches)
    Handed.seen.clear()
    next(begun(resuming=True))
    assert Handed.seen == [1]


def test_without_epochs_the_batches_are_those_of_the_data_once(tmp_path):
    def begun(resuming):
        log = []
        loop = TrackedLoop(Told(resuming), str(tmp_path), CheckpointSchedule(1e9, 1.0, 0.0), (log, ["a", "b"]))
        loop.load()
        return log, loop.batches(lambda tracked, _: None if resuming else tracked.save(0.0))

    log, batches = begun(resuming=False)
    log.append(next(batches))
    next(batches)  # saves after the first
    log, batches = begun(resuming=True)
    assert log == [(0, "a")]
    assert list(batches) == [(1, "b")]
