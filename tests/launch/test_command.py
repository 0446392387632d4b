"""COMMAND becomes an argv, and stallguard knows whether it can look inside."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from stallguard.errors import NOT_FOUND, StallguardError
from stallguard.launch.command import Disk, choose_interpreter, reach, resolve

THERE = {"/env/bin/python", "/conda/bin/python", "/opt/py/bin/python3.11"}
ON_PATH = {"python3": "/usr/bin/python3", "python3.11": "/opt/py/bin/python3.11"}


class Choice(NamedTuple):
    path: str
    why: str


PYTHON = Choice("/env/bin/python", "a test says so")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("python", "bash", "tool"):
        (tmp_path / "bin" / name).write_bytes(b"\x7fELF")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    (tmp_path / "job").mkdir()
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").touch()
    return Disk({"PATH": str(tmp_path / "bin")}, str(tmp_path))


def resolved(place, *words):
    return resolve(words, lambda: PYTHON, place)


def refusal(place, *words):
    with pytest.raises(StallguardError) as caught:
        resolved(place, *words)
    return caught.value


@pytest.mark.parametrize("words", [("train.py", "--epochs", "3"), ("-m", "pkg.train", "-x"), ("app",)])
def test_scripts_modules_and_packages_get_the_chosen_interpreter(place, words):
    command = resolved(place, *words)
    assert command.argv == [PYTHON.path, *words]
    assert command.interpreter is PYTHON


def test_a_named_program_is_run_as_it_is_and_no_interpreter_is_chosen(place, tmp_path):
    def nobody_asks():
        raise AssertionError

    command = resolve(("python", "-u", "train.py"), nobody_asks, place)
    assert command.argv == [str(tmp_path / "bin" / "python"), "-u", "train.py"]
    assert command.interpreter is None


def test_an_executable_file_needs_no_dot_and_slash(place, tmp_path):
    (tmp_path / "train.sh").chmod(0o755)
    assert resolved(place, "train.sh", "x").argv == ["./train.sh", "x"]
    assert resolved(place, "./train.sh").argv == ["./train.sh"]


def test_a_missing_script_is_127_and_the_nearest_name_is_suggested(place):
    error = refusal(place, "trian.py")
    assert error.code == 127
    assert "train.py" in error.cure


def test_a_missing_program_in_a_folder_is_looked_for_there(place, tmp_path):
    error = refusal(place, f"{tmp_path}/train")
    assert error.code == 127
    assert f"{tmp_path}/train.py" in error.cure


def test_a_program_found_nowhere_is_127(place):
    error = refusal(place, "xyzzy")
    assert (error.code, "PATH" in error.cure) == (127, True)


def test_a_file_without_the_executable_bit_is_126_with_both_cures(place):
    error = refusal(place, "./train.sh")
    assert error.code == 126
    assert "chmod +x ./train.sh" in error.cure
    assert "bash ./train.sh" in error.cure


def test_a_directory_is_126(place):
    assert refusal(place, "job").code == 126


@pytest.mark.parametrize("words", [(), ("",), ("-m",), ("-m", "not-a-module.py"), ("-u", "train.py")])
def test_what_is_no_command_is_a_usage_error(place, words):
    assert refusal(place, *words).code == 2


@pytest.mark.parametrize(
    "argv",
    [
        "python train.py -I",
        "/usr/bin/python3.12 -u -W ignore -X dev train.py",
        "python -Wignore -m pkg -S",
        "python -c pass -E",
        "python --check-hash-based-pycs always t.py",
        "pypy3 t.py",
        "bash train.sh",
        "uv run train.py",
        "nice -n 5 python -u t.py",
        "uv run -- python t.py -S",
    ],
)
def test_the_probe_reaches_python_and_what_starts_python(place, argv):
    assert reach(argv.split(), place) == (True, "")


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        ("python -I t.py", "-I"),
        ("python3 -uE t.py", "-E"),
        ("python -X dev -S t.py", "-S"),
        ("python -W error -BS -m pkg", "-S"),
        ("nice python3 -I t.py", "-I"),
        ("sudo python t.py", "sudo"),
        ("env docker run image", "docker"),
        ("bin/tool", "not a Python program"),
    ],
)
def test_what_cannot_be_injected_is_said_with_its_reason(place, argv, why):
    injectable, said = reach(argv.split(), place)
    assert not injectable
    assert why in said


def test_the_first_line_of_a_script_decides(place, tmp_path):
    (tmp_path / "a").write_text("#!/usr/bin/env python3\n")
    (tmp_path / "b").write_text("#!/usr/bin/python3 -E\n")
    (tmp_path / "c").write_text("#!/bin/zsh\n")
    assert [reach([f"./{name}"], place).injectable for name in "abc"] == [True, False, True]


@pytest.mark.parametrize("program", ["tool", "./here", "bin/tool", "no-such", "data", "directory", "/bin/sh", ""])
def test_a_program_is_found_as_the_standard_library_finds_it(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin" / "directory").mkdir(parents=True)
    for name, mode in (("bin/tool", 0o755), ("here", 0o755), ("bin/data", 0o644)):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(mode)
    monkeypatch.chdir(tmp_path)
    path = f"/nowhere:{tmp_path / 'bin'}"

    assert Disk({"PATH": path}).which(program) == shutil.which(program, path=path)


def which(name):
    return name if name in THERE else ON_PATH.get(name)


def chosen(python="", **env):
    return choose_interpreter(python, env, which, own="/own/python").path


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
    path, why, _ = choose_interpreter("", {}, lambda _name: None, own="/own/python")
    assert path == "/own/python"
    assert "stallguard's own" in why


def test_the_reason_names_the_environment():
    assert choose_interpreter("", {"CONDA_PREFIX": "/conda"}, which).why == "the conda environment /conda is active"


PROJECT = {"/home/me/project/.venv/bin/python": "/home/me/project/.venv/bin/python"}


def in_project(env=None, programs=PROJECT, files=()):
    return choose_interpreter(
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
