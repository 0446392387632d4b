"""The project's own promises: one version, a complete wheel, a suite that notices leaks, documents in step."""

from __future__ import annotations

import ast
import os
import platform
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import stallguard

ROOT = Path(__file__).parent.parent
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Return the wheel as `pip install` would build it; hatchling is called directly, so that no network is needed."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: scripts/setup installs it")
    place = tmp_path_factory.mktemp("wheel")
    build = f"import hatchling.build as b; print(b.build_wheel({str(place)!r}))"
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(next(place.glob("*.whl"))) as archive:
        yield archive


def test_the_wheel_holds_every_file_of_the_package(wheel):
    inside = set(wheel.namelist())
    here = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "stallguard").rglob("*")
        if path.is_file() and not {"__pycache__", ".cache"} & set(path.parts)
    }
    assert here - inside == set()
    assert {"stallguard/py.typed", "stallguard/probe/inject/sitecustomize.py"} <= inside


@pytest.mark.tf
@pytest.mark.live
def test_a_drill_from_an_installed_package_names_the_line_at_which_it_hangs(wheel, tmp_path):
    installed = tmp_path / "lib" / "site-packages"
    wheel.extractall(installed)
    home = {**os.environ, "PYTHONPATH": str(installed), "STALLGUARD_HOME": str(tmp_path / "home")}
    drill = [sys.executable, "-m", "stallguard", "drill", "--python", sys.executable]
    said = subprocess.run(drill, cwd=tmp_path, env=home, capture_output=True, text=True, check=False, timeout=300)
    assert said.returncode == 0, said.stderr
    assert str(tmp_path / "home" / "drills" / "train.py") in said.stderr
    assert re.search(r"it hangs at \S*drills/train\.py:\d+ in main", said.stderr), said.stderr


def test_the_wheel_has_the_version_that_the_package_tells(wheel):
    name = next(name for name in wheel.namelist() if name.endswith("METADATA"))
    metadata = wheel.read(name).decode()
    assert f"\nVersion: {stallguard.__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata


def test_the_distribution_has_a_name_of_its_own_and_names_no_place_that_is_not_ours(wheel):
    name = next(name for name in wheel.namelist() if name.endswith("METADATA"))
    metadata = wheel.read(name).decode()
    head, _, readme = metadata.partition("\n\n")
    assert "\nName: stallguard-train\n" in metadata
    assert "://" not in head
    assert "github.com/stallguard" not in readme
    installs = re.findall(r"^ {4}.*\binstall\b.*$", readme, re.MULTILINE)
    assert [line for line in installs if re.search(r"install\s+stallguard", line)] == []


def test_the_oldest_psutil_allowed_has_what_is_called():
    """Process.net_connections came with psutil 6.0; before, it was Process.connections."""
    bound = next(line for line in PROJECT["project"]["dependencies"] if line.startswith("psutil"))
    assert int(re.search(r">=(\d+)", bound)[1]) >= 6


@pytest.mark.parametrize(("without", "extras"), [("", ".[tensorflow,metal]"), ("1", ".[tensorflow]")])
def test_continuous_integration_installs_no_plug_in_for_a_gpu_that_cannot_compute(tmp_path, without, extras):
    """`pip` of this environment is a program that notes its words: nothing is installed."""
    (tmp_path / "scripts").mkdir()
    for name in ("setup", "_env.sh", "_mac.sh"):
        (tmp_path / "scripts" / name).write_bytes((ROOT / "scripts" / name).read_bytes())
    (tmp_path / "scripts/setup").chmod(0o755)
    (tmp_path / "pyproject.toml").write_text("")
    python = tmp_path / "python"
    # On a Mac it is asked for its version and processor too.
    answer = f"{'11 ' + platform.machine() if sys.platform == 'darwin' else ''} {python}"
    note = f'case "$1" in -c) echo {answer};; *) echo "$*" >> {tmp_path}/said; mkdir -p {tmp_path}/.venv/bin'
    python.write_text(f"#!/bin/sh\n{note}; ln -sf {python} {tmp_path}/.venv/bin/python;; esac\n")
    python.chmod(0o755)
    env = {"PATH": "/usr/bin:/bin", "PYTHON": str(python), "WITHOUT_METAL": without}
    subprocess.run([tmp_path / "scripts/setup"], check=True, env=env, capture_output=True)

    assert f" --editable {extras} " in (tmp_path / "said").read_text()
    assert "tensorflow-metal" not in str(PROJECT["project"]["optional-dependencies"]["tensorflow"])
    assert 'WITHOUT_METAL: "1"' in WORKFLOW.read_text()


def test_the_wheel_holds_nothing_but_the_package(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"stallguard", f"stallguard_train-{stallguard.__version__}.dist-info"}


def test_the_changelog_has_a_place_for_the_next_change():
    assert re.search(r"^## \[Unreleased\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_api_for_scripts_can_be_imported_without_any_dependency():
    code = "import sys, stallguard; print(sorted({'click', 'msgspec', 'numpy', 'psutil', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.costly
def test_what_enters_the_training_environment_parses_as_python_3_9():
    for path in [ROOT / "stallguard/__init__.py", *(ROOT / "stallguard/probe").rglob("*.py")]:
        ast.parse(path.read_text(), str(path), feature_version=(3, 9))


def test_help_is_there_without_a_training_environment():
    done = subprocess.run(
        [sys.executable, "-m", "stallguard", "--help"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert "Guard a training" in done.stdout


def test_every_everyday_script_refuses_bad_shell_at_once():
    for path in [ROOT / ".ci/run", *sorted((ROOT / "scripts").iterdir())]:
        if path.is_file():
            subprocess.run(["sh", "-n", str(path)], check=True)


def test_a_bench_that_does_not_exist_is_one_clear_line():
    done = subprocess.run([ROOT / "scripts/bench", "nonsense"], cwd="/", check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (1, "bench: no bench 'nonsense'; scripts/bench lists them")


def test_setup_refuses_a_python_that_is_too_old(tmp_path):
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    project = tmp_path / "project"
    (project / "scripts").mkdir(parents=True)
    for name in ("setup", "_env.sh", "_mac.sh"):
        (project / "scripts" / name).write_bytes((ROOT / "scripts" / name).read_bytes())
    (project / "scripts/setup").chmod(0o755)
    (project / "pyproject.toml").write_text("")
    done = subprocess.run(
        [project / "scripts/setup"], env={"PATH": "/usr/bin:/bin", "PYTHON": str(old)},
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    refused = f"PYTHON={old} cannot be used: " if sys.platform == "darwin" else "no Python from 3.11 to 3.13 among: "
    assert refused in done.stderr
    assert not (project / ".venv").exists()


LEAKY = """
import socket, subprocess, tempfile, threading, time
kept = []
def test_thread(): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
def test_child(): kept.append(subprocess.Popen(["sleep", "60"]))
def test_socket(): kept.append(socket.socket())
def test_file(): tempfile.mkdtemp()
def test_clean(): pass
"""


def impatient_house() -> str:
    house = (ROOT / "tests/conftest.py").read_text().replace("pytest_plugins", "_unused")
    return re.sub(r"PATIENCE = [\d.]+", "PATIENCE = 0.1", house)


@pytest.mark.waits
def test_the_suite_notices_what_a_test_leaves_behind(pytester):
    pytester.makeconftest(impatient_house())
    pytester.makepyfile(LEAKY)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=5, errors=4)
    for kind in ("thread", "child process", "socket", "file in TMPDIR"):
        result.stdout.fnmatch_lines([f"*left behind: *{kind}*"])


@pytest.mark.costly
def test_the_suite_finds_a_process_whose_parent_is_gone(pytester):
    pytester.makeconftest(impatient_house())
    pytester.makepyfile("import subprocess\ndef test_it(): subprocess.run(['sh', '-c', 'sleep 60 >/dev/null 2>&1 &'])")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*left behind by a test: *sleep*"])


@pytest.mark.costly
def test_what_needs_tensorflow_or_a_whole_run_is_not_in_the_fast_half(pytester):
    pytester.makeconftest(impatient_house())
    pytester.syspathinsert(ROOT)
    (pytester.path / "tensorflow.py").write_text("")
    pytester.makepyfile(
        test_marked="import pytest\n@pytest.mark.tf\ndef test_it(): import tensorflow",
        test_unmarked="def test_it(): import sys; sys.modules.pop('tensorflow', None); import tensorflow",
        test_whole="from tests.guarded.runs import guard\ndef test_it(): pass",
        test_elsewhere="def test_it(other_python): pass",
    )
    fast = pytester.runpytest_subprocess("-m", "not tf and not live and not waits")
    fast.assert_outcomes(passed=1, errors=1, deselected=3)
    fast.stdout.fnmatch_lines(["*it imports TensorFlow: mark it with pytest.mark.tf*"])


def test_the_whole_suite_makes_every_environment_and_the_fast_half_takes_arguments(tmp_path):
    """`python` of this environment, and `scripts/setup`, are programs that note their words."""
    (tmp_path / "scripts").mkdir()
    for name in ("test", "_env.sh"):
        (tmp_path / "scripts" / name).write_bytes((ROOT / "scripts" / name).read_bytes())
    python = 'printf "%s|" "$@"'
    for program, text in (
        ("scripts/setup", 'printf "setup:%s|" "$@"'),
        (".venv/bin/python", python), (".venvs/oldest/bin/python", python),
    ):  # fmt: skip
        (tmp_path / program).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / program).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / program).chmod(0o755)

    def said(*words):
        return subprocess.run(
            ["sh", tmp_path / "scripts/test", *words], check=True, capture_output=True, text=True
        ).stdout

    assert "|-m|not costly and not tf and not live and not waits and not whole|tests/core|-x|" in said(
        "--fast", "tests/core", "-x"
    )
    assert "|-m|not costly and not tf and not live and not waits and not whole|-x|" in said("--oldest", "-x")
    assert said().startswith("setup:|setup:all|-m|pytest|-n|")
    assert "not tf" not in said()
    assert said("tests/core") == "setup:|-m|pytest|tests/core|"


def test_all_that_the_workflow_runs_is_a_script_that_runs_here_too():
    text = WORKFLOW.read_text()
    commands = re.findall(r"^ *(?:- )?run: *(.*)$", text, re.MULTILINE)
    assert sorted(set(commands)) == ["sh .ci/oldest", "sh .ci/run", "sh .ci/walk"]
    for command in commands:
        script = ROOT / command.removeprefix("sh ")
        assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
        assert os.access(script, os.X_OK)
    actions = set(re.findall(r"uses: *(\S+)", text))
    assert actions == {"actions/checkout@v4", "actions/setup-python@v5", "actions/upload-artifact@v4"}


def test_macs_of_both_kinds_run_the_suite_and_the_walk_and_the_walks_zip_is_kept():
    jobs = re.split(r"^  (?=\S)", WORKFLOW.read_text().partition("\njobs:\n")[2], flags=re.MULTILINE)
    suite = next(job for job in jobs if "sh .ci/run" in job)
    walk = next(job for job in jobs if "sh .ci/walk" in job)
    for job in (suite, walk):
        here = {"ubuntu-latest", "macos-15", "macos-15-intel", "macos-26"}
        assert set(re.findall(r"os: ([\w.-]+),", job)) == here
    assert "if: always()" in walk
    kept = re.search(r"path: (\S+)", walk)
    assert kept is not None
    assert f"--zip {kept[1]}" in (ROOT / ".ci/walk").read_text()
