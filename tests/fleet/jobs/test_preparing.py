"""The environment of a job, made by the real uv without a network: from a wheel in a folder, or of nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stallguard.fleet.jobs import preparing
from stallguard.fleet.jobs.preparing import EnvironmentImpossible, interpreter, key, reason
from tests.host.children import eventually, is_alive

uv = pytest.importorskip("uv")

BACKEND = """
    import pathlib, time, zipfile
    def get_requires_for_build_editable(config_settings=None): return []
    def build_editable(folder, config_settings=None, metadata_directory=None):
        {sleep}
        here = str(pathlib.Path(__file__).parent / "src")
        name = "job-0-py3-none-any.whl"
        with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as file:
            file.writestr("job.pth", here)
            file.writestr("job-0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: job\\nVersion: 0\\n")
            file.writestr("job-0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
            file.writestr("job-0.dist-info/RECORD", "")
        return name
"""
PACKAGE = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def env(tmp_path):
    return {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_OFFLINE": "1",
        "UV_PYTHON": sys.executable, "VIRTUAL_ENV": "/nowhere", "UV_PROJECT_ENVIRONMENT": "/nowhere/else",
    }  # fmt: skip


def wheel(folder, name, version, text):
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", text)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


def project(place, env, *, needs="", more="", files=None):
    """Make a project with a lock file of the real uv."""
    place.mkdir(parents=True)
    for name, text in (files or {}).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(textwrap.dedent(text))
    (place / "pyproject.toml").write_text(
        f'[project]\nname = "job"\nversion = "0"\nrequires-python = ">=3.11"\ndependencies = [{needs}]\n{more}'
    )
    locked = subprocess.run([uv.find_uv_bin(), "lock"], cwd=place, env=env, capture_output=True, text=True, check=False)
    assert locked.returncode == 0, locked.stderr
    return place


def package(place, env, text, sleep="pass"):
    files = {"src/job.py": text, "backend.py": BACKEND.format(sleep=sleep)}
    return project(place, env, more=PACKAGE, files=files)


def says(python, words):
    return subprocess.run([python, "-c", words], capture_output=True, text=True, check=True).stdout.strip()


def test_a_job_gets_what_its_lock_file_names_and_the_next_one_shares_it(tmp_path, env):
    wheels = tmp_path / "wheels"
    wheel(wheels, "tinydep", "1.0", "value = 7\n")
    more = f'[tool.uv]\nno-index = true\nfind-links = ["{wheels}"]\n'
    place = project(tmp_path / "p", env, needs='"tinydep"', more=more)
    python = interpreter(place, "", "", env)
    assert Path(python).is_relative_to(preparing.home())
    assert says(python, "import tinydep; print(tinydep.value)") == "7"
    assert not (place / ".venv").exists()
    made = Path(python).parents[1].stat().st_ino
    assert interpreter(place, "", "", env) == python
    assert Path(python).parents[1].stat().st_ino == made


@pytest.mark.costly
def test_two_digests_of_code_with_one_lock_share_an_environment_only_if_none_of_their_code_is_in_it(tmp_path, env):
    plain = [project(tmp_path / name, env, files={"train.py": name}) for name in ("a", "b")]
    first, second = (interpreter(place, "", "", env) for place in plain)
    assert first == second
    packages = [package(tmp_path / name, env, f"where = {name!r}") for name in ("c", "d")]
    assert (packages[0] / "uv.lock").read_bytes() == (packages[1] / "uv.lock").read_bytes()
    for place in packages:
        python = interpreter(place, "", "", env)
        assert says(python, "import job; print(job.where, job.__file__)") == f"{place.name} {place / 'src/job.py'}"


def test_each_file_that_uv_reads_makes_another_environment(tmp_path, env):
    place = project(tmp_path / "p", env)
    seen = {key(place, place / "uv.lock", place)}
    for name in ("uv.lock", "pyproject.toml", ".python-version"):
        with (place / name).open("a") as file:
            file.write("\n# more")
        seen.add(key(place, place / "uv.lock", place))
    assert len(seen) == 4


def test_without_a_lock_file_the_workers_python_runs_it_unless_another_is_named(tmp_path, env):
    (tmp_path / "p" / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / "p" / "pyproject.toml").touch()
    assert interpreter(tmp_path / "p", "", "", env, own="/own/python") == "/own/python"
    assert interpreter(tmp_path / "p", "", "/opt/python3.12", env) == "/opt/python3.12"


def test_the_lock_file_is_found_from_the_commands_folder_but_not_above_the_project(tmp_path, env):
    place = project(tmp_path / "p", env, files={"jobs/train.py": ""})
    assert interpreter(place, "jobs", "", env) == interpreter(place, "", "", env)
    assert interpreter(place / "jobs", "", "", env, own="own") == "own"


def test_a_member_of_a_workspace_has_the_lock_file_of_the_workspace_and_an_environment_of_its_own(tmp_path, env):
    place = tmp_path / "p"
    member = '[project]\nname = "{}"\nversion = "0"\nrequires-python = ">=3.11"\n'
    files = {f"{name}/pyproject.toml": member.format(name) for name in ("one", "two")}
    project(place, env, more='[tool.uv.workspace]\nmembers = ["one", "two"]\n', files=files)
    found = {interpreter(place, below, "", env) for below in ("", "one", "two")}
    assert len(found) == 3
    assert {says(python, "print(1)") for python in found} == {"1"}


def test_an_environment_that_was_not_made_completely_or_lost_its_python_is_made_again(tmp_path, env):
    place = project(tmp_path / "p", env)
    python = Path(interpreter(place, "", "", env))
    python.unlink()
    python.symlink_to("/nowhere/python3")
    assert says(interpreter(place, "", "", env), "print(1)") == "1"
    python.parents[1].with_suffix(".whole").unlink()
    (python.parents[1] / "half").touch()
    assert says(interpreter(place, "", "", env), "print(1)") == "1"
    assert not (python.parents[1] / "half").exists()


def test_several_jobs_at_once_make_one_environment(tmp_path, env):
    log = tmp_path / "builds"
    place = package(tmp_path / "p", env, "x = 1", sleep=f"open({str(log)!r}, 'a').write('x'); time.sleep(0.3)")
    with ThreadPoolExecutor(3) as pool:
        found = {*pool.map(lambda _: interpreter(place, "", "", env), range(3))}
    assert len(found) == 1
    assert log.read_text() == "x"


def test_what_cannot_be_made_says_why_and_leaves_nothing(tmp_path, env):
    wheels = tmp_path / "wheels"
    wheel(wheels, "tinydep", "1.0", "value = 7\n")
    more = f'[tool.uv]\nno-index = true\nfind-links = ["{wheels}"]\n'
    place = project(tmp_path / "p", env, needs='"tinydep"', more=more)
    shutil.rmtree(wheels)
    with pytest.raises(EnvironmentImpossible, match="No such file or directory"):
        interpreter(place, "", "", {**env, "UV_CACHE_DIR": str(tmp_path / "empty")})
    assert not [one for one in preparing.home().iterdir() if one.is_dir() or one.suffix == ".whole"]
    (place / "uv.lock").write_text("version = 99\n")
    with pytest.raises(EnvironmentImpossible, match=r"uv sync --frozen: error: .*uv\.lock"):
        interpreter(place, "", "", env)


@pytest.mark.costly
def test_a_python_that_this_machine_lacks_is_the_reason(tmp_path, env):
    place = project(tmp_path / "p", env)
    text = (place / "pyproject.toml").read_text().replace(">=3.11", ">=3.99")
    (place / "pyproject.toml").write_text(text)
    with pytest.raises(EnvironmentImpossible, match=r"3\.99"):
        interpreter(place, "", "", {**env, "UV_PYTHON": "", "UV_PYTHON_DOWNLOADS": "never"})


def test_uv_that_is_not_installed_is_the_reason(tmp_path, env, monkeypatch):
    place = project(tmp_path / "p", env)
    monkeypatch.setitem(sys.modules, "uv", None)
    with pytest.raises(EnvironmentImpossible, match="uv is not installed here"):
        interpreter(place, "", "", {**env, "PATH": str(tmp_path)})


@pytest.mark.waits
def test_uv_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path, env):
    pid = tmp_path / "pid"
    place = package(
        tmp_path / "p",
        env,
        "x = 1",
        sleep=f"import os; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)",
    )
    began = time.monotonic()
    with pytest.raises(EnvironmentImpossible, match="did not end within 6 s"):
        interpreter(place, "", "", env, limit=6.0)
    assert time.monotonic() - began < 60
    assert eventually(lambda: not is_alive(int(pid.read_text())))  # a killed process takes a moment to end


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "Using CPython 3.11.7\nerror: Failed to fetch: `https://me:secret@host/x/`\n  Caused by: dns error\n",
            "error: Failed to fetch: `https://host/x/` Caused by: dns error",
        ),
        (
            "Resolved 2 packages\n\x1b[31m  \u00d7 No solution found\x1b[0m\n  ╰─▶ only x<2 is available\n",
            "No solution found only x<2 is available",
        ),
        (
            "error: Distribution `t==1` has no wheel for this platform\n\nhint: You're on Linux\n",
            "error: Distribution `t==1` has no wheel for this platform hint: You're on Linux",
        ),
        ("Killed\n", "Killed"),
        ("", "it failed without a word"),
    ],
)
def test_the_reason_is_the_last_error_with_its_causes(output, expected):
    assert reason(output) == expected
