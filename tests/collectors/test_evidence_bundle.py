"""Evidence of a real stuck process is gathered, and the process goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import msgspec
import psutil
import pytest

from stallguard.collectors import Collector, collector_registry, evidence_bundle
from stallguard.collectors.surroundings import tail
from stallguard.probe import wire
from stallguard.storage import run_files
from tests.collectors.stuck import LONG, SECRET, context, item

# ---- what is gathered ------------------------------------------------------------------------------------------


def test_a_deadlock_is_reported_with_the_line_of_the_script(stuck):
    process = stuck("lock")
    began = time.monotonic()
    collected = evidence_bundle.collect(process.context())
    assert time.monotonic() - began < 5
    assert collected.where == process.at("it.acquire()  # here", "lock")
    assert collected.missing == ()
    if sys.platform == "linux":
        assert collected.stacks == ("lock",)


@pytest.mark.parametrize(("kind", "where"), [("gil", "in gil"), ("spin", "in spin")])
def test_stacks_come_with_the_interpreters_lock_held_and_from_a_spinning_thread(stuck, kind, where):
    assert evidence_bundle.collect(stuck(kind).context()).where.endswith(where)


def test_the_bundle_is_complete_and_holds_no_secret(stuck):
    process = stuck("lock")
    (process.run / "output.log").write_text(f"Epoch 1\nusing key {SECRET} from /home/ada/.netrc\n")
    (process.run / "journal.jsonl").write_text('{"kind": "event"}\n' * 3)
    manifest = evidence_bundle.gather(process.context(include_source=True, script=process.script))
    directory = process.run / "incidents" / "1"
    names = {path.name for path in directory.iterdir()}
    assert {"stacks.txt", "output.txt", "journal.jsonl", "environment.json", "versions.json", "processes.json",
            "source-train.py", "manifest.json"} <= names  # fmt: skip
    if sys.platform == "linux":
        assert {"threads.txt", "maps.txt", "files.txt"} <= names
    for path in directory.iterdir():
        assert SECRET.encode() not in path.read_bytes(), path.name
    announced = json.loads((directory / "manifest.json").read_bytes())
    assert announced["removed"]["known"] >= 1
    assert announced["removed"]["home"] >= 1
    assert {file["name"] for each in announced["items"] for file in each.get("files", ())} == names - {"manifest.json"}
    assert manifest.size == sum(path.stat().st_size for path in directory.iterdir() if path.name != "manifest.json")


def test_the_scripts_text_is_taken_only_where_that_is_wanted(stuck):
    process = stuck("lock")
    manifest = evidence_bundle.gather(process.context(script=process.script))
    assert item(manifest, "source").state == "nothing"
    assert not (process.run / "incidents/1/source-train.py").exists()


@pytest.mark.parametrize("moves", [False, True])
def test_a_second_dump_tells_whether_it_moved(stuck, moves):
    process = stuck("reads")

    def push(*_):
        process.process.stdin.write(b"x" if moves else b"")
        process.process.stdin.flush()

    collectors = [
        Collector("stacks", collector_registry.python_stacks, LONG, 10_000, first=True),
        Collector("push", push, LONG, 1, first=True),
        Collector("stacks-again", collector_registry.stacks_again, LONG, 10_000),
    ]
    assert evidence_bundle.gather(process.context(again=0.1), collectors).moved is moves


@pytest.mark.waits
def test_the_count_of_batches_decides_where_the_stacks_are_the_same(stuck):
    process = stuck("lock")
    values = [wire.MAGIC] + [0] * (wire.SLOTS - 1)
    values[wire.SLOT["pid"]] = process.process.pid
    page = process.stacks.with_suffix(".page")

    def train(*_):
        values[wire.SLOT["beats"]] += 240
        page.write_bytes(wire.pack(values))

    train()
    collectors = [
        Collector("stacks", collector_registry.python_stacks, LONG, 10_000, first=True),
        Collector("train", train, LONG, 1, first=True),
        Collector("stacks-again", collector_registry.stacks_again, LONG, 10_000),
    ]
    assert evidence_bundle.gather(process.context(again=0.1), collectors).moved is True


def test_without_a_second_dump_it_is_unknown_whether_it_moved(stuck):
    assert evidence_bundle.gather(stuck("lock").context()).moved is None


def test_an_older_dump_in_the_file_is_not_taken_for_a_new_one(stuck):
    process = stuck("lock")
    process.stacks.write_text('Current thread 0x1 (most recent call first):\n  File "old.py", line 1 in <module>\n')
    assert evidence_bundle.gather(process.context()).where == process.at("it.acquire()  # here", "lock")
    assert "old.py" not in (process.run / "incidents/1/stacks.txt").read_text()


# ---- whom it must not hurt ------------------------------------------------------------------------------------------


def test_a_process_that_did_not_arm_the_signal_is_left_alone(tmp_path):
    plain = subprocess.Popen(["sleep", "60"])
    try:
        manifest = evidence_bundle.gather(context(tmp_path, pid=plain.pid))
        assert item(manifest, "stacks").state == "nothing"
        assert plain.poll() is None
        assert "processes.json" in {file.name for file in item(manifest, "processes").files}
    finally:
        plain.kill()
        plain.wait()


def test_another_process_of_the_same_number_is_left_alone(tmp_path):
    other_process = subprocess.Popen(["sleep", "60"])
    try:
        who = run_files.identity(other_process.pid)
        other = msgspec.structs.replace(who, started=who.started - 100)
        manifest = evidence_bundle.gather(context(tmp_path, pid=other_process.pid, armed=True, identity=other))
        assert item(manifest, "stacks").why == "the process is gone"
        assert other_process.poll() is None
    finally:
        other_process.kill()
        other_process.wait()


def test_a_stopped_process_is_not_waited_for(stuck):
    process = stuck("stopped")
    while psutil.Process(process.process.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    manifest = evidence_bundle.gather(process.context())
    assert "stopped" in item(manifest, "stacks").why
    assert item(manifest, "stacks").seconds < 1


def test_a_process_that_is_gone_leaves_a_bundle_that_says_so(stuck):
    process = stuck("lock")
    before = process.context()
    process.process.kill()
    process.process.wait()
    manifest = evidence_bundle.gather(before)
    assert item(manifest, "stacks").why == "the process is gone"
    assert item(manifest, "environment").state == "collected"


def test_a_dump_does_not_end_or_stop_the_process(stuck):
    process = stuck("lock")
    for number in range(3):
        evidence_bundle.gather(process.context(incident=number, directory=process.run / str(number)))
    assert process.process.poll() is None
    assert psutil.Process(process.process.pid).status() != psutil.STATUS_STOPPED


# ---- the end of the output ---------------------------------------------------------------------------------------


def test_the_tail_crosses_parts_and_begins_with_a_whole_line(tmp_path):
    (tmp_path / "output.1.log").write_text("first\nsecond\n")
    (tmp_path / "output.log").write_text("third\n")
    assert tail(tmp_path / "output.log", 100) == b"first\nsecond\nthird\n"
    assert tail(tmp_path / "output.log", 15) == b"second\nthird\n"
    (tmp_path / "output.log").write_bytes(b"old bar\r 1/9\r 2/9\r 3/9")
    assert tail(tmp_path / "output.log", 12) == b" 2/9\r 3/9"
