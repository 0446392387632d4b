"""Promises that a real machine broke, from `scripts/live --import`: each is skipped with what was seen.

A row goes when the code keeps its promise and a walk of the same machine has seen that: import the zip of that walk.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("failed_rows.json")
ROWS = json.loads(FILE.read_text()) if FILE.exists() else []


if ROWS:  # pytest counts a test without rows as skipped

    @pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['machine']}: {row['check']}")
    def test_a_promise_that_a_machine_broke(row):
        where = f"{row['machine']} ({row['day']})"
        pytest.skip(f"{row['check']} did not hold on {where}: {row['seen']}, expected: {row['expected']}")
