"""What a report says first is true of the run, and what it tells a user to copy can be run."""

from __future__ import annotations

import shlex

import msgspec
import pytest

from stallguard.core.diagnosis import causes
from stallguard.core.verdicts import Finding
from stallguard.report import document
from stallguard.report.first_screen import error, first_screen
from stallguard.report.incidents import CRASH, RECOVERED, RESTARTED, STALL, Incident
from stallguard.storage import run_files
from stallguard.storage.run_files import Identity, RunRequest
from tests.report.nights import night

ASKED = RunRequest(1, "20260307-train", ["train.py", "--name", "a b"], [], "/home/me/my project", "", Identity(1, 0.0))
RAISED = [
    "Traceback (most recent call last):",
    '  File "/home/me/train.py", line 12, in main',
    '  File "/opt/tf/lib/python3.11/site-packages/keras/src/trainer.py", line 99, in fit',
    "ValueError: x has 3 rows",
]


def stall(where="train.py:88 in step", cause=causes.DEVICE_WAIT, confidence=0.8):
    found = (Finding(cause, confidence),) if cause else ()
    return Incident(STALL, 1, 0.0, 9.0, where=where, findings=found, facts={"what": "the processor is idle"})


def first(state, *incidents, why="", output=(), resumable=False, **more):
    return first_screen(state, why, incidents, ASKED, output, resumable=resumable, **more)


def test_a_run_that_finished_has_a_badge_that_says_if_it_had_trouble():
    assert first("finished").badge == "finished"
    assert first("finished", stall()).badge == "recovered"
    assert first("gave up", stall()).badge == "gave up"


def test_what_went_wrong_is_one_sentence_with_the_place_and_the_cause():
    said = first("finished", stall(), stall(confidence=0.5), stall("train.py:9 in load", cause="")).wrong

    title = causes.title(causes.DEVICE_WAIT)
    assert said == f"It stalled 3 times, at train.py:88 in step and 1 more: {title} (very likely)."
    assert first("finished", stall("", "")).wrong == "It stalled once: the processor is idle."
    assert first("finished").wrong == "Nothing: no stall, no crash."


def test_an_error_of_the_script_is_named_with_its_own_line():
    crash = Incident(CRASH, 1, 0.0, 9.0, facts={"how": "exit code 1"})

    assert error(RAISED) == "ValueError: x has 3 rows, at train.py:12 in main"
    assert error(RAISED[:2]) == error(["nothing"]) == ""
    assert first("failed", why="exit code 1", output=RAISED).wrong == f"Your script failed: {error(RAISED)}."
    assert error(RAISED) in first("failed", crash, output=RAISED).wrong
    cured = first("finished", crash, output=RAISED).wrong
    assert f"The script raised {error(RAISED)}." in cured
    assert "failed" not in cured
    assert first("finished", output=RAISED).wrong == "Nothing: no stall, no crash."


def test_nobody_is_told_to_run_a_script_again_whose_line_must_be_corrected_first():
    wrong = first("failed", why="exit code 1", output=RAISED)
    assert wrong.next == "Correct train.py:12 in main: until then the same command ends in the same way."
    assert wrong.command == ""
    kept = first("failed", why="exit code 1", output=RAISED, resumable=True)
    assert kept.next.startswith(wrong.next)
    assert "--resume" in kept.command


@pytest.mark.parametrize("state", ["stopped", "interrupted", "gave up", "failed", "lost"])
def test_a_run_that_did_not_finish_is_continued_by_a_command_that_a_shell_takes(state):
    away = msgspec.structs.replace(ASKED, cwd="/data/my project")
    command = first_screen(state, "", (), away, (), resumable=True).command

    assert shlex.split(command) == [
        "cd", "/data/my project", "&&",
        "stallguard", "run", "--resume", "20260307-train", "train.py", "--name", "a b",
    ]  # fmt: skip
    assert first(state, home="/home/me").command.startswith("cd ~/'my project' && stallguard run ")
    assert "--resume" not in first(state).command
    assert "no checkpoint" in first(state).next


def test_nothing_is_promised_that_is_not_there():
    assert first("finished").command == first("trial").command == ""
    assert first("finished").next == "Nothing to do."
    recovered = msgspec.structs.replace(stall(), outcome=RECOVERED)
    assert first("finished", recovered).next == "Nothing to do."
    restarted = msgspec.structs.replace(stall(), outcome=RESTARTED)
    assert first("finished", restarted).next == "Nothing to do: stallguard restarted it."
    assert first("running").command == "stallguard status 20260307-train"
    assert first("lost", resumable=True, alive=True).command == "stallguard stop 20260307-train"
    advised = first("finished", stall(), advice=["look", "set a timeout: connection.settimeout(30)"])
    assert (advised.next.endswith("set a timeout."), advised.command) == (True, "connection.settimeout(30)")


def test_a_run_that_gave_up_and_left_a_checkpoint_says_so_in_its_report(tmp_path):
    run = night(tmp_path, minutes=6, stalls=1)
    end = run_files.outcome(run)
    run_files.write(run.path / "outcome.json", msgspec.structs.replace(end, code=124, why="3 restarts did not help"))
    assert "--resume" not in document.make(run, {}).first.command

    (run.checkpoints / "fit" / "1" / "g1").mkdir(parents=True)
    made = document.make(run, {})

    assert made.first.badge == "gave up"
    # The name of a user is removed from a report: no path that is not there any more is offered to be copied.
    assert made.first.command == f"stallguard run --resume {run.id} train.py --epochs 100"
    assert document.make(run, {"HOME": "/home/me"}).first.command.startswith("cd ~/project && ")
    assert "train.py:88 in step" in made.first.wrong
