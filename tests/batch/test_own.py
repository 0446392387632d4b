"""Scripts that take or ask for their size: divided at each attempt, never sliced as well, never below the least."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.guarded.runs import guard
from tests.probe.receiver import Receiver

GREEDY = Path(__file__).parent / "scripts" / "greedy.py"
ASKS = """
import json, stallguard, sys
context = sys.modules["_stallguard_probe"].probe.context
assert context.get("slices") == 1
pieces = [len(x) for x, _ in stallguard.microbatches([0] * 10, [1] * 10)]
assert context.get("slices") == context.asked, "slices are in effect"
before = context.slices
rows = stallguard.batch_size(512)
print(json.dumps({"before": before, "rows": rows, "again": stallguard.batch_size(512), "after": context.slices,
                  "one": stallguard.batch_size(1), "pieces": pieces, "whole": context.divided * rows}))
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="macOS does not hold a process to RLIMIT_AS")


def asked(**environment: str) -> tuple[dict[str, object], list[str]]:
    with Receiver() as receiver:
        heartbeat = receiver.run([sys.executable, "-c", ASKS], 60, **environment)
    assert heartbeat.code == 0, heartbeat.err
    return json.loads(heartbeat.out), [note["text"] for note in heartbeat.notes if note["kind"] == "micro"]


def test_a_script_that_asks_gets_less_and_keras_is_not_to_slice_that_again() -> None:
    said, notes = asked(slices=4)
    assert said == {
        "before": 4, "rows": 128, "again": 128, "after": 1, "one": 1, "pieces": [3, 3, 3, 1], "whole": 512,
    }  # fmt: skip
    assert notes == ["the script was given batches of 128 rows instead of 512"]


def test_in_the_first_attempt_it_gets_what_it_asks_for() -> None:
    said, notes = asked(slices=1)
    assert (said["rows"], said["after"], said["pieces"]) == (512, 1, [10])
    assert notes == []


@linux
@pytest.mark.live
@pytest.mark.parametrize("way", ["option", "variable"])
def test_an_allocation_that_fails_is_halved_at_once_however_the_script_gets_its_size(tmp_path: Path, way: str) -> None:
    ways = {
        "option": (["--batch-flag", "--batch-size"], ["--batch-size=128"], {}),
        "variable": (["--batch-env", "BATCH"], [], {"BATCH": "128"}),
    }
    ours, theirs, variables = ways[way]
    run = guard(tmp_path, *ours, str(GREEDY), *theirs, "--room", "100", "--steps", "5", env=variables)

    assert (run.code, run.out) == (0, b"trained with 64\n"), run.err
    assert run.outcome()["attempts"] == 2
    assert run.actions("incident.diagnosed")[0]["findings"][0]["cause"] == "out-of-memory"


@linux
@pytest.mark.live
def test_the_least_batch_holds(tmp_path: Path) -> None:
    run = guard(
        tmp_path, "--batch-flag=--batch-size", "--min-batch", "65", str(GREEDY), "--batch-size", "128",
        "--room", "100",
    )  # fmt: skip
    assert run.code == 1, "the script's own"
    assert {launch.get("factor", 1) for launch in run.actions("attempt.start_requested")} == {1}
    sizes = {fact["text"] for fact in run.announced("probe.remark") if "is given" in fact["text"]}
    assert sizes == {"the script is given batches of 128 rows"}


def test_a_size_that_cannot_be_known_is_refused_before_anything_starts(tmp_path: Path) -> None:
    run = guard(tmp_path, "--batch-flag=--batch-size", str(GREEDY))
    assert run.code == 2
    assert run.run is None
    assert "--batch 512" in run.err
