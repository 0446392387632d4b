"""The simulated matrix finds nothing wrong, repeats itself, and notices a product that breaks a promise."""

from __future__ import annotations

from pathlib import Path

import pytest
from matrix_cells.simulated import judged
from matrix_cells.simulated_cells import draw, parsed
from matrix_cells.simulated_play import play
from msgspec.structs import replace

from stallguard.core import policy
from stallguard.core.detection import verdict
from stallguard.core.diagnosis import causes
from tests import examples

BENCHES = Path(__file__).parents[1] / "scripts" / "benches"
CELLS = examples.of(200, fast=40)
ONCE_WRONG = [  # each showed a defect of the product
    "silence=device,cure=always,order=cpu,patience=0.25,rows=8,seed=2000002609",
    "silence=device,gpu=ours-no-power,workers=yes,cure=always,order=halve,patience=0.25,rows=64,stacks=none,seed=375",
    "phase=finishing,pause=asleep,order=notify,patience=0.25,saved=no,seed=316",
    "silence=held-busy,phase=first,gpu=ours-no-power,cure=always,again=first,order=stop,patience=0.25,seed=75",
    "silence=held-busy,phase=callback,pause=starved,seed=3",
    "silence=sleep,phase=callback,pause=asleep,workers=yes,cure=always,again=further,other=spin,patience=0.25,seed=166",
    "silence=hung-device,phase=early,gpu=ours-no-power,cure=half,again=further,rows=64,seed=434",
    "silence=sleep,gpu=others,cure=always,patience=0.25,rows=2,min_batch=16,stacks=none,seed=11000000117",
    "silence=lock,phase=early,gpu=others,cure=twice,other=lock,patience=4,trainings=2,stacks=none,seed=204000019658",
]


def wrong(*specs):
    """Return what is wrong in cells: the promises, by cell."""
    return [{one.promise for one in judged(parsed(spec))} for spec in specs]


@pytest.mark.costly
def test_no_random_cell_is_wrong():
    found = {cell.spec: bad for cell in map(draw, range(CELLS)) if (bad := judged(cell))}

    assert found == {}


@pytest.mark.costly
@pytest.mark.parametrize("spec", ONCE_WRONG)
def test_cells_that_were_wrong_are_right(spec):
    assert wrong(spec) == [set()]


def test_a_cell_is_repeated_by_its_spec():
    for seed in range(20):
        cell = draw(seed)
        assert parsed(cell.spec) == cell
    first, again = play(draw(3)), play(parsed(draw(3).spec))
    assert first.world.done == again.world.done
    with pytest.raises(SystemExit):
        parsed("silence=loud")


def test_the_oracle_asks_nothing_of_the_product():
    for name in ("promises", "simulated_cells"):
        assert "import stallguard" not in (BENCHES / "matrix_cells" / f"{name}.py").read_text()
        assert "from stallguard" not in (BENCHES / "matrix_cells" / f"{name}.py").read_text()


def test_a_stall_that_is_noticed_late_or_early_is_wrong(monkeypatch):
    known = verdict.thresholds

    def scaled(factor):
        def other(*given):
            found = known(*given)
            return replace(found, external=found.external * factor, idle=found.idle * factor)

        return other

    socket = "silence=socket,patience=0.25,seed=1"
    assert wrong(socket) == [set()]
    monkeypatch.setattr("stallguard.core.detection.verdict.thresholds", scaled(2.0))
    assert {"noticed", "judged"} <= wrong(socket)[0]
    monkeypatch.setattr("stallguard.core.detection.verdict.thresholds", scaled(0.5))
    assert {"noticed", "judged"} <= wrong(socket)[0]


def test_work_that_is_called_a_stall_is_wrong(monkeypatch):
    compiles, known = "silence=compile,seed=1", verdict.thresholds
    assert wrong(compiles) == [set()]
    monkeypatch.setattr(
        "stallguard.core.detection.verdict.thresholds", lambda *given: replace(known(*given), working=20.0)
    )
    assert "no stall" in wrong(compiles)[0]


def test_a_ladder_without_its_last_step_is_wrong(monkeypatch):
    needs_the_cpu = "silence=device,gpu=ours,cure=cpu,patience=0.25,rows=64,seed=1"
    assert wrong(needs_the_cpu) == [set()]
    known = causes.CAUSES[causes.DEVICE_WAIT]
    shorter = known._replace(remedy=known.remedy._replace(ladder=(causes.SAME, causes.HALF)))
    monkeypatch.setitem(causes.CAUSES, causes.DEVICE_WAIT, shorter)
    assert "steps" in wrong(needs_the_cpu)[0]


def test_a_batch_of_unknown_size_that_counts_as_none_is_wrong(monkeypatch):
    halves = "silence=memory-kill,cure=eighth,seed=1"
    assert wrong(halves) == [set()]
    monkeypatch.setattr(policy, "known_rows", lambda past: 0)
    assert "steps" in wrong(halves)[0]
