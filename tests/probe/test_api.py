"""What `import stallguard` in a script does, with the probe and without it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from stallguard.probe import wire
from tests.probe.receiver import python

SPEAKS = """
import stallguard, time
assert stallguard.guarded()
with stallguard.phase("warm-up"):
    time.sleep(0.2)
    with stallguard.expect("export", 600):
        time.sleep(0.2)
    time.sleep(0.2)
for _ in range(3):
    stallguard.beat(); time.sleep(0.1)
print(stallguard.batch_size(512), [len(x) for x, y in stallguard.microbatches([0] * 10, [1] * 10)])
"""


def test_the_script_can_say_what_it_does(receiver):
    heartbeat = receiver.run(python(SPEAKS))
    assert (heartbeat.code, heartbeat.err, heartbeat.out) == (0, "", "512 [10]\n")
    assert [note["text"] for note in heartbeat.notes if note["kind"] == "phase"] == ["warm-up", "export"]
    named = [record for record in heartbeat.records if wire.PHASES[record["phase"]] == "named"]
    expected = [record for record in named if record["expect_ns"]]
    assert 0 < len(expected) < len(named)
    assert expected[0]["expect_ns"] - expected[0]["phase_ns"] == pytest.approx(600e9, rel=0.01)
    assert heartbeat.last()["expect_ns"] == 0
    assert (heartbeat.last()["beats"], wire.SOURCES[heartbeat.last()["source"]]) == (3, "hand")


def test_the_script_gets_smaller_batches_where_the_attempt_asks_for_them(receiver):
    heartbeat = receiver.run(python(SPEAKS), slices=4)
    assert heartbeat.out == "128 [3, 3, 3, 1]\n"


SAVES = """
import pathlib, stallguard, sys
state = {"step": 0}
def save(path): pathlib.Path(path).write_text(str(state["step"]))
def load(path): state["step"] = int(pathlib.Path(path).read_text())
print(stallguard.checkpoint(save, load), state["step"])
for _ in range(3):
    state["step"] += 1
    if state["step"] % 3 == 2:  # not after minutes, but now
        sys.modules["_stallguard_probe"].voice._checkpoints[0]._pace.next = 0
    stallguard.beat()
"""


@pytest.mark.costly
def test_a_loop_of_the_scripts_own_is_saved_and_resumed(receiver):
    checkpoints = str(receiver.folder / "checkpoints")
    first = receiver.run(python(SAVES), checkpoints=checkpoints, token=1)
    second = receiver.run(python(SAVES), checkpoints=checkpoints, resume=True, token=2)
    assert (first.out, first.err, first.last()["saves"]) == ("False 0\n", "", 1)
    assert (second.out, second.err) == ("True 2\n", "")
    assert "checkpoint" in second.hello()["hooks"]
    assert "resume" in [note["kind"] for note in second.notes]


ENDS = """
import os, pathlib, stallguard, sys, time
context = sys.modules["_stallguard_probe"].voice._context
def save(path): pathlib.Path(path).write_text("kept")
def load(path): print(pathlib.Path(path).read_text())
stallguard.checkpoint(save, load)
stallguard.beat()
context.set("command", int(os.environ.get("STALLGUARD_TEST_COMMAND", "0")))
stallguard.beat()
print("went on", flush=True)
"""


@pytest.mark.costly
def test_a_loop_of_the_scripts_own_that_is_asked_to_end_saves_first(receiver):
    checkpoints = str(receiver.folder / "checkpoints")
    stop = {"STALLGUARD_TEST_COMMAND": str(wire.COMMANDS.index("stop"))}
    ended = receiver.run(python(ENDS), checkpoints=checkpoints, token=1, **stop)
    again = receiver.run(python(ENDS), checkpoints=checkpoints, resume=True, token=2)
    assert (ended.code, ended.out) == (-signal.SIGTERM, "")
    assert again.out == "kept\nwent on\n"


def test_a_loop_of_the_scripts_own_that_is_asked_to_save_saves_once_and_goes_on(receiver):
    checkpoints = str(receiver.folder / "checkpoints")
    save = {"STALLGUARD_TEST_COMMAND": str(wire.COMMANDS.index("save"))}
    asked = receiver.run(python(ENDS + "stallguard.beat()\n"), checkpoints=checkpoints, token=1, **save)
    assert (asked.code, asked.out, asked.last()["saves"]) == (0, "went on\n", 1)


def test_the_loops_checkpoints_come_as_often_as_was_asked(receiver):
    asks = "import stallguard, sys\nstallguard.checkpoint(print, print)\n"
    asks += "print(sys.modules['_stallguard_probe'].voice._checkpoints[0]._pace.every)"
    heartbeat = receiver.run(python(asks), checkpoints=str(receiver.folder), checkpoint_every=7.5)
    assert heartbeat.out == "7.5\n"


def test_without_stallguard_every_word_is_harmless(tmp_path):
    code = (
        "import stallguard as s\n"
        "s.beat()\n"
        "assert s.checkpoint(print, print) is False\n"
        "with s.phase('x'), s.expect('y', 3): pass\n"
        "print(s.guarded(), s.batch_size(7), list(s.microbatches([1, 2])), s.__version__)\n"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        python(code), cwd=tmp_path, env={"PYTHONPATH": root}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("False 7 [[1, 2]] 0.")
