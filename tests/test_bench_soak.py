"""The soak: a slope is told from noise, hours pass in seconds through the real loop, and a real run is measured."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from endurance import week
from endurance.week import slope

from stallguard.storage import journal

BENCHES = Path(__file__).parents[1] / "scripts" / "benches"


class TestSlope:
    def test_a_leak_is_seen_through_noise(self):
        dice = random.Random(1)
        leaking = [(x / 720, 1000 + 200 * x / 720 + dice.uniform(-4, 4)) for x in range(720)]
        assert 190 < slope(leaking) < 210

    def test_one_step_is_no_slope(self):
        assert slope([(float(x), 0.0 if x < 10 else 64.0) for x in range(100)]) == 0.0
        assert slope([(0.0, 5.0)]) == 0.0


@pytest.mark.costly
def test_hours_of_a_run_pass_in_seconds_with_pauses_and_a_crash(tmp_path, monkeypatch):
    monkeypatch.setattr(week, "CRASHES", week.HOUR / 2)
    monkeypatch.setattr(week, "PAUSES", week.HOUR / 4)
    monkeypatch.setattr(week, "BOUND", 1 << 19)
    code, seen = week.live(tmp_path, 1.5 / 24)
    lines = [json.loads(entry.raw) for entry in journal.read(tmp_path / "journal.jsonl")]

    assert code == 0
    assert [round(one.hours) for one in seen][:2] == [0, 1]
    assert len([line for line in lines if line["event"] == "attempt.started"]) >= 2
    assert seen[-1].snapshot > 1000, "the state is saved"
    assert sum(part.stat().st_size for part in tmp_path.glob("journal*")) <= week.BOUND
    assert list(tmp_path.glob("journal.*.jsonl.gz")), "older parts are compressed"


@pytest.mark.live
def test_a_short_soak_of_a_real_run_is_measured():
    command = [sys.executable, str(BENCHES / "soak.py"), "--days", "0", "--minutes", "0.2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode in (0, 1), done.stderr  # what a minute grows by is no slope
    assert "200 beats/s" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(("all 5 goals hold", "1 of 5 goals missed", "2 of 5"))
