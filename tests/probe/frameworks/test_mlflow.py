"""A restarted attempt goes on in the MLflow run of the attempt before."""

from __future__ import annotations

from .tracked_runs import goes_on, ids


def test_the_second_attempt_goes_on_in_the_run_of_the_first(tracked, tmp_path):
    goes_on(tracked("mlflow"))

    (values,) = (tmp_path / "mlruns").glob("*/*/metrics/loss")  # both attempts' values are in one run
    assert [line.split()[2] for line in values.read_text().splitlines()] == list("012012345")


def test_an_id_that_the_script_chooses_wins(tracked):
    first, second = ids(tracked("mlflow-own-id"))

    assert first != second


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
