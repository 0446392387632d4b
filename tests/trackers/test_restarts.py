"""A restarted attempt goes on in the W&B and MLflow run of the attempt before: with the real libraries, offline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guarded.runs import Guarded, stallguard

SCRIPT = Path(__file__).parent / "scripts" / "tracked.py"


@pytest.fixture
def tracked(tmp_path, other_python):
    """Return a function that runs the script below stallguard until it ends."""
    python = other_python("trackers")
    env = {
        "WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_TRACKING_URI": f"file://{tmp_path}/mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true", "TMPDIR": str(tmp_path / "tmp"),  # a crash leaves files of wandb there
    }  # fmt: skip
    (tmp_path / "tmp").mkdir()

    def run(what: str, *options: str, **more: str) -> Guarded:
        words = ("run", "--python", python, "--set", "policy.backoff=0s", *options, str(SCRIPT), what)
        return stallguard(tmp_path / "home", *words, env=env | more, cwd=tmp_path)

    return run


def ids(done: Guarded) -> list[str]:
    """Return the ids of the runs that the attempts used, in order."""
    assert done.code == 0, done.err
    assert done.outcome()["attempts"] == 2
    return [line.split()[1] for line in done.out.decode().splitlines() if line.startswith("run ")]


@pytest.mark.parametrize("library", ["wandb", "mlflow"])
def test_the_second_attempt_goes_on_in_the_run_of_the_first(tracked, tmp_path, library):
    first, second = ids(done := tracked(library))

    assert first == second
    noted = [one.text for one in done.events if getattr(one, "kind", "") == "tracker"]
    assert len(noted) == 1
    assert noted[0].endswith(first)
    if library == "mlflow":  # both attempts' values are in one run
        (values,) = (tmp_path / "mlruns").glob("*/*/metrics/loss")
        assert [line.split()[2] for line in values.read_text().splitlines()] == list("012012345")
    else:
        # W&B names a directory by the second, so attempts that begin in one second share it.
        assert len(list((tmp_path / "wandb").glob(f"offline-run-*-{first}"))) in (1, 2)


@pytest.mark.parametrize("what", ["wandb-own-id", "mlflow-own-id"])
def test_an_id_that_the_script_chooses_wins(tracked, what):
    first, second = ids(tracked(what))

    assert first != second


def test_an_id_of_the_environment_wins(tracked):
    assert ids(tracked("wandb", WANDB_RUN_ID="mine1234")) == ["mine1234", "mine1234"]


def test_with_the_setting_off_each_attempt_has_its_own_run(tracked):
    first, second = ids(tracked("mlflow", "--set", "trackers.resume=off"))

    assert first != second


def test_several_trainings_of_a_process_keep_a_run_each(tracked):
    one, two, again_one, again_two = ids(tracked("mlflow-two"))

    assert one != two
    assert (again_one, again_two) == (one, two)


def test_a_parameter_with_another_value_is_reported_and_does_not_fail_the_attempt(tracked, tmp_path):
    first, second = ids(done := tracked("mlflow-parameter"))

    assert first == second
    (kept,) = (tmp_path / "mlruns").glob("*/*/params/rate")
    assert kept.read_text().isdecimal()  # of the first attempt, and still one value
    noted = [one.text for one in done.events if getattr(one, "kind", "") == "tracker"]
    assert sum("keeps its earlier value of the parameter rate" in text for text in noted) == 2
    assert list((tmp_path / "mlruns").glob("*/*/params/second"))
