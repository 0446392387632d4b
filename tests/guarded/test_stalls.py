"""The main job, with a real TensorFlow that really hangs: judged, explained, restarted, finished."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jq
import msgspec
import pytest

import stallguard as stallguard_package

from .runs import AT_ONCE, SCRIPTS, Guard, Guarded, guard, stallguard

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.tf, pytest.mark.live]


def assert_saved_by_a_restart(run: Guarded) -> None:
    assert run.code == 0, run.err
    assert run.outcome()["attempts"] == 2
    assert run.outcome()["incidents"] == 1
    order = [action["event"] for action in run.actions("evidence.requested") + run.actions("attempt.signalled")]
    assert order[0] == "evidence.requested", "evidence comes before any signal"


SOON = {"policy.on_stall", "detector.act_after"}  # what a drill sets, and its banner names
NAMED = {"stopped": {"policy.causes"}, "spin": {*SOON, "detector.rows.step.spin", "detector.rows.step.prior_spin"}}
CAUSES = {"op": "device-wait", "gil": "gil-held", "spin": "busy-loop", "stopped": "stopped"}


def cause(run: Guarded) -> str:
    return str(run.actions("incident.diagnosed")[0]["findings"][0]["cause"])


@pytest.mark.parametrize("kind", CAUSES)
def test_a_drill_is_caught_named_restarted_smaller_and_finishes(tmp_path: Path, kind: str) -> None:
    run = stallguard(tmp_path, "drill", "--kind", kind, "--python", sys.executable)

    assert_saved_by_a_restart(run)
    assert cause(run) == CAUSES[kind]
    assert run.actions("attempt.start_requested")[1]["factor"] == 2
    assert run.actions("attempt.start_requested")[1]["resume"] is True
    assert "trained 4 epochs" in run.out.decode()
    again = stallguard(tmp_path, "debug", "replay").out.decode()
    assert "asks for a smaller batch" in again, "a replay decides with the run's own settings"
    assert any("resuming from the" in fact["text"] for fact in run.announced("attempt.resumed")), run.err
    said = run.err
    banner = next(line for line in said.splitlines() if "the drill sets" in line)
    assert set(re.findall(r"(?:policy|detector)\.[\w.]+", banner)) == NAMED.get(kind, SOON)
    if kind == "stopped":
        assert re.search(r"kill -CONT \d+", said)
    else:
        assert re.search(r"it hangs at \S*drills/train\.py:\d+", said) or kind == "gil"


def test_the_script_of_the_drill_keeps_tensorflow_quiet() -> None:
    script = Path(stallguard_package.__file__).parent / "drills" / "train.py"
    loud = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    said = subprocess.run([sys.executable, str(script), "--help"], env=loud, capture_output=True, check=True, text=True)
    assert said.stderr == ""


def test_a_generator_that_blocks_is_called_starvation_and_its_line_is_named(guard_keras: Guard, tmp_path: Path) -> None:
    script = SCRIPTS / "stall_once.py"

    run = guard_keras(tmp_path, *AT_ONCE, str(script), "generator", str(tmp_path / "memory"))

    assert_saved_by_a_restart(run)
    assert cause(run) == "input-starvation"
    assert b"trained" in run.out


@pytest.fixture(scope="module")
def locked(guard_keras: Guard, tmp_path_factory: pytest.TempPathFactory) -> Guarded:
    """A run whose callback waits for a lock once."""
    home = tmp_path_factory.mktemp("locked")
    return guard_keras(home, *AT_ONCE, str(SCRIPTS / "stall_once.py"), "lock", str(home / "memory"))


def test_a_lock_in_a_callback_is_called_a_deadlock_and_its_line_is_named(locked: Guarded) -> None:
    lines = (SCRIPTS / "stall_once.py").read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "the line to be named" in text)

    assert_saved_by_a_restart(locked)
    assert cause(locked) == "host-deadlock"
    assert f"stall_once.py:{line} in on_train_batch_end" in locked.announced("evidence.collected")[0]["line"]


def recipes(document: str) -> list[list[str]]:
    """Return the words of each command line with jq in a document."""
    lines = re.findall(r"^ +jq .*(?:\n {8,}.*)*", (ROOT / document).read_text(), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def test_the_document_reads_a_run_with_jq_as_it_says(locked: Guarded) -> None:
    """Two attempts, one stall that was diagnosed several times."""
    results = []
    for _, options, program, file in recipes("docs/journal.md"):
        assert file == "journal.jsonl"
        lines = [msgspec.json.decode(entry.raw) for entry in locked.lines]
        whole = jq.compile(program)
        results.append(whole.input_value(lines).all() if "s" in options else whole.input_values(lines).all())
    sentences, stalls, findings, memory, batches = results
    told = [one.line.message for one in locked.lines if one.line.message]
    assert sentences == told, "each has one: none is null"
    assert [stall["attempt"] for stall in stalls] == [1]
    assert findings[0] == [1, "host-deadlock", pytest.approx(0.9, abs=0.1)]
    assert len({cause for _, cause, _ in findings}) == len(findings), "each cause once"
    assert len(locked.actions("incident.diagnosed")) > 1
    assert [row.count("\t") for row in memory] == [1] * len(memory) != []
    assert batches == [locked.outcome()["batches"]]


LAUNCHER = """
import subprocess, sys
subprocess.run([sys.executable, *sys.argv[1:]], check=True)
"""


def test_a_lock_behind_a_launcher_is_a_deadlock_of_the_training_and_not_of_the_launcher(tmp_path: Path) -> None:
    launcher = tmp_path / "launcher.py"
    launcher.write_text(LAUNCHER)

    often = ("--checkpoint-every", "1s", "--checkpoint-cost", "1")
    script = str(SCRIPTS / "stall_once.py")
    run = guard(tmp_path, *AT_ONCE, *often, str(launcher), script, "lock", str(tmp_path / "memory"))

    assert_saved_by_a_restart(run)
    assert cause(run) == "host-deadlock"
    assert "in on_train_batch_end" in run.announced("evidence.collected")[0]["line"]
    assert run.out.split() == [b"trained"]
    assert any("resuming from the" in fact["text"] for fact in run.announced("attempt.resumed")), run.err


def test_a_healthy_training_with_a_slow_validation_and_a_slow_checkpoint_is_left_alone(
    guard_keras: Guard, tmp_path: Path
) -> None:
    run = guard_keras(tmp_path, *AT_ONCE, str(SCRIPTS / "healthy.py"))

    assert (run.code, run.out) == (0, b"trained\n"), run.err
    assert run.outcome()["batches"] == 80
    assert run.outcome()["incidents"] == 0
    assert run.announced("training.suspected") == []
