"""How a batch of a loop is divided, and what a call does that belongs to the whole batch."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from typing import NamedTuple

import numpy as np
import pytest

from stallguard.probe.microbatch import announcements as said
from stallguard.probe.microbatch import loop_parts
from stallguard.probe.microbatch.loop_parts import LoopParts, current, taken


class Pair(NamedTuple):
    """A batch."""

    x: np.ndarray
    y: np.ndarray


class Told:
    """As much of the probe's context as a loop's parts use."""

    def __init__(self, slices):
        self.slices, self.notes, self.record = slices, [], {"slices": 1}

    def note(self, kind, text, **facts):
        self.notes.append((kind, text))

    def get(self, name):
        return self.record[name]

    def set(self, name, value):
        self.record[name] = value

    def flag(self, bit, on=True):
        self.record["flag"] = on

    def surprise(self, where, error):
        raise error


class Watched:
    """A library with one optimizer; `found`: what is wrong in the parts of each batch, one after the other."""

    def __init__(self, *found):
        self.found, self.backs, self.trials = list(found), 0, []

    def obstacle(self):
        return ""

    def begins(self, *, trial):
        self.trials.append(trial)

    def changed(self, part):
        return self.found.pop(0) if self.found else ""

    def put_back(self):
        self.backs += 1


def trained(parts, batch, number=0):
    """Train a batch; return the rows of each part, its weight, and whether the update took effect."""
    rows = []
    for step, one in parts.of(batch, number):
        assert step == number
        part = current()
        if part is None:
            rows.append((one.tolist(), None, True))
            continue
        part.grades()
        rows.append((one.tolist(), round(part.weight, 3), part.updates_now()))
    assert current() is None
    return rows


def test_each_row_is_in_one_part_and_the_update_follows_the_last():
    told = Told(3)
    parts = LoopParts(told, (), "mean", [Watched()])
    assert trained(parts, np.arange(7)) == [([0], 0.143, False), ([1, 2, 3], 0.429, False), ([4, 5, 6], 0.429, True)]
    assert trained(parts, np.arange(2)) == [([0], 0.5, False), ([1], 0.5, True)]
    assert trained(parts, np.arange(1)) == [([0], 1.0, True)]
    assert told.notes == [("micro", said.LOOP_SLICED % (3, "mean"))]
    assert told.record == {"slices": 3, "flag": True}


def test_what_is_effective_is_the_number_of_parts_that_there_are():
    told = Told(8)
    assert len(trained(LoopParts(told, (), "sum", [Watched()]), np.arange(5))) == 5
    assert told.record["slices"] == 5


def test_before_the_first_batch_has_an_update_nothing_is_effective():
    told = Told(2)
    drawn = LoopParts(told, (), "mean", [Watched()]).of(np.arange(4), 0)
    next(drawn)
    assert told.record["slices"] == 1
    assert not told.notes


@pytest.mark.parametrize("place", [0, 1])
def test_a_trial_that_finds_something_is_undone_and_the_batch_trained_whole(place):
    told, library = Told(3), Watched(*[""] * place, "of a reason")
    log = {"count": 1}
    parts = LoopParts(told, (log,), "mean", [library])
    log["count"] = 2
    drawn = trained(parts, np.arange(6))
    assert drawn[-1] == ([0, 1, 2, 3, 4, 5], None, True)
    assert len(drawn) == 2 + place
    assert library.backs == 1
    assert told.notes == [("whole", said.LOOP_WHOLE % "of a reason")]
    assert trained(parts, np.arange(6)) == [([0, 1, 2, 3, 4, 5], None, True)]
    assert told.record["slices"] == 1


def test_what_a_later_batch_shows_is_noted_as_inexact():
    told, library = Told(2), Watched("", "", "of a reason")
    parts = LoopParts(told, (), "mean", [library])
    trained(parts, np.arange(4))
    assert [update for _, _, update in trained(parts, np.arange(4), 7)] == [False, True]
    assert told.notes[1:] == [
        ("whole", said.LOOP_WHOLE % "of a reason"), ("inexact", said.LOOP_INEXACT % (8, "of a reason"))
    ]  # fmt: skip
    assert library.trials == [True, False]
    assert library.backs == 0


def test_containers_that_were_handed_over_are_put_back():
    log, rows = {"count": 0}, [1]
    for _ in LoopParts(Told(2), (log, rows), "mean", [Watched("of a reason")]).of(np.arange(4), 0):
        log["count"] += 1
        rows.append(2)
        part = current()
        if part is not None:
            part.grades()
    assert (log, rows) == ({"count": 1}, [1, 2])


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ((np.arange(4), np.arange(3)), said.OTHER_ROWS),
        ((np.arange(4), 1.0), said.NO_ROWS % "float"),
        ((np.arange(4), np.array(1.0)), said.NO_ROWS % "ndarray"),
        ("text", said.NO_ROWS % "str"),
        (np.arange(1), said.ONE_ROW),
    ],
)
def test_other_batches_stay_whole(batch, reason):
    told = Told(2)
    (only,) = LoopParts(told, (), "mean", [Watched()]).of(batch, 3)
    assert only[1] is batch
    assert told.notes == [("whole", said.LOOP_WHOLE % reason)]


def test_without_the_word_or_an_optimizer_batches_stay_whole(monkeypatch):
    for loss, watches, reason in (("", [Watched()], said.NO_WORD), ("mean", [], said.NO_LIBRARY)):
        told = Told(2)
        assert trained(LoopParts(told, (), loss, watches), np.arange(4)) == [([0, 1, 2, 3], None, True)]
        assert told.notes == [("whole", said.LOOP_WHOLE % reason)]
    monkeypatch.setattr(loop_parts.libraries, "have_peers", lambda: True)
    trained(LoopParts(told, (), "mean", [Watched()]), np.arange(4))
    assert told.notes[-1] == ("whole", said.LOOP_WHOLE % said.OTHER_PROCESSES)


def test_a_script_that_divides_its_batches_itself_is_not_told_the_word():
    told = Told(2)
    for _ in LoopParts(told, (), "", []).of(np.arange(4), 0):
        told.set("slices", 2)  # stallguard.microbatches()
    assert told.notes == []
    assert told.record["slices"] == 2


def test_a_loop_that_is_left_in_a_part_is_noted_if_something_was_trained():
    for graded, notes in ((False, []), (True, [("inexact", said.LEFT)])):
        told = Told(2)
        parts = LoopParts(told, (), "mean", [Watched()])
        drawn = parts.of(np.arange(4), 0)
        next(drawn)
        if graded:
            current().grades()
        parts.end()
        drawn.close()
        assert current() is None
        assert told.notes == notes


def test_parts_are_alike():
    told = Told(3)
    for number, _ in enumerate(LoopParts(told, (), "mean", [Watched()]).of(np.arange(6), 0)):
        part = current()
        if part is not None:
            part.grades()
            if number == 0:
                part.updates_now()
    assert told.notes == [("whole", said.LOOP_WHOLE % said.UNLIKE)]


def test_rows_are_taken_from_containers_of_the_same_kinds():
    x, y = np.arange(8).reshape(4, 2), np.arange(4)
    batch = OrderedDict(a=Pair(x, y), b=[x, None], c=UserDict(x=x), d=(y,))
    part = taken(batch, 1, 2)
    assert [type(one) for one in (part, *part.values())] == [OrderedDict, Pair, list, UserDict, tuple]
    assert part["a"].x.tolist() == part["b"][0].tolist() == part["c"]["x"].tolist() == [[2, 3], [4, 5]]
    assert part["a"].y.tolist() == part["d"][0].tolist() == [1, 2]
    assert part["b"][1] is None
    assert len(batch["c"]["x"]) == 4
