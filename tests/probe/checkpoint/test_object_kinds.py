"""What the class of an object shows: memory that no attribute shows, no state at all, a lock, a pipe."""

from __future__ import annotations

import collections
import os
import queue
import re
import sqlite3
import threading
import types
import zlib

import numpy as np
import pandas as pd
import pytest

from stallguard.probe.checkpoint import object_kinds
from tests.probe.checkpoint.test_object_state import Script
from tests.probe.checkpoint.test_pickled import Attrs, Dict, Failed, Frozen, Model, Pair, Private

pytestmark = pytest.mark.usefixtures("key")


def test_the_two_ends_of_a_pipe_are_named_and_two_other_numbers_are_not():
    ends = os.pipe()
    holder = types.SimpleNamespace(pipe=ends, inside=[{"ends": ends}], size=ends[::-1], one=(ends[0], 999))
    named = Script(holder=holder).baseline.named
    for one in ends:
        os.close(one)
    assert named == {"holder.pipe": "a pipe"}  # the second place is a name of the first
    assert Script(holder=types.SimpleNamespace(pipe=ends)).baseline.named == {}


def test_a_lock_that_is_held_is_seen():
    holder = types.SimpleNamespace(one=threading.Lock())
    script = Script(holder=holder)
    assert script.baseline.named == {}
    with holder.one:
        assert list(script.save()[2]) == ["holder.one"]
    assert script.save()[2] == {}


@pytest.mark.parametrize(
    ("kind", "hides"),
    [
        (Attrs, False), (Frozen, False), (Private, False), (collections.UserDict, False), (pd.DataFrame, False),
        (threading.Event, False), (types.SimpleNamespace, False), (Model, False),
        (dict, True), (Dict, True), (Pair, True), (Failed, True), (int, True), (re.Pattern, True),
        (sqlite3.Connection, True),
        (threading.local, True), (memoryview, True), (queue.SimpleQueue, True), (np.ndarray, True),
        (zlib.compressobj, True),
    ],
)  # fmt: skip
def test_memory_of_compiled_code_is_seen_by_the_size_of_its_objects(kind, hides):
    kind = kind if isinstance(kind, type) else type(kind())
    assert object_kinds.hides_state(kind) is hides


class Generator:
    """Has the name of a class of TensorFlow that has no state but its variables."""

    def __init__(self):
        self.connection = sqlite3.connect(":memory:")


def test_a_class_is_proven_by_its_package_and_not_by_its_name(monkeypatch):
    monkeypatch.setattr(Generator, "__module__", "another_library")
    made = Generator()
    assert list(Script(holder=types.SimpleNamespace(one=made)).baseline.named) == ["holder.one"]
    made.connection.close()
