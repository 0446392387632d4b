"""The file of sampled stacks: nothing is read of it that is not whole."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stallguard.storage import stack_samples
from stallguard.storage.paths import RunDir
from stallguard.storage.stack_samples import CodeLine, StackSamples, StackTime
from tests.report import sampled

SAMPLES = StackSamples(
    1, 1, 1000, [CodeLine("train.py", 3, "main")], [StackTime("training", "step", (0,), 1000)], beats=7
)


def test_what_the_probe_wrote_is_read(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    file = sampled.write(run, 7, SAMPLES)
    assert file == stack_samples.path(run.probe, 7)
    assert stack_samples.read(file) == SAMPLES
    assert stack_samples.is_begun(file)


@pytest.mark.parametrize("damage", [{"lines": []}, {"samples": "many"}], ids=["a line that is not there", "no number"])
def test_a_damaged_file_is_not_read(tmp_path: Path, damage: dict[str, object]) -> None:
    file = sampled.write(RunDir(tmp_path), 7, msgspec.structs.replace(SAMPLES, **damage))
    assert stack_samples.read(file) is None
    assert stack_samples.is_begun(file)


def test_before_the_first_write_a_file_is_empty_and_not_damaged(tmp_path: Path) -> None:
    file = tmp_path / "7.profile"
    file.write_bytes(bytes(64))
    assert stack_samples.read(file) is None
    assert not stack_samples.is_begun(file)
