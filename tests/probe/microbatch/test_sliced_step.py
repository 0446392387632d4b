"""What a smaller batch cannot reach is said when the training begins, not after the stall."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.probe.imported import ForkReceiver

CHILD = Path(__file__).parent / "reach_child.py"


@pytest.mark.tf
def test_a_step_of_the_scripts_own_is_reported_in_the_first_attempt_unless_the_script_is_given_its_size(servers):
    with ForkReceiver(servers) as receiver:
        heartbeat = receiver.run([sys.executable, str(CHILD)], 120, slices=1, KERAS_BACKEND="tensorflow")
    assert heartbeat.code == 0, heartbeat.err[-2000:]

    beyond = heartbeat.hello()["beyond"]
    assert [sentence.split()[0] for sentence in beyond if "train_step of its own" in sentence] == ["Own"]
    assert "--batch-flag" in beyond[0]
    rows = [note["facts"]["rows"] for note in heartbeat.notes if note["kind"] == "batch"]
    assert rows == ["16"], "what the supervisor gives the script, it knows and says itself"
