"""A checkpoint that somebody else wrote runs nothing: it brings values, and functions only of known kinds."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from stallguard.probe.checkpoint import encoding, names, random_state, tensors
from stallguard.probe.checkpoint.encoding import NotPlain, decode, encode
from stallguard.probe.checkpoint.generations import CheckpointStore
from stallguard.probe.checkpoint.object_state import NoPlace, Restoration
from stallguard.probe.checkpoint.object_walk import Walk
from stallguard.probe.checkpoint.saved_generation import AttemptRecords
from tests.probe.checkpoint.test_object_state import Callback

GADGETS = (
    "os:system", "posix:system", "builtins:eval", "builtins:exec", "builtins:__import__", "builtins:getattr",
    "builtins:open", "subprocess:Popen", "subprocess:call", "shutil:rmtree", "pickle:loads", "os.path:os.system",
    "operator:methodcaller", "operator:call", "numpy:load", "numpy:save", "numpy:fromfile", "functools:partial",
    "ctypes:CDLL", "importlib:import_module", "numpy:nothing", "nowhere:at_all", f"{__name__}:system",
)  # fmt: skip
system = os.system  # a script has it after `from os import system`


class Harmful:
    """A pickle of it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "executed"


@pytest.mark.parametrize("name", GADGETS)
def test_no_name_of_a_function_is_called_or_brought(mark: Path, name: str) -> None:
    assert sys.modules["os"] is os  # what is named is loaded
    text = f"touch {mark}"
    for code in (
        {"#": "value", "of": name, "at": text},
        {"#": "value", "of": f"pathlib:PosixPath.{name}", "at": text},
        {"#": "name", "at": name},
        {"#": "member", "of": name, "at": "__call__"},
        {"#": "member", "of": "os:environ", "at": "clear"},
        {"#": "defaultdict", "factory": name, "at": []},
        {"#": name, "of": name, "at": text},
        [[{"#": "dict", "at": [["a", {"#": "name", "at": name}]]}]],
    ):
        with pytest.raises((NotPlain, LookupError)):
            decode(code, [])
    assert encoding.refused([1, {"a": {"#": "name", "at": name}}]) == name
    assert not mark.exists()


@pytest.mark.parametrize("name", ["test", "seed", "Generator", "__builtins__", "set_state", 7])
def test_no_function_of_numpys_random_module_is_called(name) -> None:
    before = np.random.get_state()[1].tolist()  # noqa: NPY002 - the generator that scripts use
    for kind, state in (
        (f"numpy:{name}", (1, 2, 3)), ("numpy:Generator", {"bit_generator": name, "state": {}}), (name, ()),
    ):  # fmt: skip
        with pytest.raises((LookupError, TypeError, ValueError)):
            random_state.write(kind, state, None)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_functions_of_numbers_types_and_the_scripts_own_come_back() -> None:
    for value in (
        np.less,
        np.float32,
        min,
        list,
        Callback,
        test_functions_of_numbers_types_and_the_scripts_own_come_back,
    ):
        assert names.can_be_kept(value), value
        assert decode(encode(value, []), []) is value


@pytest.mark.parametrize(
    "record",
    [
        {"k": "plain", "v": {"#": "name", "at": "os:system"}},
        {"k": "structure", "of": "subprocess:Popen"},
        {"k": "structure", "of": "tempfile:_TemporaryFileCloser"},
        {"k": "structure", "of": "os:system"},
    ],
)
def test_no_entry_of_a_checkpoint_replaces_code(record) -> None:
    callback, walk = Callback(), Walk()
    walk.enter(callback, "callback")
    before = callback.plain
    way = Restoration([["callback.plain", "callback", "attribute", "plain", record]], [], walk)
    with pytest.raises(NoPlace):
        way.check()
    with pytest.raises(NoPlace) if record["k"] == "plain" else contextlib.nullcontext():
        way.apply()  # a second wall
    assert callback.plain == before


def test_no_entry_changes_a_module_of_a_library() -> None:
    entry = ["global os.sep", "module os", "entry", "sep", {"k": "plain", "v": "evil"}]
    with pytest.raises(NoPlace):
        Restoration([entry], [], Walk()).check()
    Restoration([entry], [], Walk()).apply()
    assert os.sep != "evil"


def test_an_own_undo_brings_back_any_function() -> None:
    callback, walk = Callback(), Walk()
    callback.writer = None
    walk.enter(callback, "callback")
    entry = ["callback.writer", "callback", "attribute", "writer", {"k": "plain", "v": encode(json.dumps, [])}]
    Restoration([entry], [], walk, own=True).apply()
    assert callback.writer is json.dumps


@pytest.mark.parametrize("file", ["tensors.bin", "facts.json", "next.json", "model.keras", "state.npz", "state.pkl"])
def test_a_pickle_in_a_checkpoint_is_never_loaded(tmp_path: Path, mark: Path, file: str) -> None:
    store = CheckpointStore(str(tmp_path / "process" / "fit-0001"))
    store.write({"format": 2}, [memoryview(b"12345678")])
    place = tmp_path / "process" / "fit-0001" / "g1" / file
    if file.endswith("npz"):
        np.savez(place, a=np.array([Harmful(mark)], dtype=object))
    else:
        place.write_bytes(pickle.dumps(Harmful(mark)))
    complaints: list[str] = []
    found = list(AttemptRecords(str(tmp_path), "process", resuming=True).found(1, complaints))

    assert not mark.exists()
    assert found == []
    assert complaints


def test_an_array_of_objects_is_refused() -> None:
    with pytest.raises(ValueError, match=r"(?i)object"):
        tensors.unpack([["object", [1]]], [memoryview(b"12345678")])


@pytest.mark.parametrize("name", ["CURRENT.tmp", "g1/next.json.tmp"])
def test_a_link_in_the_checkpoints_is_not_written_through(tmp_path: Path, name: str) -> None:
    store = CheckpointStore(str(tmp_path / "fit"))
    store.write({"format": 2}, [])
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "fit" / name).symlink_to(mine)
    write = store.write if name.startswith("CURRENT") else lambda facts, _blobs: store.annotate("g1", facts)
    with pytest.raises(OSError, match="symbolic"):
        write({"format": 2}, [])
    assert mine.read_text() == "mine"
