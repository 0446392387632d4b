"""What would fail at night is refused at install, with its reason and its cure."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from stallguard.agent import preflight
from stallguard.agent.service_manager import LAUNCHD, SYSTEMD
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.host import guarded_folders


def refused(action, *arguments) -> str:
    with pytest.raises(StallguardError) as caught:
        action(*arguments)
    assert caught.value.code == CANNOT_RUN
    assert caught.value.cure
    return "\n".join(caught.value.lines())


def check(job, home, words=("train.py",), system=LAUNCHD):
    preflight.check(job, (job.python,), words, system, home)


def test_a_sound_job_passes(job, home):
    check(job, home)
    check(job, home, system=SYSTEMD)


@pytest.mark.parametrize("folder", [*guarded_folders.GUARDED, "documents/deep"])
def test_a_project_in_a_folder_that_macos_guards_is_refused(job, home, folder):
    place = home / folder
    place.mkdir(parents=True)

    words = refused(check, replace(job, cwd=str(place)), home)

    assert "macOS protects" in words
    assert "~/train" in words
    check(replace(job, cwd=str(place)), home, system=SYSTEMD)


def test_a_link_into_a_guarded_folder_is_followed(job, home):
    (home / "Documents" / "project").mkdir(parents=True)
    (home / "train" / "data").symlink_to(home / "Documents" / "project")
    assert "~/Documents" in refused(check, job, home, ("train.py", "--data", "data/"))


@pytest.mark.parametrize("word", ["{home}/Downloads/x.csv", "--data={home}/Downloads/x.csv", "../Downloads/x.csv"])
def test_data_in_a_guarded_folder_is_refused(job, home, word):
    (home / "Downloads").mkdir()
    (home / "Downloads" / "x.csv").write_text("")
    assert "~/Downloads" in refused(check, job, home, ("train.py", word.format(home=home)))


@pytest.mark.parametrize("word", ["Downloads/not-there.csv", "https://host/Downloads/x", "a\0b", "", "x=", "--lr=1e-3"])
def test_words_that_are_no_paths_are_left_alone(job, home, word):
    check(job, home, ("train.py", word))


def test_an_environment_in_a_guarded_folder_is_refused_although_its_python_is_a_link_that_leads_out(job, home):
    python = home / "Documents" / "envs" / "tf" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert "~/Documents" in refused(check, replace(job, python=str(python)), home)


def test_a_link_on_the_way_through_a_guarded_folder_is_followed(job, home):
    (home / "Documents" / "env" / "bin").mkdir(parents=True)
    (home / "Documents" / "env" / "bin" / "python").symlink_to(sys.executable)
    (home / "env").symlink_to("Documents/env")
    assert "~/Documents" in refused(check, replace(job, python=str(home / "env/bin/python")), home)


@pytest.mark.parametrize("name", ["STALLGUARD_HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "MY_DATA"])
def test_a_variable_that_leads_into_a_guarded_folder_is_refused(job, home, name):
    env = job.env | {name: f"/usr/lib:{home}/Documents/lib"}
    assert "~/Documents" in refused(check, replace(job, env=env), home)


def test_a_folder_on_path_is_no_reason_to_refuse(job, home):
    check(replace(job, env={"PATH": f"{home}/Documents/bin:/usr/bin"}), home)


def test_an_option_that_leads_into_a_guarded_folder_is_refused(job, home):
    (home / "Downloads").mkdir()
    run = ("--set", f"notify.command={home}/Downloads", *job.run)
    assert "~/Downloads" in refused(check, replace(job, run=run), home)


def test_a_neighbour_of_a_guarded_folder_is_free(job, home):
    (home / "Documents2").mkdir()
    check(replace(job, cwd=str(home / "Documents2")), home)


def test_a_relative_interpreter_is_refused():
    assert "not an absolute path" in refused(preflight.check_interpreter, "python3")


def test_a_vanished_interpreter_is_refused(tmp_path):
    assert "no interpreter" in refused(preflight.check_interpreter, str(tmp_path / "python"))
    assert "no interpreter" in refused(preflight.check_interpreter, str(tmp_path))


def test_an_interpreter_that_leads_nowhere_names_where_it_led(tmp_path):
    (tmp_path / "python").symlink_to(tmp_path / "Cellar" / "python3.11")
    assert "Cellar/python3.11, which is gone" in refused(preflight.check_interpreter, str(tmp_path / "python"))


def environment(place: Path, base: Path) -> Path:
    (place / "bin").mkdir(parents=True)
    shutil.copy(sys.executable, place / "bin" / "python")
    (place / "pyvenv.cfg").write_text(f"home = {base}\nversion = 3.11\n")
    return place / "bin" / "python"


def test_an_environment_whose_base_is_gone_is_refused(tmp_path):
    python = environment(tmp_path / "venv", tmp_path / "gone")
    assert f"made from {tmp_path}/gone" in refused(preflight.check_interpreter, str(python))
    (tmp_path / "gone").mkdir()
    preflight.check_interpreter(str(python))


@pytest.mark.parametrize("cache", ["uv/archive-v0/x", "uv/environments-v2/x", "pipx/.cache/x"])
def test_an_environment_in_a_cache_is_refused(tmp_path, cache):
    python = environment(tmp_path / cache, tmp_path)
    assert "uv tool install ." in refused(preflight.check_interpreter, str(python))


def test_a_working_directory_that_is_gone_is_refused(job, home):
    assert "is not there" in refused(check, replace(job, cwd=str(home / "nowhere")), home, (), SYSTEMD)
