"""Where runs live, and how one is found by what a person types."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.storage import paths


def make(runs: Path, *names: str) -> list[paths.RunDir]:
    made = [paths.new_run(name, "20260101-000000", runs) for name in names]
    for run in made:
        run.asked.write_text("{}")
    return made


def test_a_new_run_is_a_private_directory_and_latest_points_at_it(tmp_path: Path) -> None:
    first, second = make(tmp_path, "train", "train")

    assert (first.id, second.id) == ("20260101-000000-train", "20260101-000000-train-2")
    assert (tmp_path / "latest").resolve() == second.path
    assert first.path.stat().st_mode & 0o777 == 0o700


def test_a_run_is_found_by_a_unique_part_of_its_id(tmp_path: Path) -> None:
    alpha, _beta = make(tmp_path, "alpha", "beta")

    assert paths.find_run("alp", tmp_path) == alpha
    assert paths.find_run(str(alpha.path), tmp_path).id == alpha.id


def test_checkpoints_that_are_not_resumed_from_are_kept_aside_and_the_seed_stays(tmp_path: Path) -> None:
    [run] = make(tmp_path, "train")
    generation = run.checkpoints / "process" / "fit-0001" / "g1"
    generation.mkdir(parents=True)
    (run.checkpoints / "seed").write_text("42")

    run.set_checkpoints_aside(2)

    assert not run.has_checkpoints()
    assert (run.checkpoints / "seed").read_text() == "42"
    assert (run.path / "checkpoints-before-2" / "process" / "fit-0001" / "g1").is_dir()


def test_no_name_means_the_newest(tmp_path: Path) -> None:
    _, beta = make(tmp_path, "alpha", "beta")

    assert paths.find_run(None, tmp_path) == beta


def test_the_run_that_was_begun_last_is_the_newest_also_if_the_clock_was_a_year_ahead(tmp_path: Path) -> None:
    ahead = paths.new_run("train", "20270101-000000", tmp_path)
    after = paths.new_run("train", "20260101-000000", tmp_path)
    trial = paths.new_run("train", "20260101-000001", tmp_path, trial=True)
    for run in (ahead, after, trial):
        run.asked.write_text("{}")

    assert paths.list_runs(tmp_path) == [ahead, after, trial]
    assert (tmp_path / "latest").resolve() == after.path
    assert paths.find_run("last", tmp_path) == paths.find_run(None, tmp_path) == after
    assert paths.find_run("train", tmp_path) == trial


def test_runs_of_a_second_are_in_the_order_in_which_they_were_begun(tmp_path: Path) -> None:
    runs = make(tmp_path, *["train"] * 11)

    assert paths.list_runs(tmp_path) == runs


def test_runs_whose_order_was_not_recorded_come_first_by_their_names(tmp_path: Path) -> None:
    early, late, new = make(tmp_path, "a", "b", "0")
    for old in (early, late):
        (old.path / paths.ORDER).unlink()

    assert paths.list_runs(tmp_path) == [early, late, new]


def test_a_wrong_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    make(tmp_path, "transformer")

    with pytest.raises(StallguardError) as caught:
        paths.find_run("20260101-000000-tranformer", tmp_path)

    assert "did you mean 20260101-000000-transformer" in caught.value.cure


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StallguardError, match="cannot make a run directory") as caught:
        paths.new_run("train", "x", tmp_path / "file" / "runs")

    assert caught.value.code == CANNOT_RUN


def test_a_socket_directory_is_private_and_short_and_lies_beside_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        monkeypatch.setenv("STALLGUARD_HOME", home)
        made = paths.socket_dir(owner=Path("/runs/one"))

        assert made.parent == Path(home) / "s"
        assert made.stat().st_mode & 0o777 == 0o700
        assert len(str(made / "control")) <= paths.SOCKET_PATH_MAX
        assert (made / paths.OWNER).read_text() == "/runs/one"


def test_a_home_that_is_too_long_for_sockets_has_them_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 90)
    monkeypatch.setenv("STALLGUARD_HOME", str(deep))
    made = paths.socket_dir()
    try:
        assert made.stat().st_mode & 0o777 == 0o700
        assert len(str(made / "control")) <= paths.SOCKET_PATH_MAX
        assert list((deep / "s").iterdir()) == []
    finally:
        made.rmdir()


def test_a_socket_path_that_would_not_fit_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()

    with pytest.raises(StallguardError, match="no directory for the sockets") as caught:
        paths.socket_dir(str(deep))

    assert caught.value.code == CANNOT_RUN
    assert list(deep.iterdir()) == []


@pytest.mark.parametrize("text", ["train", "20260101", "train-2"])
def test_the_newest_run_that_fits_is_meant_and_that_is_said(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make(tmp_path, "train", "train", "train")

    found = paths.find_run(text, tmp_path)

    assert found == (made[1] if text == "train-2" else made[2])
    said = capsys.readouterr().err
    assert said == ("" if text == "train-2" else f"stallguard: '{text}' fits 3 runs; the newest is {found.id}\n")


@pytest.mark.parametrize("text", [None, "last", "latest"])
def test_a_trial_of_find_batch_is_never_meant_by_the_newest(tmp_path: Path, text: str | None) -> None:
    [alpha] = make(tmp_path, "alpha")
    trial = paths.new_run("zeta", "20270101-000000", tmp_path, trial=True)
    trial.asked.write_text("{}")

    assert paths.find_run(text, tmp_path) == alpha
    assert paths.find_run("zeta", tmp_path) == trial
    assert (tmp_path / "latest").resolve() == alpha.path


def test_runs_are_kept_where_programs_keep_the_users_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STALLGUARD_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/of/the/user")
    usual = "Library/Application Support" if sys.platform == "darwin" else ".local/share"

    for base, expected in (
        (None, f"/home/of/the/user/{usual}/stallguard"),
        ("", f"/home/of/the/user/{usual}/stallguard"),
        ("not/absolute", f"/home/of/the/user/{usual}/stallguard"),
        ("/data", "/data/stallguard"),
    ):
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
        if base is not None:
            monkeypatch.setenv("XDG_DATA_HOME", base)
        assert paths.home() == Path(expected)
