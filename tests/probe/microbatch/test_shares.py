"""What a slice has of a loss is found by rows of the batch, or the batch stays whole; all is put back."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

CHILD = Path(__file__).parent / "children" / "shares.py"
ROWS = [[1 / 7, 1], [2 / 7, 2], [2 / 7, 2], [2 / 7, 2]]
WHOLE = {
    "another number of rows": "'edges' has 9 rows, the batch 7",
    "sparse": "'s' is no dense tensor",
    "an object": "'graph' is no dense tensor",
    "not a number": "the loss of its first rows is not a number",
    "no gradient": "the gradients of its first rows are zero",
    "an error": "its step fails with 3 rows (KeyError",
    "an obstacle": "of the trainer",
    "no memory for two": "memory is too short to compare two of its rows",
    "draws that stay": "draws random numbers that a comparison cannot fix",
    "a counter": "'seen' changes with each call",
}


@pytest.fixture(scope="module")
def found(other_python):
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [other_python("torch"), CHILD],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "batch", ["rows", "a pair", "a named pair", "what is like a dict", "with texts and a switch", "a single number"]
)
def test_a_mean_over_rows_is_weighted_by_rows(found, batch):
    assert found[batch] == [pytest.approx(one) for one in ROWS]


def test_other_losses_have_other_shares(found):
    assert found["a sum"] == [[1.0, rows] for _, rows in ROWS]
    assert found["more slices than rows"] == [pytest.approx([1 / 3, 1])] * 3
    # Of 19 targets the first row has one, each other row three.
    assert found["targets"] == [pytest.approx([share / 19, rows]) for share, rows in ((1, 1), (6, 2), (6, 2), (6, 2))]


@pytest.mark.parametrize(("batch", "reason"), WHOLE.items())
def test_what_slices_would_change_stays_whole(found, batch, reason):
    assert reason in found[batch]


def test_a_layer_that_drops_values_is_compared_without_and_named(found):
    assert len(found["attention"]) == len(found["recurrent"]) == 4
    assert "self_attn, dropout, dropout1 and 1 more draw random" in found["said of attention"]
    assert "LSTM draws random numbers for each slice" in found["said of a recurrent layer"]


def test_all_is_put_back(found):
    assert found["put back"] == [True] * 8
