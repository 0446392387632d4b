"""Objects of libraries whose state no attribute shows come back as a whole, or are named; and only their own user's."""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import datetime
import dbm.dumb
import decimal
import fractions
import functools
import ipaddress
import itertools
import json
import os
import pickle
import queue
import re
import sqlite3
import statistics
import threading
import types
import weakref
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path
from typing import NamedTuple

import attrs
import numpy as np
import pandas as pd
import pydantic
import pytest

from stallguard.probe import settings
from stallguard.probe.checkpoint import announcements, object_walk, pickled
from stallguard.probe.checkpoint.object_state import NoPlace, Restoration, keep
from stallguard.probe.settings import ProbeSettings
from tests.probe.checkpoint.test_object_state import Script

pytestmark = pytest.mark.usefixtures("key")


class Dict(dict):
    pass


class List(list):
    pass


class Set(set):
    pass


class Frame(pd.DataFrame):
    pass


class Pair(NamedTuple):
    a: int
    b: int


class Failed(Exception):
    pass


class Model(pydantic.BaseModel):
    n: int = 0
    many: list = []


@attrs.define
class Attrs:
    n: int = 0


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int = 0
    name: str = "a"


class Private:
    __slots__ = ("__n",)

    def __init__(self):
        self.__n = 0

    def count(self):
        self.__n += 1

    def __repr__(self):
        return f"Private({self.__n})"


def also(change):
    """Return a change that sets an attribute, too."""

    def both(value):
        change(value)
        value.more = 5

    return both


def table():
    return pd.DataFrame({"loss": [1.0]})


# What it is as training begins; what changes it in place; what shows its state.
IN_PLACE = {
    "table": (table, lambda it: it.__setitem__("b", [5.0]), repr),
    "row of a table": (table, lambda it: it.loc.__setitem__(3, [9.0]), repr),
    "table of the script": (lambda: Frame({"a": [1.0]}), lambda it: it.__setitem__("b", [5.0]), repr),
    "large table": (
        lambda: pd.DataFrame(np.zeros((300, 400))), lambda it: it.__setitem__(3, 5.0), lambda it: it.sum().tolist(),
    ),
    "large table by columns": (
        lambda: pd.DataFrame(np.zeros((300, 400), order="F")), lambda it: it.loc.__setitem__(3, 5.0),
        lambda it: (it.sum().tolist(), it.T.sum().tolist()),
    ),
    "column": (lambda: pd.Series([1.0, 2.0]), lambda it: it.__setitem__(0, 5.0), repr),
    "dictionary with attributes": (Dict, also(lambda it: it.update(a=1)), lambda it: (dict(it), vars(it))),
    "list with attributes": (List, also(lambda it: it.append(1)), lambda it: (list(it), vars(it))),
    "set with attributes": (Set, also(lambda it: it.add(1)), lambda it: (set(it), vars(it))),
    "pydantic": (Model, lambda it: (setattr(it, "n", 3), it.many.append(1)), repr),
    "attrs": (Attrs, lambda it: setattr(it, "n", 3), repr),
    "private slot": (Private, lambda it: it.count(), repr),
    "XML": (lambda: ET.Element("a"), lambda it: it.append(ET.Element("b")), ET.tostring),
    "UserDict": (collections.UserDict, lambda it: it.update(a=1), dict),
    "ChainMap": (lambda: collections.ChainMap({}), lambda it: it.update(a=1), dict),
    "queue": (queue.PriorityQueue, lambda it: it.put(1), lambda it: list(it.queue)),
    "event": (threading.Event, lambda it: it.set(), threading.Event.is_set),
    "semaphore": (lambda: threading.Semaphore(3), lambda it: it.acquire(), lambda it: it._value),
    "objects in a deque": (lambda: collections.deque([Attrs()], 3), lambda it: it.append(Attrs(5)), repr),
    "memory view": (lambda: memoryview(bytearray(3)), lambda it: it.__setitem__(0, 5), bytes),
    "seeds": (lambda: np.random.SeedSequence(3), lambda it: it.spawn(1), lambda it: it.n_children_spawned),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_changed_in_place_comes_back_into_the_same_object(name):
    make, change, look = IN_PLACE[name]
    first, second = types.SimpleNamespace(one=make()), types.SimpleNamespace(one=make())
    first.other, second.other = first.one, second.one
    script = Script(holder=first)
    assert script.baseline.named == {}
    change(first.one)
    entries, arrays, unkept = script.save()
    assert unkept == {}
    held, wanted = second.one, look(first.one)
    Script(holder=second).restore(entries, arrays)
    assert second.one is second.other is held
    assert look(second.one) == wanted


REPLACED = {
    "context of decimals": (decimal.Context(), decimal.Context(prec=5)),
    "named tuple": (Pair(1, 2), Pair(1, 3)),
    "error": (Failed("a"), Failed("b")),
    "index": (pd.Index([1]), pd.Index([1, 2])),
    "fraction": (fractions.Fraction(1, 2), fractions.Fraction(1, 3)),
    "address": (ipaddress.ip_address("1.1.1.1"), ipaddress.ip_address("1.1.1.2")),
    "duration": (datetime.timedelta(1), datetime.timedelta(2)),
    "pattern": (re.compile("a"), re.compile("b")),
    "range": (range(3), range(4)),
    "distribution": (statistics.NormalDist(), statistics.NormalDist(3)),
    "frozen": (Frozen(), Frozen(5)),
    "object": (Attrs(), Attrs(5)),
    "list": ([Attrs()], [Attrs(5), Attrs(6)]),
    "array": (np.zeros(3), np.ones(3)),
}


@pytest.mark.parametrize("name", REPLACED)
def test_what_took_the_place_of_another_does_not_change_the_other(name):
    """The other one can be a default that other places refer to."""
    before, after = REPLACED[name]
    first, second = (types.SimpleNamespace(one=before, other=before) for _ in range(2))
    script, wanted = Script(holder=first), (repr(after), repr(before))
    first.one = after
    entries, arrays, unkept = script.save()
    assert unkept == {}
    Script(holder=second).restore(entries, arrays)
    assert (repr(second.one), repr(second.other)) == wanted


def test_a_context_variable_has_its_value_again():
    first, second = contextvars.ContextVar("first", default=0), contextvars.ContextVar("second", default=0)
    script = Script(holder=types.SimpleNamespace(one=first))
    first.set(5)
    entries, arrays, _ = script.save()
    Script(holder=types.SimpleNamespace(one=second)).restore(entries, arrays)
    assert second.get() == 5


def test_an_undo_puts_the_same_objects_back():
    first, second = types.SimpleNamespace(one=Attrs()), types.SimpleNamespace(one=Attrs())
    script = Script(holder=first)
    first.one = Attrs(5)
    entries, arrays, _ = script.save()
    again, held = Script(holder=second), second.one
    way = Restoration(entries, arrays, again.before)
    way.apply()
    assert second.one is not held
    way.put_back()
    assert second.one is held
    assert held.n == 0


@functools.cache
def cached(n):
    return n


UNREADABLE = {
    "lambda of a database": lambda: sqlite3.connect(":memory:"),
    "compressor": zlib.compressobj,
    "queue in C": queue.SimpleQueue,
    "thread": lambda: threading.Thread(target=print),
    "cache of a function": lambda: cached,
    "weak dictionary": weakref.WeakValueDictionary,
    "iterator": itertools.count,
    "another machine's": lambda: types.SimpleNamespace(connection=sqlite3.connect(":memory:")).connection,
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_named(name):
    made = UNREADABLE[name]()
    script = Script(holder=types.SimpleNamespace(one=made))
    if hasattr(made, "close"):
        made.close()
    assert list(script.baseline.named) == ["holder.one"]


def test_what_has_a_hash_of_its_value_is_replaced_because_a_cache_can_have_it():
    first = ipaddress.ip_address("10.0.0.1")
    before, after = types.SimpleNamespace(one=first), types.SimpleNamespace(one=first)
    script = Script(holder=before)
    before.one = ipaddress.ip_address("10.0.0.2")
    entries, arrays, _ = script.save()
    for entry in entries:
        entry[4]["new"] = False  # as in an undo
    Script(holder=after).restore(entries, arrays)
    assert [str(after.one), str(first)] == ["10.0.0.2", "10.0.0.1"]


class Named(pd.Series):
    def __hash__(self):
        return id(self)


def test_what_has_a_hash_of_its_identity_is_changed_in_place():
    before, after = types.SimpleNamespace(one=Named([1.0])), types.SimpleNamespace(one=Named([1.0]))
    script, held = Script(holder=before), after.one
    before.one[0] = 2.0
    entries, arrays, _ = script.save()
    Script(holder=after).restore(entries, arrays)
    assert after.one is held
    assert held.tolist() == [2.0]


def test_an_object_in_a_whole_one_that_is_also_elsewhere_is_not_doubled():
    frame, values = table(), [1.0]
    frame.attrs["values"] = values
    after = Script(holder=types.SimpleNamespace(frame=frame, values=values))
    assert after.baseline.named == {"holder.frame": "shared with holder.values"}
    values.append(2.0)
    assert list(after.save()[2]) == ["holder.frame"]

    before = Script(holder=types.SimpleNamespace(a=values, frame=frame))
    values.append(3.0)
    entries, arrays, _ = before.save()
    again, back = [1.0, 2.0], table()
    back.attrs["values"] = again
    Script(holder=types.SimpleNamespace(a=again, frame=back)).restore(entries, arrays)
    assert back.attrs["values"] is again
    assert again == values


def test_what_ends_something_when_it_goes_is_not_copied(tmp_path):
    """A copy of a database of dbm.dumb has a pickle, and closes the one that exists when it goes."""
    with dbm.dumb.open(str(tmp_path / "words"), "n") as database:
        assert list(Script(holder=types.SimpleNamespace(one=database)).baseline.named) == ["holder.one"]


def test_what_is_larger_than_a_checkpoint_takes_is_not_written(monkeypatch):
    script = Script(holder=types.SimpleNamespace(one=pd.DataFrame({"a": np.zeros(1 << 18)})))
    script.roots["holder"].one.loc[0] = 1.0
    walked = script.walk()
    monkeypatch.setattr(pickled, "dump", None)
    entries, unkept = keep(walked, script.baseline.changed(walked), [], 1 << 20)
    assert entries == []
    assert unkept == {"holder.one": "2 MB"}


def test_an_object_of_compiled_code_takes_its_state_into_the_one_that_exists():
    existing, made = ET.Element("a"), ET.Element("b")
    assert pickled.restored(existing, made) is existing
    assert existing.tag == "b"


def test_what_is_larger_than_the_time_allows_is_named_with_its_size():
    large = pd.DataFrame({"a": np.zeros(1 << 20)})
    walked = object_walk.Walk(deadline=0.0)
    walked.enter(types.SimpleNamespace(one=large), "holder")
    assert "MB" not in announcements.unread("holder.one", walked.unread["holder.one"])  # it is not known
    again = object_walk.Walk(walked.reads, deadline=0.0)
    again.enter(types.SimpleNamespace(one=large), "holder")
    assert "holder.one" in again.unread


# ---- another user's -----------------------------------------------------------------------------------------


def saved():
    holder = types.SimpleNamespace(one=table())
    script = Script(holder=holder)
    holder.one.loc[1] = [2.0]
    return script.save()[:2]


class Harmful:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("forged", ["content", "key", "signature", "no key"])
def test_a_pickle_that_this_user_did_not_sign_is_not_loaded(tmp_path, key, monkeypatch, forged):
    entries, arrays = saved()
    mark = tmp_path / "executed"
    record = next(record for *_, record in entries if record["k"] == "whole")
    if forged == "content":
        arrays[record["v"]["at"]] = np.frombuffer(pickle.dumps(Harmful(mark)), np.uint8)
    elif forged == "key":
        key.unlink()
        other = tmp_path / "other.key"
        other.write_bytes(os.urandom(32))
        other.chmod(0o600)
        monkeypatch.setenv(settings.VARIABLE, settings.encode(ProbeSettings(key=str(other))))
    elif forged == "signature":
        record["signed"] = "0" * 64
    else:
        monkeypatch.delenv(settings.VARIABLE)
    way = Restoration(json.loads(json.dumps(entries)), arrays, Script(holder=types.SimpleNamespace(one=table())).before)
    with pytest.raises(NoPlace, match="can run code"):
        way.check()
    with pytest.raises(NoPlace):
        way.apply()  # a second wall
    assert not mark.exists()


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o606])
def test_a_key_that_others_can_read_signs_nothing_and_the_object_is_named(key, mode):
    key.chmod(mode)
    assert not pickled.is_possible()
    assert list(Script(holder=types.SimpleNamespace(one=re.compile("a"))).baseline.named) == ["holder.one"]


@pytest.mark.parametrize("content", [b"", b"short"])
def test_a_key_that_can_be_guessed_signs_nothing(key, content):
    key.write_bytes(content)
    assert not pickled.is_possible()
