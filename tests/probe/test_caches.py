"""What a library only keeps is given back if it is much more than what is in use; unknown readings do nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

from stallguard.probe import caches, libraries, wire
from stallguard.probe.frameworks import torch as record
from stallguard.probe.libraries import Library

from .frameworks.scenarios import guarded

GB = 10**9


class Context:
    """Takes what the probe's parts give to theirs."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str, dict[str, object]]] = []
        self.surprises: list[str] = []
        self.command = caches.CACHES

    def set(self, field: str, value: int) -> None:
        assert field == "command"
        self.command = value

    def note(self, kind: str, text: str, **facts: object) -> None:
        self.notes.append((kind, text, facts))

    def surprise(self, where: str, error: Exception) -> None:
        self.surprises.append(f"{where}: {error}")

    def own_work(self) -> Any:
        return contextlib.nullcontext()


class Allocator:
    """Holds and uses so many bytes; `left`: what it cannot give back."""

    def __init__(self, held: int, used: int, left: int = 0) -> None:
        self.sizes: tuple[int, int] | None = (held, used)
        self.left, self.emptied = left, 0

    def read(self) -> tuple[int, int] | None:
        return self.sizes

    def empty(self) -> None:
        assert self.sizes is not None
        self.emptied += 1
        self.sizes = (self.sizes[1] + self.left, self.sizes[1])


def asked(monkeypatch: pytest.MonkeyPatch, **allocators: Any) -> Context:
    """Return the context after an order to the libraries that have these allocators."""
    known = [Library("some", caches={name: (one.read, one.empty) for name, one in allocators.items()})]
    monkeypatch.setattr(libraries, "imported", lambda: known)
    context = Context()
    caches.give_back(context)  # type: ignore[arg-type]
    assert context.command == 0
    return context


def test_a_cache_much_larger_than_what_lives_is_emptied_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Allocator(72 * GB, 7 * GB, left=GB)
    context = asked(monkeypatch, MPS=cache)

    assert cache.emptied == 1
    text = "memory is short, and MPS held 72.00 GB for 7.00 GB in use: its cache was emptied, and 64.00 GB came back"
    assert context.notes == [("caches", text, {"bytes": 64 * GB})]


@pytest.mark.parametrize(("held", "used"), [(10 * GB, 6 * GB), (200_000_000, 1000), (0, 0)])
def test_a_cache_that_is_not_worth_it_stays(monkeypatch: pytest.MonkeyPatch, held: int, used: int) -> None:
    cache = Allocator(held, used)

    assert (asked(monkeypatch, MPS=cache).notes, cache.emptied) == ([], 0)


def test_what_cannot_be_read_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Allocator(0, 0)
    cache.sizes = None

    assert (asked(monkeypatch, MPS=cache).notes, cache.emptied) == ([], 0)


def test_an_error_is_counted_and_the_other_caches_are_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Allocator):
        def empty(self) -> None:
            raise RuntimeError("no device")

    other = Allocator(9 * GB, GB)
    context = asked(monkeypatch, CUDA=Broken(9 * GB, GB), MPS=other)

    assert context.surprises == ["the cache of CUDA: no device"]
    assert (len(context.notes), other.emptied) == (1, 1)


class Cuda:
    """A stand-in for torch.cuda with two GPUs, of which one shares the machine's memory."""

    started, capturing, integrated = True, False, (False, True)

    def is_initialized(self) -> bool:
        return self.started

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def device_count(self) -> int:
        return 2

    def get_device_properties(self, number: int) -> Any:
        return type("Properties", (), {"is_integrated": self.integrated[number]})

    def memory_reserved(self, number: int) -> int:
        return (50 * GB, 9 * GB)[number]

    def memory_allocated(self, number: int) -> int:
        return (GB, 2 * GB)[number]


@pytest.mark.parametrize(
    ("changed", "sizes"),
    [({}, (9 * GB, 2 * GB)), ({"started": False}, None), ({"capturing": True}, None), ({"integrated": (0, 0)}, None)],
)
def test_of_cuda_only_memory_of_the_machine_counts(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, object], sizes: object
) -> None:
    cuda = Cuda()
    vars(cuda).update(changed)
    monkeypatch.setitem(sys.modules, "torch", type("Torch", (), {"cuda": cuda}))

    assert record.LIBRARY.caches["PyTorch (CUDA)"][0]() == sizes


def test_metal_is_not_started_to_read_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mps:
        _default_mps_generator = None

        def driver_allocated_memory(self) -> int:
            raise AssertionError("this starts Metal")

    monkeypatch.setitem(sys.modules, "torch", type("Torch", (), {"mps": Mps()}))

    assert record.LIBRARY.caches["PyTorch (MPS)"][0]() is None


def test_the_order_is_one_of_the_record() -> None:
    assert wire.COMMANDS[caches.CACHES] == "caches"


@pytest.mark.parametrize("kind", ["loop", "keras"])
def test_a_training_of_torch_empties_its_cache_after_a_batch(other_python: Callable[[str], str], kind: str) -> None:
    heard = guarded(other_python("torch"), "torch_cache.py", kind, KERAS_BACKEND="torch")

    assert heard.out.splitlines()[-1] == "emptied after batch 5, once, by the thread that trains", heard.err
    [note] = [note for note in heard.notes if note["kind"] == "caches"]
    assert "PyTorch (MPS) held 72.00 GB for 7.00 GB in use" in note["text"]
    assert note["facts"]["bytes"] == str(65 * GB)
