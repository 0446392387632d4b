"""A real Python imports from folders and archives as installers, clusters and users make them."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Says of each module that it is asked for whether the code of its function is a library's.
ASKS = f"""
import importlib, json, sys
sys.path.append({str(ROOT)!r})
from stallguard.probe import libraries
def asked(names):
    functions = [importlib.import_module(name).function for name in names]
    libraries.imported()  # reads what is known of them, as the finder of the probe does
    return [libraries.is_librarys(one.__code__.co_filename) for one in functions]
"""
SAYS = (
    ASKS
    + """
def function(): pass
me = libraries.is_librarys(function.__code__.co_filename)
print(json.dumps([me, *asked(sys.argv[1:])]))
"""
)
MODULE = "def function(): pass\n"


def put(place, *names, record=True):
    """Put packages into a folder, as an installer or as a user."""
    for name in names:
        (place / name).mkdir(parents=True)
        (place / name / "__init__.py").write_text(MODULE)
        if record:
            info = place / f"{name}-1.0.dist-info"
            info.mkdir()
            (info / "RECORD").write_text(f"{name}/__init__.py,,\n{name}-1.0.dist-info/RECORD,,\n")
    return place


def said(*command, path=(), folder=None, python=sys.executable):
    """Return what Python says of its own code, and of that of each module."""
    environment = {"PYTHONPATH": ":".join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(
        [python, *map(str, command)], capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "project" / "train.py"
    path.parent.mkdir()
    path.write_text(SAYS)
    return path


@pytest.mark.parametrize(
    "layout",
    [
        "libs",  # pip install --target
        "envs/night/lib/python3.11/site-packages",  # conda
        "usr/lib/python3/dist-packages",  # Debian
        "project/libs",
        "project",  # pip install --target .
    ],
)
def test_an_installed_package_is_a_library_and_the_users_folder_is_not(tmp_path, script, layout):
    installed = put(tmp_path / layout, "fancy")
    if layout.startswith("envs"):
        (tmp_path / "envs" / "night" / "conda-meta").mkdir()
        (tmp_path / "envs" / "night" / "conda-meta" / "history").write_text("")
    mine = put(tmp_path / "helpers", "helper", record=False)
    assert said(script, "fancy", "helper", path=[installed, mine]) == [False, True, False]


def test_what_an_archive_holds_is_a_library_if_it_was_installed_there(tmp_path, script):
    for name, record in (("fancy", True), ("helper", False)):
        folder = put(tmp_path / name, name, record=record)
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            for file in sorted(folder.rglob("*")):
                archive.write(file, file.relative_to(folder))
    path = [tmp_path / "fancy.zip", tmp_path / "helper.zip"]
    assert said(script, "fancy", "helper", path=path) == [False, True, False]


def test_an_application_in_an_archive_is_the_script(tmp_path):
    application = tmp_path / "train.pyz"
    with zipfile.ZipFile(application, "w") as archive:
        archive.writestr("__main__.py", SAYS)
        archive.writestr("helper.py", MODULE)
    assert said(application, "helper") == [False, False]


def test_a_project_that_is_installed_in_editable_form_is_the_scripts(tmp_path, script):
    """As setuptools does it: a .pth in the installer's folder, and an egg-info beside the sources."""
    source = put(tmp_path / "clone" / "src", "mine", record=False)
    (source / "mine.egg-info").mkdir()
    (source / "mine.egg-info" / "top_level.txt").write_text("mine\n")
    installed = put(tmp_path / "env" / "lib" / "python3.11" / "site-packages", "fancy")
    (installed / "mine-1.0.dist-info").mkdir()
    (installed / "mine-1.0.dist-info" / "RECORD").write_text("__editable__.mine-1.0.pth,,\n")
    (installed / "__editable__.mine-1.0.pth").write_text(f"{source}\n")
    code = f"import site; site.addsitedir({str(installed)!r})\n" + SAYS
    script.write_text(code)
    assert said(script, "mine", "fancy") == [False, False, True]


@pytest.mark.parametrize("below", ["", "keras"])
def test_a_clone_of_keras_is_a_library_in_editable_form_too(tmp_path, script, below):
    source = put(tmp_path / "clone", "keras", record=False)
    (source / "keras" / "src").mkdir()
    (source / "keras" / "src" / "__init__.py").write_text(MODULE)
    assert said(script, "keras", "keras.src", path=[source]) == [False, True, True]


@pytest.mark.parametrize("place", ["in the project", "installed"])
def test_a_package_that_is_started_by_its_name_is_the_script(tmp_path, place):
    folder = tmp_path / ("project" if place == "in the project" else "lib/python3.11/site-packages")
    put(folder, "trainer", "fancy", record=place == "installed")
    (folder / "trainer" / "__main__.py").write_text(SAYS)
    (folder / "trainer" / "models.py").write_text(MODULE)
    there = said("-m", "trainer", "trainer", "trainer.models", "fancy", path=[folder], folder=tmp_path)
    assert there == [False, False, False, place == "installed"]


def test_a_package_that_is_started_by_the_command_of_its_installer_is_the_script(tmp_path):
    installed = put(tmp_path / "lib" / "python3.11" / "site-packages", "trainer", "fancy")
    (installed / "trainer" / "cli.py").write_text(f"def main():\n    exec({SAYS!r}, globals())\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    command = tmp_path / "bin" / "trainer"
    command.write_text("import re, sys\nfrom trainer.cli import main\nif __name__ == '__main__': sys.exit(main())\n")
    there = said(command, "trainer", "fancy", path=[installed], python=tmp_path / "bin" / "python")
    assert there[1:] == [False, True]


def test_a_script_in_a_folder_that_bears_the_name_of_an_installers_is_a_script(tmp_path):
    folder = put(tmp_path / "site-packages", "helper", record=False)
    (folder / "train.py").write_text(SAYS)
    put(folder / ".venv" / "lib" / "python3.11" / "site-packages", "fancy")
    path = [folder / ".venv" / "lib" / "python3.11" / "site-packages"]
    assert said(folder / "train.py", "helper", "fancy", path=path) == [False, False, True]


def test_a_script_beside_installed_packages_is_one_alone(tmp_path):
    folder = put(tmp_path / "lib" / "python3.11" / "site-packages", "fancy")
    (folder / "train.py").write_text(SAYS)
    assert said(folder / "train.py", "fancy") == [False, True]


@pytest.mark.parametrize("name", ["/tmp/ipykernel_4711/123456.py", "<ipython-input-3-0a1b2c>"])
def test_the_cells_of_a_notebook_are_the_script_and_its_kernel_is_not(tmp_path, name):
    """As a kernel runs a cell: its launcher is started by name, and replaces the module __main__."""
    installed = put(tmp_path / "lib" / "python3.11" / "site-packages", "ipykernel")
    cell = "def function(): pass\nprint(json.dumps([libraries.is_librarys(function.__code__.co_filename), kernel]))"
    (installed / "ipykernel_launcher.py").write_text(
        ASKS + "import types\ncell = types.ModuleType('__main__')\nsys.modules['__main__'] = cell\n"
        "cell.kernel = [*asked(['ipykernel']), libraries.is_librarys(asked.__code__.co_filename)]\n"
        "cell.__dict__.update(json=json, libraries=libraries)\n"
        f"exec(compile({cell!r}, {name!r}, 'exec'), cell.__dict__)\n"
    )
    assert said("-m", "ipykernel_launcher", path=[installed]) == [False, [True, True]]


def test_a_module_of_python_that_starts_the_script_stays_pythons(tmp_path, script):
    """`python -m cProfile` is the first __main__."""
    script.write_text(SAYS.replace("asked(sys.argv[1:])", "[libraries.is_librarys(importlib.__file__)]"))
    assert said("-m", "cProfile", "-o", tmp_path / "profile", script) == [False, True]
