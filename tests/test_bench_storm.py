"""The storm's planner and its judgement tell what they must, and a small storm is weathered."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from faults import outcome
from faults.outcome import Trained
from faults.play import KINDS, Played, plan, spoil

BENCHES = Path(__file__).parents[1] / "scripts" / "benches"


class TestPlan:
    def test_a_seed_gives_the_same_storm_and_another_seed_another(self):
        assert plan(1, 50) == plan(1, 50) != plan(2, 50)
        assert plan(1, 50)[:7] == plan(1, 7)

    def test_each_kind_comes_before_any_comes_again(self):
        faults, count = plan(3, 10 * len(KINDS)), len(KINDS)
        for begin in range(0, len(faults), count):
            assert {fault.kind for fault in faults[begin : begin + count]} == set(KINDS)
        assert len({tuple(fault.kind for fault in faults[i : i + count]) for i in range(0, 50, count)}) > 1

    def test_a_fault_lasts_as_long_as_its_kind_says(self):
        for fault in plan(5, 200):
            least, most = KINDS[fault.kind].lasts
            assert least <= fault.lasts <= most
            assert 0.0 <= fault.share < 1.0


def played(kind, at):
    return Played(kind, at)


def trained(*rows):
    return [Trained(float(time), pid, 0, batch) for time, pid, batch in rows]


class TestOutcome:
    def test_a_batch_that_is_done_again_ends_no_wait(self):
        batches = trained((1, 7, 0), (2, 7, 1), (5, 8, 0), (6, 8, 1), (7, 8, 2))
        assert (outcome.news(batches), outcome.again(batches)) == ([1.0, 2.0, 7.0], 2)
        assert outcome.recoveries([played("kill", 3.0)], outcome.news(batches), [], math.inf) == [4.0]

    def test_a_kill_of_stallguard_waits_for_the_next_stallguard(self):
        kills = [played("supervisor", 3.0), played("sockets", 3.0)]
        assert outcome.recoveries(kills, [4.0, 9.0], [8.0], math.inf) == [5.0, 1.0]
        assert outcome.recoveries(kills, [4.0, 9.0], [], math.inf) == [math.inf, 1.0]
        assert outcome.recoveries(kills, [4.0, 9.0], [], 10.0) == [7.0, 1.0]

    def test_a_halt_begins_when_the_script_halts(self):
        faults = [played("deadlock", 1.0), played("kill", 2.0), played("deadlock", 3.0)]
        halts = [("blocked", 0.5), ("deadlock", 2.5)]
        assert outcome.begun(faults, halts) == [played("deadlock", 2.5), played("kill", 2.0)]

    def test_two_trainings_at_a_time_are_seen(self):
        assert outcome.is_alone(trained((1, 7, 0), (2, 7, 1), (3, 8, 1)))
        assert not outcome.is_alone(trained((1, 7, 0), (2, 8, 0), (3, 7, 1)))

    def test_a_difference_is_named(self, tmp_path):
        for name, loss in (("plain", "1"), ("stormed", "2")):
            (tmp_path / name).mkdir()
            (tmp_path / name / "batches.csv").write_text(f"0,0,1\n0,1,{loss}\n")
            (tmp_path / name / "history.csv").write_text("the same")
        (tmp_path / "plain" / "end.json").write_text("{}")
        found = outcome.differences(tmp_path / "plain", tmp_path / "stormed")
        assert found == ["batches.csv differs: line 2 is '0,1,2' and not '0,1,1'", "end.json is missing"]

    @pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.999])
    def test_a_damaged_file_differs(self, tmp_path, share):
        (tmp_path / "file").write_bytes(bytes(100))
        spoil(tmp_path / "file", share)
        assert (tmp_path / "file").read_bytes() != bytes(100)


@pytest.mark.tf
@pytest.mark.live
def test_a_small_storm_is_weathered():
    words = ["--faults", "2", "--every", "2", "--epochs", "4", "--only", "supervisor,checkpoint"]
    command = [sys.executable, str(BENCHES / "storm.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all 3 goals hold\n")
