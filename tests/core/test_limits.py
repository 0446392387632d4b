"""Each row of the tuning table says what it means; a more specific class of evidence never takes longer."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core.limits import DetectorLimits, PhaseTable, PolicyLimits, rows_of


def test_each_number_of_the_detector_is_a_row_with_a_unit_and_a_meaning() -> None:
    rows = rows_of(DetectorLimits)
    assert set(DetectorLimits.__struct_fields__) - set(rows) == {"patience", "table", "rows"}
    assert all(row.unit and row.meaning for row in rows.values())


@pytest.mark.parametrize("phase", PhaseTable.__struct_fields__)
def test_the_more_specific_the_evidence_the_sooner_it_is_a_stall(phase: str) -> None:
    deadlock, external, spin, working, *priors, enough = msgspec.structs.astuple(getattr(PhaseTable(), phase))
    assert deadlock <= external <= working
    assert spin <= working
    assert all(prior >= floor for prior, floor in zip(priors, (deadlock, external, spin, working), strict=True))
    assert enough >= 1


@pytest.mark.parametrize("given", [{"batch": 32}, {"batch_flag": "--batch"}, {"batch_env": "BATCH"}])
def test_a_script_that_gets_its_batch_size_is_not_sliced_as_well(given: dict[str, object]) -> None:
    assert PolicyLimits(**given).gives_size
    assert not PolicyLimits().gives_size
