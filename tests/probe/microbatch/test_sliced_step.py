"""What a smaller batch cannot reach is said when the training begins, not after the stall."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stallguard.probe.microbatch import sliced_step
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


def test_a_normalisation_uses_its_running_statistics_inside_and_is_as_it_was_after():
    """One layer has a `call` of its class, the other one that the script has set on it."""
    kind = type(
        "BatchNormalization", (), {"call": lambda self, x, training=None: (x, training), "__module__": "keras.x"}
    )
    plain, changed = kind(), kind()
    changed.call = own = lambda x, training=None: ("own", x, training)
    model = type("Model", (), {"_flatten_layers": lambda self, include_self: [plain, changed]})()

    with sliced_step.running_statistics(model):
        assert plain.call(1, training=True) == (1, False)
        assert changed.call(1, training=True) == ("own", 1, False)

    assert vars(plain) == {}
    assert changed.call is own
