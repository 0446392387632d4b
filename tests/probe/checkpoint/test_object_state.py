"""State that hangs on Python objects is found wherever it hangs, and comes back into the objects of another start."""

# ruff: noqa: PLW0603 - what scripts do

from __future__ import annotations

import array
import collections
import ctypes
import dataclasses
import functools
import hashlib
import io
import json
import math
import multiprocessing
import os
import random
import re
import threading
import time
import tracemalloc
import types
from typing import Any, NamedTuple

import numpy as np
import pytest

from stallguard.probe.checkpoint import object_walk, tensors
from stallguard.probe.checkpoint.object_state import NoPlace, ObjectBaseline, Restoration, keep, lost
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
        entries, unkept = keep(walked, self.baseline.changed(walked), arrays, baseline=self.baseline)
        entries += lost(walked, self.before, self.baseline.gone(walked))
        meta, blobs = tensors.pack(arrays)
        blobs = [memoryview(bytes(blob)) for blob in blobs]
        return json.loads(json.dumps(entries)), tensors.unpack(meta, blobs), unkept

    def restore(self, entries, arrays):
        way = Restoration(entries, arrays, self.before)
        way.check()
        way.apply()

    def state(self):
        mine = {k: v for k, v in vars(self.callback).items() if k not in ("model", "random", "draws", "old_draws")}
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
    first = Script(settings=types.SimpleNamespace(all={"process": 17, "step": 0, "deep": {"host": "a", "n": 1}}))
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
    way = Restoration(entries, arrays, second.before)
    undone = way.undo(copies)
    way.apply()
    assert second.state() != before
    Restoration(undone, copies, second.walk()).apply()
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


class Outer:
    class Inner:
        n = 0

    held = type("Made", (), {"n": 0})


def test_an_attribute_of_a_class_that_is_an_attribute_of_a_class_is_kept():
    first = Script(outer=Outer())
    Outer.Inner.n, Outer.held.n = 3, 4
    try:
        entries, arrays, unkept = first.save()
    finally:
        Outer.Inner.n, Outer.held.n = 0, 0
    assert unkept == {}
    Script(outer=Outer()).restore(entries, arrays)
    found = Outer.Inner.n, Outer.held.n
    Outer.Inner.n, Outer.held.n = 0, 0
    assert found == (3, 4)


class Best2(NamedTuple):
    value: float
    rows: Any
    other: Any = print  # no pickle of it is kept beside what the rows are an alias of


def test_a_tuple_of_what_changes_is_made_again_and_an_undo_brings_the_first_one_back():
    def made():
        rows = [1.0]
        return types.SimpleNamespace(rows=rows, best=(Best2(0.5, rows), iter([1])), late={})

    before, after = made(), made()
    script = Script(holder=before)
    before.rows.append(2.0)
    before.best = (Best2(0.25, before.rows), before.best[1])
    before.late["first"] = [1]
    entries, arrays, unkept = script.save()
    assert unkept == {}
    second, first = Script(holder=after), after.best
    way = Restoration(entries, arrays, second.before)
    way.check()
    undo = way.undo(copies := [])
    way.apply()
    assert after.best[0] == Best2(0.25, after.rows)
    assert type(after.best[0]) is Best2
    assert (after.best[0].rows, after.rows, after.late) == (after.rows, [1.0, 2.0], {"first": [1]})
    way.put_back()
    Restoration(undo, copies, second.walk(), own=True).apply()
    assert after.best is first
    assert (after.best[0].value, after.rows, after.late) == (0.5, [1.0], {})


def test_containers_that_contain_each_other_are_kept():
    def made():
        first, second = {"n": 0}, [0]
        first["other"], first["self"] = second, first
        second.append(first)
        return types.SimpleNamespace(first=first, second=second)

    before, after = made(), made()
    script = Script(holder=before)
    before.first["n"], before.second[0] = 5, 6
    entries, arrays, unkept = script.save()
    assert unkept == {}
    Script(holder=after).restore(entries, arrays)
    assert (after.first["n"], after.second[0]) == (5, 6)
    assert after.first["self"] is after.second[1] is after.first
    assert after.first["other"] is after.second


class Key:
    """One without a text of its own."""


KEYS = {
    "classes": [int, str, Key],
    "functions": [closing_over, dataclasses.replace],
    "bytes": [b"a", b"b"],
    "members": [re.RegexFlag.A, re.RegexFlag.I],
}


@pytest.mark.parametrize("name", KEYS)
def test_each_entry_of_a_dictionary_is_another_place_whatever_its_keys_are(name):
    def made():
        return types.SimpleNamespace(entries={key: Best() for key in KEYS[name]})

    first, second = made(), made()
    script = Script(holder=first)
    for epoch, best in enumerate(first.entries.values()):
        best.epoch = epoch
    entries, arrays, unkept = script.save()
    assert unkept == {}
    Script(holder=second).restore(entries, arrays)
    assert second.entries == first.entries


def test_a_change_below_any_of_several_keys_that_are_objects_is_seen():
    holder = types.SimpleNamespace(entries={Key(): Best(), Key(): Best(), Key(): Best()})
    script = Script(holder=holder)
    assert script.save()[0] == []
    for number, best in enumerate(list(holder.entries.values())):
        best.epoch = number
        assert len(script.save()[0]) == number + 1


def wrapping(function):
    """Return what a library's decorator makes of a function: one of the library's, with a cache."""
    made = types.SimpleNamespace()
    source = (
        "import functools\n"
        "def decorated(function):\n"
        "    cache = {}\n"
        "    @functools.wraps(function)\n"
        "    def inner(key):\n"
        "        if key not in cache:\n"
        "            cache[key] = function(key)\n"
        "        return cache[key]\n"
        "    return inner\n"
    )
    exec(compile(source, json.__file__, "exec"), vars(made))  # noqa: S102
    return made.decorated(function)


remembering = wrapping(lambda key: [key])
chosen = functools.singledispatch(lambda value: 0)


def calls():
    return remembering, chosen


def test_what_a_librarys_decorator_keeps_of_a_function_of_the_script_is_state():
    script = Script(calls=calls)
    assert script.baseline.named == {}
    remembering("a").append(1)
    entries, arrays, unkept = script.save()
    assert unkept == {}
    remembering.__closure__[0].cell_contents.clear()
    Script(calls=calls).restore(entries, arrays)
    try:
        assert remembering("a") == ["a", 1]
        chosen.register(int, lambda value: 1)
        assert any("registry" in path for path in script.save()[2])
    finally:
        remembering.__closure__[0].cell_contents.clear()


def test_an_undo_brings_back_what_no_checkpoint_can_contain():
    holder = types.SimpleNamespace(call=os.getcwd, n=0)
    walked = Script(holder=holder).walk()
    kept, arrays = keep(walked, list(walked.slots), copies := [])[0], copies
    holder.call = print
    way = Restoration(kept, arrays, Script(holder=holder).walk(), own=True)
    way.check()
    way.apply()
    assert holder.call is os.getcwd


class Pair(ctypes.Structure):
    _fields_ = (("n", ctypes.c_int), ("values", ctypes.c_double * 3))


def filled(stream, content):
    stream.write(content)
    stream.seek(2)
    return stream


FIELDS = np.dtype([("name", "U3"), ("at", ">i4", (2,)), ("inner", [("a", "f4"), ("b", "?")])], align=True)
# What it is as training begins, and what changes it in place.
CHANGES = {
    "array.array": (lambda: array.array("d", [1.0]), lambda it: it.append(2.0)),
    "array of letters": (lambda: array.array("u", "ab"), lambda it: it.append("c")),
    "StringIO": (io.StringIO, lambda it: filled(it, "words\n")),
    "BytesIO": (lambda: io.BytesIO(b"12345678"), lambda it: filled(it, b"abc")),
    "texts": (lambda: np.array(["a", "bcd"]), lambda it: it.__setitem__(0, "xyz")),
    "bytes": (lambda: np.array([b"a", b"bcd"]), lambda it: it.__setitem__(0, b"xyz")),
    "another order of bytes": (lambda: np.zeros(3, ">i4"), lambda it: it.__setitem__(1, 258)),
    "dates": (lambda: np.array(["2020-01-01"], "M8[D]"), lambda it: it.__setitem__(0, "2021-02-03")),
    "fields": (lambda: np.zeros(2, FIELDS), lambda it: it.__setitem__(1, ("abc", [3, 4], (0.5, True)))),
    "records": (lambda: np.rec.array([(1, 2.0)], "i4,f8"), lambda it: it.__setitem__(0, (7, 8.0))),
    "objects": (lambda: np.array([None, "a", 3], object), lambda it: it.__setitem__(0, [1, {"b": 2}])),
    "masked": (lambda: np.ma.array([1.0, 2.0], mask=[0, 1]), lambda it: it.__setitem__(slice(None), [5.0, 6.0])),
    "mask": (lambda: np.ma.array([1.0, 2.0]), lambda it: it.__setitem__(1, np.ma.masked)),
    "local": (threading.local, lambda it: setattr(it, "n", 5)),
    "ctypes number": (lambda: ctypes.c_int(3), lambda it: setattr(it, "value", 4)),
    "ctypes array": (ctypes.c_double * 4, lambda it: it.__setitem__(2, 0.5)),
    "ctypes structure": (Pair, lambda it: it.values.__setitem__(1, 0.25)),
    "shared number": (lambda: multiprocessing.Value("d", 1.0), lambda it: setattr(it, "value", 2.5)),
    "raw shared number": (lambda: multiprocessing.RawValue("q", 1), lambda it: setattr(it, "value", 1 << 40)),
    "shared array": (lambda: multiprocessing.Array("i", 3), lambda it: it.__setitem__(1, 9)),
}  # fmt: skip


def content(value):
    """Return what a value of CHANGES contains, as something that can be compared."""
    if isinstance(value, (io.StringIO, io.BytesIO)):
        return value.getvalue(), value.tell()
    if isinstance(value, np.ma.MaskedArray):
        return value.filled().tolist(), np.ma.getmaskarray(value).tolist()
    if isinstance(value, np.ndarray):
        return value.dtype, value.tolist() if value.dtype == object else value.tobytes()
    if isinstance(value, threading.local):
        return dict(vars(value))
    value = value.get_obj() if hasattr(value, "get_obj") else value
    return value.tolist() if isinstance(value, array.array) else bytes(value)


@pytest.mark.filterwarnings("ignore:The 'u' type code is deprecated")
@pytest.mark.parametrize("name", CHANGES)
def test_what_the_standard_library_and_numpy_hold_comes_back_into_the_same_object(name):
    make, change = CHANGES[name]
    first, second = types.SimpleNamespace(one=make(), n=0), types.SimpleNamespace(one=make(), n=0)
    first.other, second.other = first.one, second.one
    script = Script(holder=first)
    assert script.baseline.named == {}
    change(first.one)
    entries, arrays, unkept = script.save()
    assert unkept == {}
    assert content(first.one) != content(second.one)
    held = second.one
    Script(holder=second).restore(entries, arrays)
    assert second.one is second.other is held
    assert content(second.one) == content(first.one)


@pytest.mark.filterwarnings("ignore:The 'u' type code is deprecated")
@pytest.mark.parametrize(
    "name", [name for name in CHANGES if not name.startswith(("ctypes", "shared", "raw", "local"))]
)
def test_it_comes_back_as_a_new_object_too_if_it_was_made_while_training(name):
    make, change = CHANGES[name]
    first, second = types.SimpleNamespace(one=None), types.SimpleNamespace(one=None)
    script = Script(holder=first)
    first.one = make()
    change(first.one)
    entries, arrays, unkept = script.save()
    assert unkept == {}
    Script(holder=second).restore(entries, arrays)
    assert type(second.one) is type(first.one)
    assert content(second.one) == content(first.one)


def test_what_cannot_be_read_is_named_and_its_change_is_seen(tmp_path):
    mapped = np.memmap(tmp_path / "mapped", np.float32, "w+", shape=3)
    holder = types.SimpleNamespace(
        checksum=hashlib.sha256(), any_length=hashlib.shake_128(), pointer=ctypes.pointer(ctypes.c_int(1)),
        odd=np.array([print, types.SimpleNamespace()], object), mapped=mapped,
        read=np.memmap(tmp_path / "mapped", np.float32, "r", shape=3),
    )  # fmt: skip
    script = Script(holder=holder)
    named = {"holder.checksum", "holder.any_length", "holder.odd", "holder.mapped", "holder.pointer"}
    assert set(script.baseline.named) == named
    assert script.save()[2] == {}
    holder.checksum.update(b"a")
    holder.any_length.update(b"a")
    holder.odd[0] = 1
    assert set(script.save()[2]) == {"holder.checksum", "holder.any_length", "holder.odd"}


@pytest.mark.costly
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


@pytest.mark.costly
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
