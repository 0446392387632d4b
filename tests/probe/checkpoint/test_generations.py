"""Generations on disk: a kill at any instant, a damaged byte or a full disk costs at most the newest one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from stallguard.probe import wire
from stallguard.probe.checkpoint import generations
from stallguard.probe.checkpoint.generations import CheckpointStore
from tests.probe.receiver import ROOT

WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from stallguard.probe.checkpoint.generations import CheckpointStore
store, number = CheckpointStore(sys.argv[2]), 0
while True:
    number += 1
    store.write({"number": number}, [bytes([number % 256]) * 200_000] * 3)
    print(number, flush=True)
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def newest(store):
    """Return (facts, blobs, complaints about damaged ones passed over), None if none verifies."""
    complaints = []
    found = next(store.found(complaints), None)
    return None if found is None else (*found, complaints)


def written(folder, count):
    store = CheckpointStore(str(folder))
    for number in range(1, count + 1):
        store.write({"number": number}, [bytes([number]) * 1000, b""])
    return store


def test_what_is_written_comes_back(tmp_path):
    facts, blobs, complaints = newest(written(tmp_path, 1))
    assert facts.pop("made") == pytest.approx(time.time(), abs=60)
    assert facts == {"number": 1, "next": {}}
    assert [bytes(blob) for blob in blobs] == [b"\x01" * 1000, b""]
    assert complaints == []


def test_two_generations_are_kept_and_nothing_else(tmp_path):
    written(tmp_path, 5)
    assert names(tmp_path) == ["CURRENT", "g4", "g5"]


def test_nothing_written_is_nothing_found(tmp_path):
    assert newest(CheckpointStore(str(tmp_path / "none"))) is None


@pytest.mark.parametrize("name", ["tensors.bin", "facts.json"])
def test_one_flipped_bit_falls_back_to_the_generation_before_with_a_word(tmp_path, name):
    store = written(tmp_path, 3)
    path = tmp_path / "g3" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    facts, _, complaints = newest(store)
    assert facts["number"] == 2
    assert "g3 is damaged" in complaints[0]


@pytest.mark.parametrize("name", ["tensors.bin", "facts.json"])
@pytest.mark.parametrize("kept", [0, 1, -1])
def test_a_file_cut_short_falls_back_too(tmp_path, name, kept):
    store = written(tmp_path, 2)
    path = tmp_path / "g2" / name
    path.write_bytes(path.read_bytes()[:kept])
    assert newest(store)[0]["number"] == 1


def test_all_damaged_is_nothing_found(tmp_path):
    store = written(tmp_path, 2)
    for name in ("g1", "g2"):
        (tmp_path / name / "tensors.bin").unlink()
    assert newest(store) is None


@pytest.mark.parametrize("pointer", [None, "", "g99", "\xff"])
def test_a_pointer_that_points_nowhere_means_the_newest(tmp_path, pointer):
    store = written(tmp_path, 3)
    (tmp_path / "CURRENT").unlink()
    if pointer is not None:
        (tmp_path / "CURRENT").write_bytes(pointer.encode("latin-1"))
    assert newest(store)[0]["number"] == 3


def test_what_a_killed_writer_left_is_neither_read_nor_kept(tmp_path):
    store = written(tmp_path, 1)
    (tmp_path / "tmp-g2-4711").mkdir()
    (tmp_path / "tmp-g2-4711" / "tensors.bin").write_bytes(b"half")
    assert newest(store)[0]["number"] == 1
    store.write({"number": 2}, [])
    assert names(tmp_path) == ["CURRENT", "g1", "g2"]


def test_a_full_disk_is_an_error_and_leaves_what_was_there(tmp_path, monkeypatch):
    store = written(tmp_path, 2)
    before = names(tmp_path)
    monkeypatch.setattr(generations, "SPARE", 1 << 62)
    with pytest.raises(OSError, match="no room for a checkpoint"):
        store.write({"number": 3}, [b"x"])
    assert names(tmp_path) == before
    assert newest(store)[0]["number"] == 2


def test_a_write_that_fails_half_way_leaves_no_trace(tmp_path):
    store = written(tmp_path, 1)
    with pytest.raises(TypeError):
        store.write({"number": object()}, [b"x"])
    assert names(tmp_path) == ["CURRENT", "g1"]


@pytest.mark.costly
def test_a_writer_killed_at_any_instant_leaves_a_generation_that_verifies(tmp_path):
    """Fifteen kills, spread over the milliseconds that a write takes."""
    for trial in range(15):
        folder = tmp_path / str(trial)
        command = [sys.executable, "-c", WRITER, str(ROOT), str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            for _ in range(3):
                child.stdout.readline()
            time.sleep(trial * 0.0007)
            child.send_signal(signal.SIGKILL)
            said = [3, *(int(line) for line in child.stdout.read().split())]
        facts, blobs, _ = newest(CheckpointStore(str(folder)))
        assert facts["number"] >= said[-1]  # what was said to be written is there
        assert bytes(blobs[2]) == bytes([facts["number"] % 256]) * 200_000


def test_facts_are_one_line_of_checksum_and_one_of_json(tmp_path):
    written(tmp_path, 1)
    check, text = (tmp_path / "g1" / "facts.json").read_text().split("\n")
    assert len(check) == 8
    assert json.loads(text)["number"] == 1


def test_the_newest_generation_made_between_two_epochs_is_kept_beside_the_newest_two(tmp_path):
    store = CheckpointStore(str(tmp_path))
    for number in range(1, 8):
        store.write({"number": number}, [b"x"], between_epochs=number in (1, 3))
    assert names(tmp_path) == ["BETWEEN_EPOCHS", "CURRENT", "g3", "g6", "g7"]
    assert [facts["number"] for facts, _ in store.found([])] == [7, 6, 3]


def test_what_is_seen_later_is_found_with_its_generation(tmp_path):
    store = CheckpointStore(str(tmp_path))
    name = store.write({"number": 1}, [])
    store.annotate(name, {"3:4": "abc"})
    assert newest(store)[0]["next"] == {"3:4": "abc"}
    (tmp_path / name / "next.json").write_text("half")
    assert newest(store)[0]["next"] == {}
    with pytest.raises(OSError, match="g9"):
        store.annotate("g9", {})


@pytest.mark.costly
def test_reading_takes_no_copy_of_the_tensors(tmp_path):
    size = 64 << 20
    CheckpointStore(str(tmp_path)).write({}, [bytes(size)])
    code = f"""
import sys, resource
sys.path.insert(0, {str(ROOT)!r})
from stallguard.probe.checkpoint.generations import CheckpointStore
facts, blobs = next(CheckpointStore({str(tmp_path)!r}).found([]))
assert len(blobs[0]) == {size}
dirty = [line for line in open("/proc/self/smaps_rollup") if line.startswith("Anonymous")]
print(int(dirty[0].split()[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < size >> 10, "kB of anonymous memory"


def test_the_newest_finite_generation_is_kept_and_so_is_the_newest_finite_one_between_two_epochs(tmp_path):
    store = CheckpointStore(str(tmp_path))
    for number, (finite, between) in enumerate(((True, True), (True, False), *[(False, True)] * 4), start=1):
        store.write({"number": number, "finite": finite}, [b"x"], between_epochs=between)

    assert [name for name in names(tmp_path) if name[0] == "g"] == ["g1", "g2", "g5", "g6"]
    assert [(tmp_path / name / wire.NOT_FINITE).exists() for name in ("g1", "g2", "g5", "g6")] == [
        False, False, True, True,
    ]  # fmt: skip
    assert store.finite()[0]["number"] == 2

    store.write({"number": 7, "finite": True}, [b"x"], between_epochs=True)
    assert [name for name in names(tmp_path) if name[0] == "g"] == ["g6", "g7"]
    assert store.finite()[0]["number"] == 7
