"""A truly smaller batch in `fit`: what the script would have trained with half the batch and half the rate."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.guarded.runs import Guard
from tests.probe.receiver import Heard, Receiver

CHILD = Path(__file__).parent / "really_child.py"
SCRIPTS = Path(__file__).parent / "scripts"
EVERYWHERE = ["arrays", "default", "nested", "steps", "schedule", "adam", "pipeline", "after_slices"]
SAME = ["default", "nested", "schedule", "after_slices"]  # as "arrays"

pytestmark = pytest.mark.tf

Rows = dict[str, dict[str, Any]]


def trained(python: str, cases: list[str], **environment: str) -> tuple[Rows, Heard]:
    with Receiver() as receiver:
        heartbeat = receiver.run([python, str(CHILD), *cases], 300, slices=2, **environment)
    assert heartbeat.code == 0, heartbeat.err[-3000:]
    return json.loads(heartbeat.out.splitlines()[-1]), heartbeat


def same(rows: Rows, one: str, other: str) -> bool:
    return bool(rows[one]["weights"] == pytest.approx(rows[other]["weights"], rel=1e-5))


def sentences(heartbeat: Heard, kind: str) -> list[str]:
    return [note["text"] for note in heartbeat.notes if note["kind"] == kind]


@pytest.fixture(scope="module")
def keras3() -> tuple[Rows, Heard]:
    return trained(sys.executable, EVERYWHERE, KERAS_BACKEND="tensorflow", fewer_rows="linear")


def test_fit_trains_on_half_the_rows_at_half_the_rate(keras3: tuple[Rows, Heard]) -> None:
    rows, heartbeat = keras3
    assert rows["arrays"]["batches"] == rows["arrays"]["steps"] == 6
    assert same(rows, "arrays", "sgd by hand")
    assert same(rows, "adam", "adam by hand")
    said = sentences(heartbeat, "micro")[0]
    assert said.startswith("fit trains on batches of 16 rows instead of 32: 2 times as many updates an epoch")
    assert said.endswith("the learning rate divided by 2")


@pytest.mark.parametrize("case", SAME)
def test_however_the_script_says_it(keras3: tuple[Rows, Heard], case: str) -> None:
    assert same(keras3[0], case, "arrays")


def test_steps_of_an_epoch_are_as_many_more_as_rows_are_fewer(keras3: tuple[Rows, Heard]) -> None:
    assert keras3[0]["steps"]["batches"] == 4


def test_callbacks_see_the_rate_that_the_script_set(keras3: tuple[Rows, Heard]) -> None:
    assert keras3[0]["arrays"]["rates"] == [0.1]


def test_a_schedule_is_scaled_and_what_its_pace_becomes_is_said(keras3: tuple[Rows, Heard]) -> None:
    assert any("schedule that counts updates runs 2 times as fast" in text for text in sentences(keras3[1], "micro"))


def test_a_pipeline_keeps_its_batches_is_sliced_and_that_is_said(keras3: tuple[Rows, Heard]) -> None:
    rows, heartbeat = keras3
    assert rows["pipeline"]["batches"] == 3
    assert same(rows, "pipeline", "whole")
    assert any("fit takes no batch size for" in text for text in heartbeat.hello()["beyond"])


def test_the_rows_of_the_scripts_own_batch_are_reported(keras3: tuple[Rows, Heard]) -> None:
    announced = [note["facts"]["rows"] for note in keras3[1].notes if note["kind"] == "batch"]
    assert announced[-1] == "32"


def test_keras_2_does_the_same(other_python: Callable[[str], str]) -> None:
    rows, _ = trained(other_python("keras2"), [*EVERYWHERE, "legacy"], KERAS="tensorflow.keras", fewer_rows="linear")
    assert same(rows, "arrays", "sgd by hand")
    assert same(rows, "adam", "adam by hand")
    assert same(rows, "pipeline", "whole")
    assert [case for case in (*SAME, "legacy") if not same(rows, case, "arrays")] == []
    assert rows["arrays"]["rates"] == [0.1]


@pytest.mark.parametrize(("name", "backend"), [("torch", "torch"), ("jax", "jax")])
def test_other_backends_do_the_same(other_python: Callable[[str], str], name: str, backend: str) -> None:
    cases = ["arrays", "schedule", "adam"]
    rows, _ = trained(other_python(name), cases, KERAS_BACKEND=backend, fewer_rows="linear")
    assert same(rows, "arrays", "sgd by hand")
    assert same(rows, "schedule", "arrays")
    assert same(rows, "adam", "adam by hand")


@pytest.mark.live
def test_a_run_goes_on_with_fewer_rows_where_it_was(guard_keras: Guard, tmp_path: Path) -> None:
    run = guard_keras(
        tmp_path, "--really-smaller-batch", "--scale-lr", "sqrt", str(SCRIPTS / "once.py"), str(tmp_path / "memory"),
    )  # fmt: skip

    assert run.code == 0, run.err
    assert [launch.get("factor", 1) for launch in run.actions("attempt.start_requested")] == [1, 2]
    assert any("of 16 rows instead of 32" in fact["text"] for fact in run.announced("batch.smaller"))
    assert "the learning rate divided by 1.41" in run.announced("batch.smaller")[0]["text"]
    resized = [fact["text"] for fact in run.announced("attempt.resumed") if "the batch is" in fact["text"]]
    assert [text.split("; ")[1].split(":")[0] for text in resized] == ["the batch is 16 now and was 32"]
    assert "1.41" in run.announced("training.changed")[-1]["text"]
