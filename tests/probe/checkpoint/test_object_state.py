"""State that hangs on Python objects is found wherever it hangs, and comes back into the objects of another start."""

# ruff: noqa: PLW0603 - what scripts do

from __future__ import annotations

import collections
import dataclasses
import json
import math
import random
import re
import time
import tracemalloc
import types

import numpy as np
import pytest

from stallguard.probe.checkpoint import object_walk, tensors
from stallguard.probe.checkpoint.object_state import NoPlace, ObjectBaseline, Return, keep, lost
from stallguard.probe.checkpoint.object_walk import Walk

count = 0
losses: list[float] = []


@dataclasses.dataclass
class Best:
    value: float = 1.0
    epoch: int = -1


class Callback:
    """What scripts hang on their callbacks."""

    made = 0

    def __init__(self):
        self.model = object()
        self.folder = "logs/2024-01-01"
        self.plain = 0
        self.window = collections.deque(maxlen=3)
        self.by_name = collections.defaultdict(list)
        self.by_lambda = collections.defaultdict(lambda: 0)
        self.best = Best()
        self.nested = {"train": Best(), "n": 1}
        self.several = [Best(), Best()]
        self.lazily = None
        self.random = random.Random(5)
        self.draws = np.random.default_rng(5)
        self.old_draws = np.random.RandomState(5)
        self.array = np.zeros(3)
        self.weights = None
        self.temporary = 1

    def batch(self, step):
        global count
        count += 1
        Callback.made += 1
        losses.append(step / 2)
        self.plain += 1
        self.window.append(step)
        self.by_name["loss"].append(step)
        self.by_lambda["seen"] += 1
        self.best.value, self.best.epoch = 1 / (step + 1), step
        self.nested["train"].epoch = step
        self.nested[f"step{step}"] = Best(epoch=step)
        self.several.append(Best(epoch=step))
        self.lazily = self.lazily or Best(epoch=100)
        self.lazily.epoch += 1
        self.array[step % 3] += self.random.random() + self.draws.random() + self.old_draws.rand()
        self.weights = [np.full(2, step), self.array]
        self.__dict__.pop("temporary", None)


def closing_over():
    """Return a function with state in its closure, its default, an attribute, and the way to see it."""
    seen, total = [], 0

    def function(step, cache={}):  # noqa: B006
        nonlocal total
        total += step
        seen.append(step)
        cache[step] = total
        function.calls = getattr(function, "calls", 0) + 1

    return function, lambda: (seen, total, function.__defaults__, getattr(function, "calls", 0))


class Script:
    """One start of a script: its objects, and a baseline of them as training begins."""

    def __init__(self, **others):
        global count
        count, Callback.made = 0, 0
        losses.clear()
        self.callback = Callback()
        self.function, self.seen = closing_over()
        self.roots = {"callback": self.callback, "function": self.function, **others}
        self.before = self.walk()
        self.baseline = ObjectBaseline(self.before)

    def walk(self):
        walked = Walk()
        for path, root in self.roots.items():
            walked.enter(root, path)
        return walked

    def train(self, steps):
        for step in steps:
            self.callback.batch(step)
            self.function(step)

    def save(self):
        walked, arrays = self.walk(), []
        entries, unkept = keep(walked, self.baseline.changed(walked), arrays)
        entries += lost(walked, self.before, self.baseline.gone(walked))
        meta, blobs = tensors.pack(arrays)
        blobs = [memoryview(bytes(blob)) for blob in blobs]
        return json.loads(json.dumps(entries)), tensors.unpack(meta, blobs), unkept

    def restore(self, entries, arrays):
        way = Return(entries, arrays, self.before)
        way.check()
        way.apply()

    def state(self):
        mine = {
            k: v for k, v in vars(self.callback).items() if k not in ("model", "random", "draws", "old_draws")
        }
        return re.sub(r" at 0x\w+", "", repr((mine, self.seen(), count, Callback.made, losses)))


def test_a_start_that_gets_the_state_of_another_goes_on_as_that_would():
    first = Script()
    first.train(range(5))
    entries, arrays, unkept = first.save()
    assert unkept == {}
    first.train(range(5, 9))
    wanted = first.state()

    second = Script()
    second.restore(entries, arrays)
    second.train(range(5, 9))
    assert second.state() == wanted


def test_what_did_not_change_is_left_as_this_start_has_it():
    first = Script()
    first.train(range(2))
    entries, arrays, _ = first.save()
    second = Script()
    second.callback.folder = "logs/2024-01-02"
    held = second.callback.by_name, second.callback.window, second.callback.best
    second.restore(entries, arrays)
    assert second.callback.folder == "logs/2024-01-02"
    callback = second.callback
    assert all(a is b for a, b in zip(held, (callback.by_name, callback.window, callback.best), strict=True))


def test_of_a_dictionary_of_names_only_what_changed_comes_back():
    first = Script(
        settings=types.SimpleNamespace(all={"process": 17, "step": 0, "deep": {"host": "a", "n": 1}})
    )
    first.roots["settings"].all["step"] = 5
    first.roots["settings"].all["deep"]["n"] = 2
    first.roots["settings"].all["more"] = [1]
    entries, arrays, _ = first.save()
    now = {"process": 18, "step": 0, "deep": {"host": "b", "n": 1}}
    Script(settings=types.SimpleNamespace(all=now)).restore(entries, arrays)
    assert now == {"process": 18, "step": 5, "deep": {"host": "b", "n": 2}, "more": [1]}


def test_nothing_is_changed_where_one_place_is_missing():
    first = Script(other=types.SimpleNamespace(n=1))
    first.train(range(2))
    first.roots["other"].n = 2
    entries, arrays, _ = first.save()
    second = Script()
    before = second.state()
    with pytest.raises(NoPlace, match="other"):
        second.restore(entries, arrays)
    assert second.state() == before


class Refuses(dict):
    """Takes no other value for what it has, as containers that check what they get."""

    def __setitem__(self, key, value):
        if key in self:
            raise ValueError("ambiguous")
        super().__setitem__(key, value)


def test_a_container_that_refuses_its_value_is_named_and_all_else_is_restored():
    def script():
        return Script(strict=Refuses(step=0), later=types.SimpleNamespace(n=1))

    first = script()
    dict.__setitem__(first.roots["strict"], "step", 5)
    first.roots["later"].n = 7
    entries, arrays, _ = first.save()
    second = script()
    with pytest.raises(NoPlace, match=r"strict.*refuses its value with ValueError\('ambiguous'\)"):
        second.restore(entries, arrays)
    assert second.roots["later"].n == 7


def test_an_undo_brings_back_what_was_there():
    first = Script()
    first.train(range(4))
    entries, arrays, _ = first.save()
    second = Script()
    before, copies = second.state(), []
    way = Return(entries, arrays, second.before)
    undone = way.undo(copies)
    way.apply()
    assert second.state() != before
    Return(undone, copies, second.walk()).apply()
    assert second.state().replace("'lazily': None, ", "") == before.replace("'lazily': None, ", "")


def test_two_names_of_one_object_stay_names_of_one_object():
    shared = Best()
    pair = types.SimpleNamespace(one=shared, other=shared, newest=None)
    first = Script(pair=pair)
    pair.newest, shared.epoch = shared, 7
    entries, arrays, _ = first.save()
    again = Best()
    later = types.SimpleNamespace(one=again, other=again, newest=None)
    Script(pair=later).restore(entries, arrays)
    assert later.newest is later.one is later.other is again
    assert again.epoch == 7


def test_what_cannot_be_kept_is_named():
    holder = types.SimpleNamespace(words=(word for word in "abc"), entries=iter([1, 2]), made=None)
    first = Script(holder=holder)
    assert sorted(first.baseline.named) == ["holder.entries", "holder.words"]
    assert first.save()[2] == {}  # nobody has taken of them yet
    next(holder.words)
    next(holder.entries)
    holder.made = lambda: 1
    assert sorted(first.save()[2]) == ["holder.entries", "holder.made", "holder.words"]


def test_a_million_losses_are_kept_quickly_and_as_they_were():
    first = Script()
    first.train(range(1))
    losses.extend(float(i) for i in range(1_000_000))
    entries, arrays, _ = first.save()
    assert len(json.dumps(entries)) < 20_000
    second = Script()
    second.restore(entries, arrays)
    assert len(losses) == 1_000_001
    assert losses[-1] == 999_999.0
    assert type(losses[-1]) is float


def walk_of(callback, reads=None, deadline=math.inf):
    walked = object_walk.Walk(reads, deadline)
    walked.enter(callback, "callbacks[0]")
    return walked


@pytest.mark.parametrize("index", [0, 1, 12_345, -1])
@pytest.mark.parametrize("of", ["array", "arrays", "numbers"])
def test_a_change_of_one_value_among_a_million_is_seen_wherever_it_is(of, index):
    values = np.zeros((2, 500_000))
    held = {"array": values, "arrays": [values, np.zeros(3)], "numbers": values.ravel().tolist()}[of]
    callback = types.SimpleNamespace(held=held)
    before = ObjectBaseline(walk_of(callback))
    flat = values.reshape(-1) if of != "numbers" else held
    flat[index] = 1.0
    assert before.changed(walk_of(callback)) == ["callbacks[0].held"]


def test_what_takes_longer_to_read_than_checkpoints_can_cost_is_not_read_and_said_to_be():
    callback = types.SimpleNamespace(few=np.zeros(10), seen=np.zeros(1 << 20))
    reads = {}
    first = walk_of(callback, reads, deadline=time.monotonic())
    before = ObjectBaseline(first)
    assert first.unread == {"callbacks[0].seen": 8 << 20}
    callback.seen += 1.0
    callback.few += 1.0
    later = walk_of(callback, reads)
    assert before.changed(later) == ["callbacks[0].few"]
    assert later.unread == first.unread


def test_what_was_read_once_is_read_again_although_its_time_is_over():
    callback = types.SimpleNamespace(seen=np.zeros(1 << 20))
    reads = {}
    before = ObjectBaseline(walk_of(callback, reads))
    callback.seen[7] = 1.0
    later = walk_of(callback, reads, deadline=time.monotonic())
    assert before.changed(later) == ["callbacks[0].seen"]
    assert later.unread == {}


def test_an_array_that_comes_while_training_is_kept_although_there_is_no_time_to_read_it():
    callback = types.SimpleNamespace(seen=None)
    reads = {}
    before = ObjectBaseline(walk_of(callback, reads))
    callback.seen = np.zeros(1 << 20)
    for _ in range(2):
        later = walk_of(callback, reads, deadline=time.monotonic())
        changed = before.changed(later)
        assert changed == ["callbacks[0].seen"]
        assert keep(later, changed, [])[1] == {}


def test_what_is_too_large_for_a_checkpoint_is_not_copied():
    callback = types.SimpleNamespace(seen=[np.zeros(250_000) for _ in range(8)])
    walked = walk_of(callback)
    tracemalloc.start()
    kept = keep(walked, ["callbacks[0].seen"], [], most=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert kept == ([], {"callbacks[0].seen": "15 MB"})
    assert peak < 1 << 20
