"""Which Python runs a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallguard.errors import NOT_FOUND, StallguardError
from stallguard.launch.interpreter import choose

THERE = {"/env/bin/python", "/conda/bin/python", "/opt/py/bin/python3.11"}
ON_PATH = {"python3": "/usr/bin/python3", "python3.11": "/opt/py/bin/python3.11"}


def which(name):
    return name if name in THERE else ON_PATH.get(name)


def chosen(python="", **env):
    return choose(python, env, which, own="/own/python").path


def test_the_option_wins_over_an_active_environment():
    assert chosen("python3.11", VIRTUAL_ENV="/env") == "/opt/py/bin/python3.11"


def test_the_option_may_be_the_directory_of_an_environment():
    assert chosen("/env/") == "/env/bin/python"


def test_an_option_that_is_no_interpreter_is_refused_and_not_replaced():
    with pytest.raises(StallguardError, match="no such interpreter: /nowhere") as error:
        chosen("/nowhere", VIRTUAL_ENV="/env")
    assert error.value.code == NOT_FOUND


def test_a_virtual_environment_inside_of_conda_wins():
    assert chosen(VIRTUAL_ENV="/env", CONDA_PREFIX="/conda") == "/env/bin/python"


def test_a_virtual_environment_that_was_deleted_does_not_count():
    assert chosen(VIRTUAL_ENV="/gone", CONDA_PREFIX="/conda") == "/conda/bin/python"


def test_without_an_environment_the_python_that_the_user_would_start_is_taken():
    assert chosen() == "/usr/bin/python3"


def test_our_own_is_the_last_resort_and_says_so():
    path, why, _ = choose("", {}, lambda _name: None, own="/own/python")
    assert path == "/own/python"
    assert "stallguard's own" in why


def test_the_reason_names_the_environment():
    assert choose("", {"CONDA_PREFIX": "/conda"}, which).why == "the conda environment /conda is active"


PROJECT = {"/home/me/project/.venv/bin/python": "/home/me/project/.venv/bin/python"}


def in_project(env=None, programs=PROJECT, files=()):
    return choose(
        "", env or {}, {**ON_PATH, **programs, "/env/bin/python": "/env/bin/python"}.get,
        cwd=Path("/home/me/project/src"), there=lambda path: str(path) in files,
    )  # fmt: skip


def test_the_environment_of_the_project_is_found_from_the_working_directory_upwards():
    found = in_project()

    assert found.path == "/home/me/project/.venv/bin/python"
    assert "/home/me/project/.venv of the project" in found.why
    assert in_project({"VIRTUAL_ENV": "/env"}).path == "/env/bin/python", "what is active wins"


@pytest.mark.parametrize(
    ("file", "starter"),
    [("poetry.lock", "poetry run"), ("uv.lock", "uv run"), ("environment.yml", "conda run -n NAME")],
)
def test_an_environment_that_lies_elsewhere_is_named(file, starter):
    found = in_project(programs={}, files={f"/home/me/project/{file}"})

    assert found.path == "/usr/bin/python3"
    assert f"{starter}" in found.hint
    assert in_project(programs={}).hint == ""
    assert in_project(files={f"/home/me/project/{file}"}).hint == "", "it was found"
