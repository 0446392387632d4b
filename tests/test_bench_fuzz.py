"""Each decoder of outside data gets what once failed and a few hundred damaged inputs; the bench sees what is wrong."""

from __future__ import annotations

import importlib
import json
import struct
import subprocess
from pathlib import Path

import fuzz
import pytest

from stallguard.core.events import Heartbeat
from stallguard.probe import wire

messages = importlib.import_module("fuzzing.from_sockets")  # which the bench has on its path
record, NoFalseBeat = messages.record, messages.NoFalseBeat


@pytest.fixture(scope="module")
def results() -> list[fuzz.Result]:
    return fuzz.run(60, seed=3)


def test_every_decoder_holds(results: list[fuzz.Result]) -> None:
    assert {one.name: one.failures for one in results if one.failures} == {}
    assert all(one.inputs >= 60 for one in results)


def test_each_input_that_once_failed_has_its_decoder(results: list[fuzz.Result]) -> None:
    assert set(json.loads(fuzz.CORPUS.read_bytes())) <= {one.name for one in results}


def test_many_records_count_no_false_beat() -> None:
    [one] = fuzz.run(3000, seed=4, only="wire record")

    assert one.failures == []


@pytest.fixture
def watch() -> fuzz.Watch:
    return fuzz.the_watch()


def failures(call, watch: fuzz.Watch, errors=(), check=None) -> str:
    one = fuzz.fuzz(fuzz.Target("x", [b"valid 1"], call, errors, check), 20, 1, watch)
    return "".join(one.failures[:1])


def test_an_error_that_is_not_documented_is_seen(watch: fuzz.Watch) -> None:
    assert failures(int, watch).startswith("ValueError")
    assert failures(int, watch, (ValueError,)) == ""


def test_a_decoder_that_takes_long_is_seen(watch: fuzz.Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SLOW", 0.01)
    assert "takes" in failures(lambda _data: sum(range(3_000_000)), watch)


@pytest.mark.costly
def test_a_decoder_that_never_ends_is_ended(watch: fuzz.Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_data: bytes) -> None:
        while True:
            pass

    monkeypatch.setattr(fuzz, "HANG", 0.2)
    before = fuzz.signal.signal(fuzz.signal.SIGVTALRM, fuzz._ended)
    try:
        assert failures(endless, watch).startswith("hangs")
    finally:
        fuzz.signal.signal(fuzz.signal.SIGVTALRM, before)


def test_a_decoder_that_starts_or_removes_something_is_seen(watch: fuzz.Watch, tmp_path: Path) -> None:
    def remove(data: bytes) -> None:
        (tmp_path / "x").write_bytes(data)
        (tmp_path / "x").unlink()

    assert "does subprocess.Popen" in failures(lambda _data: subprocess.run(["true"], check=True), watch)
    assert "does os.remove" in failures(remove, watch)


def test_a_false_beat_is_seen() -> None:
    good, beat = record(), [Heartbeat(at=1.0, attempt=1, pid=4321, beats=900)]
    check = NoFalseBeat()
    check(good, beat)
    check(record(beats=901), beat)  # posted late
    with pytest.raises(AssertionError):
        check(good, [Heartbeat(at=1.0, attempt=1, pid=4321, beats=902)])
    for data in (good[:-8], good + b"x", changed(good, "token", 1), changed(good, "pid", 0), changed(good, "kind", 9)):
        with pytest.raises(AssertionError):
            NoFalseBeat()(data, beat)


def changed(data: bytes, name: str, value: int) -> bytes:
    copy = bytearray(data)
    struct.pack_into("<q", copy, wire.SLOT[name] * 8, value)
    return bytes(copy)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("magic", 0), ("pid", 0), ("pid", -1), ("pid", 1 << 31), ("beats", -1), ("kind", 5), ("phase", 14), ("wait", 9),
        ("source", 11),
    ],
)  # fmt: skip
def test_a_record_that_is_not_sound_is_none(name: str, value: int) -> None:
    assert wire.unpack(record()) is not None
    assert wire.unpack(changed(record(), name, value)) is None
    assert wire.unpack(record() + b"x") is None
    assert wire.unpack(record()[:-1]) is None


def test_a_seed_gives_the_same_inputs_each_time() -> None:
    one, other, third = (list(fuzz.Mutator([b"abc 1"], seed).inputs(200)) for seed in (1, 1, 2))

    assert one == other != third
    assert len(set(one)) > 100
