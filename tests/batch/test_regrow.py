"""Back up again, for real: slices that grow in a running fit, and a script that is started anew with its own size."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.guarded.runs import guard
from tests.probe.receiver import Heard, Receiver

pytestmark = pytest.mark.tf
HERE = Path(__file__).parent


def grown(python: str, **environment: str) -> Heard:
    with Receiver() as receiver:
        command = [python, str(HERE / "regrow_child.py")]
        heartbeat = receiver.run(command, 300, STALLGUARD_FACTOR="2", STALLGUARD_REGROW="1", **environment)
    assert heartbeat.code == 0, heartbeat.err[-3000:]
    return heartbeat


def assert_grew(heartbeat: Heard) -> None:
    row = json.loads(heartbeat.out.splitlines()[-1])
    assert row["factors"] == [2, 2, 1, 1], "from the end of the epoch on in which it was asked for"
    assert row["weights"] == pytest.approx(row["whole"], rel=1e-5)
    announced = [note["facts"] for note in heartbeat.notes if note["kind"] == "regrown"]
    assert announced == [{"factor": "1"}]
    assert heartbeat.last()["command"] == 0


def test_slices_grow_at_the_end_of_an_epoch_and_train_the_same() -> None:
    assert_grew(grown(sys.executable, KERAS_BACKEND="tensorflow"))


@pytest.mark.parametrize(("name", "backend"), [("keras2", "tensorflow"), ("torch", "torch"), ("jax", "jax")])
def test_so_they_do_elsewhere(other_python: Callable[[str], str], name: str, backend: str) -> None:
    keras = "tensorflow.keras" if name == "keras2" else "keras"
    assert_grew(grown(other_python(name), KERAS=keras, KERAS_BACKEND=backend))


@pytest.mark.live
def test_a_script_that_is_given_its_size_gets_half_after_a_failure_and_the_whole_again_after_a_good_time(
    tmp_path: Path,
) -> None:
    run = guard(
        tmp_path, "--batch-flag=--batch-size", "--regrow", "--set", "policy.regrow_after=2s",
        str(HERE / "scripts" / "once.py"), str(tmp_path / "memory"), "--batch-size", "32",
    )  # fmt: skip

    assert run.code == 0, run.err
    assert run.out == b"trained with 32\n"
    assert [launch.get("factor", 1) for launch in run.actions("attempt.start_requested")] == [1, 2, 1]
    sizes = [fact["text"] for fact in run.announced("probe.remark") if "is given" in fact["text"]]
    assert sizes == [f"the script is given batches of {rows} rows" for rows in (32, 16, 32)]
    mathematics = [fact["mathematics"] for fact in run.announced("attempt.restarting")]
    assert "2 times as many updates" in mathematics[0]
    assert mathematics[1] == "neither the batch nor the device changes"
    assert any("the batch is 16 now and was 32" in fact["text"] for fact in run.announced("attempt.resumed"))
    assert not run.announced("batch.smaller"), "never sliced as well"


@pytest.mark.live
def test_a_script_that_knows_nothing_of_it_is_sliced_for_want_of_memory_and_whole_again_in_the_same_process(
    tmp_path: Path,
) -> None:
    run = guard(
        tmp_path, "--regrow", "--set", "policy.regrow_after=2s", str(HERE / "scripts" / "once.py"),
        str(tmp_path / "memory"),
    )  # fmt: skip

    assert run.code == 0, run.err
    assert run.actions("incident.diagnosed")[0]["findings"][0]["cause"] == "out-of-memory"
    assert [launch.get("factor", 1) for launch in run.actions("attempt.start_requested")] == [1, 2]
    assert "whole again" in run.announced("batch.smaller")[-1]["text"]
    said = run.announced("training.changed")[-1]["text"]
    assert "in attempt 2 each batch is computed in 2 parts" in said
    assert said.endswith("in attempt 2 neither the batch nor the device changes")
