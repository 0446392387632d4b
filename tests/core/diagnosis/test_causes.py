"""Each cause has all that is said, advised and done about it."""

from __future__ import annotations

import pytest

from stallguard.core.diagnosis import causes, diagnose
from stallguard.core.diagnosis.patterns import PATTERNS

STEPS = {causes.SAME, causes.HALF, causes.CPU}


INSTEAD = {causes.WAIT, causes.NOTIFY, causes.STOP, causes.FINISH}


@pytest.mark.parametrize("key", causes.CAUSES)
def test_every_cause_has_every_column(key: str) -> None:
    row = causes.CAUSES[key]
    assert row.key == key == getattr(causes, key.replace("-", "_").upper())
    assert row.title
    assert row.remedy.why
    assert set(row.remedy.ladder) <= STEPS
    assert row.remedy.instead in INSTEAD if not row.remedy.ladder else not row.remedy.instead
    assert all(piece.text and set(piece.when.split()) <= set(diagnose.CLUES) for piece in row.advice)
    assert {type(flag) for flag in (row.advisory, row.urgent, row.any_batch_size)} == {bool}


def test_every_cause_has_a_pattern_and_its_own_title() -> None:
    forecast = {causes.MEMORY_RUNS_OUT, causes.STEPS_NEED_MORE}  # found by core.memory_ahead
    assert {pattern.cause for pattern in PATTERNS} == set(causes.CAUSES) - {causes.UNKNOWN} - forecast
    assert len({row.title for row in causes.CAUSES.values()}) == len(causes.CAUSES)


def test_a_cause_of_another_version_is_called_by_its_key() -> None:
    assert causes.title("never-heard-of") == "never-heard-of"


SHELL = ("while True: yield", "pip ", "stallguard ", "python ", "pmset ", "kill ", "TF_", "TURN_", "AGX_", "CUDA_",
         "NCCL_", "OMP_", "compute-sanitizer ", "nvidia-smi ")  # fmt: skip


def test_code_in_advice_is_python_or_a_command() -> None:
    codes = [piece.code for row in causes.CAUSES.values() for piece in row.advice if piece.code]
    for code in codes:
        if not code.startswith(SHELL):
            compile(f"{code}\ndef step(): ..." if code.startswith("@") else code, "advice", "exec")
