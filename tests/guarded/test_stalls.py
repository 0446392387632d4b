"""The main job, with a real TensorFlow that really hangs: judged, explained, restarted, finished."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stallguard as stallguard_package

from .runs import AT_ONCE, SCRIPTS, Guarded, guard, stallguard

pytestmark = [pytest.mark.tf, pytest.mark.live]


def assert_saved_by_a_restart(run: Guarded) -> None:
    assert run.code == 0, run.err
    assert run.outcome()["attempts"] == 2
    assert run.outcome()["incidents"] == 1
    order = [
        action["event"] for action in run.actions("evidence.requested") + run.actions("attempt.signalled")
    ]
    assert order[0] == "evidence.requested", "evidence comes before any signal"


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
    again = stallguard(tmp_path, "replay").out.decode()
    assert "asks for a smaller batch" in again, "a replay decides with the run's own settings"
    assert any("resuming from the" in fact["text"] for fact in run.announced("attempt.resumed")), run.err


def test_the_script_of_the_drill_keeps_tensorflow_quiet() -> None:
    script = Path(stallguard_package.__file__).parent / "drills" / "train.py"
    loud = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    said = subprocess.run(
        [sys.executable, str(script), "--help"], env=loud, capture_output=True, check=True, text=True
    )
    assert said.stderr == ""


def test_a_generator_that_blocks_is_called_starvation_and_its_line_is_named(tmp_path: Path) -> None:
    script = SCRIPTS / "stall_once.py"

    run = guard(tmp_path, *AT_ONCE, str(script), "generator", str(tmp_path / "memory"))

    assert_saved_by_a_restart(run)
    assert cause(run) == "input-starvation"
    assert b"trained" in run.out


def test_a_lock_in_a_callback_is_called_a_deadlock_and_its_line_is_named(tmp_path: Path) -> None:
    script = SCRIPTS / "stall_once.py"
    line = next(
        n for n, text in enumerate(script.read_text().splitlines(), 1) if "the line to be named" in text
    )

    run = guard(tmp_path, *AT_ONCE, str(script), "lock", str(tmp_path / "memory"))

    assert_saved_by_a_restart(run)
    assert cause(run) == "host-deadlock"
    assert f"stall_once.py:{line} in on_train_batch_end" in run.announced("evidence.collected")[0]["line"]


LAUNCHER = """
import subprocess, sys
subprocess.run([sys.executable, *sys.argv[1:]], check=True)
"""


def test_a_lock_behind_a_launcher_is_a_deadlock_of_the_training_and_not_of_the_launcher(
    tmp_path: Path,
) -> None:
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
    tmp_path: Path,
) -> None:
    run = guard(tmp_path, *AT_ONCE, str(SCRIPTS / "healthy.py"))

    assert (run.code, run.out) == (0, b"trained\n"), run.err
    assert run.outcome()["batches"] == 80
    assert run.outcome()["incidents"] == 0
    assert run.announced("training.suspected") == []
