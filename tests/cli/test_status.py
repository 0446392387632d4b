"""`stallguard status` shows a run on one screen, and says by its exit code if it is well."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from stallguard.cli import status
from tests.cli.living import STALLED, over, say


def test_status_is_one_screen_from_the_control_socket(life):
    answer = say(status.command)

    assert answer.exit_code == 0
    assert answer.output.splitlines() == [
        "one  train.py",
        "  state       running: batches end, for 1 h 2 min in all; attempt 2, 1/2 of the batch at a time",
        "  doing       inside a training step",
        "  silent      for 0.4 s, 12 s would be a stall",
        "  progress    epoch 3 of 10, batch 50 of 100, 5 min to go, loss 0.2500",
        "  batches     12\u202f345 batches, 2.5 a second",
        "  processor   1.70 cores, 61% of the machine idle",
        "  GPU         87% busy, 6.2 GB in use, 21.5 W",
        "  memory      5.1 GB of the training, 16 GB available, pressure normal",
        "  stalls      1 stall, 1 min 22 s lost",
        "  last words  51/100 loss: 0.25",
    ]


def test_a_stalled_run_is_exit_code_1_and_says_why(life):
    life.snapshot = STALLED

    answer = say(status.command, "one")

    assert answer.exit_code == 1
    assert "the training library never returned from a " in answer.output
    assert say(status.command, "--json").exit_code == 1


def test_a_stalled_run_shows_the_line_that_it_hangs_at(life):
    life.snapshot = STALLED
    incident = life.run.incident(1)
    incident.mkdir(parents=True)
    (incident / "manifest.json").write_text('{"where": "train.py:8 in step"}')

    announced = CliRunner().invoke(status.command, []).output
    assert "  hangs at    train.py:8 in step\n" in announced


def test_json_is_the_snapshot(life):
    assert json.loads(say(status.command, "--json").output) == life.snapshot


def test_a_snapshot_without_anything_is_shown_too(life):
    life.snapshot = {"schema": 1, "run": "one", "state": "new"}

    assert "new: nothing has been started" in say(status.command).output


@pytest.mark.parametrize(("code", "exit_code", "word"), [(0, 0, "finished"), (124, 1, "gave up"), (1, 1, "failed")])
def test_an_ended_run_has_its_outcome(home, code, exit_code, word):
    over(home, code=code)

    answer = say(status.command)

    assert answer.exit_code == exit_code
    assert word in answer.output
    assert json.loads(say(status.command, "--json").output)["outcome"]["exit_code"] == code
