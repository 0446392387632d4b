"""Scripts that keep checkpoints of their own: what a later attempt is started with, reads, and comes to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .runs import SCRIPTS, Guarded, stallguard
from .test_trainer import printed, undisturbed

SCRIPT = SCRIPTS / "accelerated.py"
WITH = ("--resume-with", "--resume_from_checkpoint {checkpoint}")


@pytest.fixture(scope="module")
def whole(other_python: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the script comes to without a guard."""
    return undisturbed(other_python("hf"), tmp_path_factory.mktemp("whole") / "run", script=SCRIPT)


@pytest.fixture
def ended(
    other_python: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Guarded]:
    """Return what guards the script, which ends itself once: `how`, at a step."""

    def guarded(how: str, step: int, *words: str, options: tuple[str, ...] = ()) -> Guarded:
        monkeypatch.chdir(tmp_path)
        (tmp_path / how).write_text(str(step))
        run = stallguard(
            tmp_path / "home", "run", "--cool-down", "0.3s", *options, "--python", other_python("hf"), str(SCRIPT),
            *words, env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
        )  # fmt: skip
        assert run.code == 0, run.err
        assert not (tmp_path / how).exists()
        assert "trouble" not in run.err
        return run

    return guarded


def begins(run: Guarded) -> list[int]:
    return [one["begins"] for one in printed(run.out.decode()) if "begins" in one]


@pytest.mark.parametrize("how", ["die", "cut"])
def test_the_script_gets_its_newest_whole_checkpoint(
    ended: Callable[..., Guarded], tmp_path: Path, whole: dict[str, Any], how: str
) -> None:
    run = ended(how, 33 if how == "die" else 35, options=WITH)
    newest = tmp_path / "out" / "step_30"
    assert begins(run) == [0, 30]
    assert printed(run.out.decode())[-1] == whole
    (own,) = run.announced("attempt.own")
    assert f"started with --resume_from_checkpoint {newest}" in own["text"]
    assert ("step_35 is not whole (its save was cut off)" in own["text"]) == (how == "cut")
    assert [one["text"] for one in run.announced("attempt.resumed")] == [
        f"the script goes on from its checkpoint {newest}, with the batch that followed it"
    ]
    assert not run.announced("attempt.from_scratch")
    assert not run.announced("attempt.inexact")


def test_accelerate_reads_the_newest_whole_state_in_place_of_one_that_was_cut_off(
    ended: Callable[..., Guarded], tmp_path: Path, whole: dict[str, Any]
) -> None:
    run = ended("cut", 35, "name=automatic")
    assert begins(run) == [0, 30]
    assert printed(run.out.decode())[-1] == whole
    (said,) = [one["text"] for one in run.announced("attempt.inexact")]
    folder = tmp_path / "out" / "checkpoints"
    assert f"accelerate reads {folder / 'checkpoint_5'}" in said
    assert f"in place of {folder / 'checkpoint_6'} (its save was cut off), which is moved to" in said
    assert list((tmp_path / "home").glob("runs/*/checkpoints/*/checkpoint_6~1/optimizer.bin"))


def test_data_in_another_order_after_the_scripts_own_resume_are_named(ended: Callable[..., Guarded]) -> None:
    run = ended("die", 33, "order=lost", options=WITH)
    assert begins(run) == [0, 30]
    (said,) = [one["text"] for one in run.announced("attempt.inexact")]
    assert "step_30, but with another batch than the one that followed it" in said
    assert not run.announced("attempt.resumed")


def test_a_script_that_begins_anew_beside_its_checkpoint_is_named(
    ended: Callable[..., Guarded], tmp_path: Path
) -> None:
    run = ended("die", 33, "unread=1", options=WITH)
    assert begins(run) == [0, 0]
    (said,) = [one["text"] for one in run.announced("attempt.inexact")]
    assert said.startswith("the script began at its first batch")
    assert str(tmp_path / "out" / "step_30") in said


# The report unsloth-zoo#751: a trainer of MLX saves, and what resumes it begins at step 0 without a word.
def test_a_loop_of_mlx_that_saves_and_begins_anew_is_named(
    other_python: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("--cool-down", "0.3s", "--python", other_python("mlx"), str(SCRIPTS / "adapters.py"))
    run = stallguard(tmp_path / "home", "run", *words)

    assert run.code == 0, run.err
    newest = tmp_path / "checkpoint-40" / "adapters.safetensors"
    assert [one["text"] for one in run.announced("attempt.inexact")] == [
        f"the script began at its first batch: it was not seen to read {newest}, which it wrote before"
    ]
    assert not run.announced("attempt.resumed")
