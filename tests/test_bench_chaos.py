"""Each fault of the bench `chaos` that is short is made here as well, and its promise is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from chaos_faults.fault import Fault
from chaos_faults.stage import Broken, Stage, expect, whole
from chaos_faults.table import FAULTS

ROOT = Path(__file__).parents[1]
BENCH = ROOT / "scripts" / "benches" / "chaos.py"


@pytest.fixture
def stage(tmp_path_factory):
    """A stage whose processes are ended, in a directory whose name is short enough for sockets."""
    with Stage(tmp_path_factory.mktemp("c")) as made:
        yield made


@pytest.mark.live
@pytest.mark.parametrize("fault", [pytest.param(one, id=one.name) for one in FAULTS if one.quick])
def test_what_is_promised_for_a_fault_is_seen(stage: Stage, fault: Fault) -> None:
    if missing := fault.needs():
        pytest.skip(missing)
    assert fault.check(stage)
    assert stage.left_over() == []


def test_there_are_enough_faults_and_each_has_a_name_of_its_own() -> None:
    assert len(FAULTS) == len({fault.name for fault in FAULTS}) >= 60
    assert all(fault.done and fault.promised for fault in FAULTS)


def test_a_promise_that_is_broken_is_said_and_counted(tmp_path: Path) -> None:
    program = tmp_path / "bench.py"
    program.write_text(BROKEN.format(benches=str(BENCH.parent)))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 1
    assert "an odd promise" in done.stdout
    assert "BROKEN" in done.stdout
    assert "broken: breaks; 2 of 2 goals missed" in done.stdout.splitlines()[-1]
    assert "left behind: file forgotten" in done.stdout


BROKEN = """
import sys
sys.path.insert(0, {benches!r})
import chaos
from chaos_faults.fault import Fault
from chaos_faults.stage import expect
def forgets(stage):
    (stage.folder / "tmp" / "forgotten").touch()
    return "nothing"
def absent(stage):
    raise AssertionError("it is not made")
rows = [Fault("keeps", "nothing", "nothing", lambda stage: "nothing"), Fault("breaks", "x", "an odd promise", forgets),
        Fault("absent", "x", "y", absent, needs=lambda: "no such machine")]
chaos.FAULTS = tuple(rows)
sys.exit(chaos.main())
"""


def test_a_run_that_lost_a_line_or_its_exit_code_is_not_whole() -> None:
    from chaos_faults.stage import Ended

    assert whole(Ended(7, b"step 0\nstep 1\n", ""), 2) == "2 batches, exit code 7"
    for wrong in (Ended(7, b"step 0\n", ""), Ended(0, b"step 0\nstep 1\n", "")):
        with pytest.raises(Broken):
            whole(wrong, 2)
    with pytest.raises(Broken, match="what was seen"):
        expect(False, "what was seen")
