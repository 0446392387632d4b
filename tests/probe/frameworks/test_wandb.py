"""A restarted attempt goes on in the W&B run of the attempt before."""

from __future__ import annotations

from .tracked_runs import goes_on, ids


def test_the_second_attempt_goes_on_in_the_run_of_the_first(tracked, tmp_path):
    first = goes_on(tracked("wandb"))

    # W&B names a directory by the second, so attempts that begin in one second share it.
    assert len(list((tmp_path / "wandb").glob(f"offline-run-*-{first}"))) in (1, 2)


def test_an_id_that_the_script_chooses_wins(tracked):
    first, second = ids(tracked("wandb-own-id"))

    assert first != second


def test_an_id_of_the_environment_wins(tracked):
    assert ids(tracked("wandb", WANDB_RUN_ID="mine1234")) == ["mine1234", "mine1234"]
