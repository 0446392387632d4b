"""coverage.py counts the lines of the script and its modules, and none of the probe."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.probe.receiver import Receiver

pytest.importorskip("coverage")
MODULE = """
def double(number):
    return 2 * number
"""
SCRIPT = """
import keras  # a stand-in, for which the probe loads its hooks
import helper
import stallguard
for _ in range(3):
    helper.double(2)
    stallguard.beat()
"""
API = """
import coverage
measured = coverage.Coverage(data_file=None)
measured.start()
exec(compile(open("script.py").read(), "script.py", "exec"))
measured.stop()
measured.json_report(outfile="found.json")
"""
CONFIG = "[run]\ndynamic_context = test_function\n"


@pytest.mark.costly
@pytest.mark.parametrize("source", [(), ("--source=.",), ("--branch",), ("--rcfile=contexts",), ("--timid",)])
def test_the_report_of_a_guarded_script_is_that_of_the_plain_one(tmp_path: Path, source: tuple[str, ...]) -> None:
    found = _measured(tmp_path, "-m", "coverage", "run", *source, "script.py")

    assert set(found) == {"helper.py", "keras.py", "script.py"}
    assert found["helper.py"] == found["script.py"] == 100.0


def test_a_program_that_measures_by_itself_as_pytest_cov_does_counts_the_same(tmp_path: Path) -> None:
    (tmp_path / "measure.py").write_text(API)

    assert set(_measured(tmp_path, "measure.py")) == {"helper.py", "keras.py", "script.py"}


def _measured(folder: Path, *words: str) -> dict[str, float]:
    """Return the percentage of each file that is counted in a guarded process."""
    files = {"helper.py": MODULE, "keras.py": "", "script.py": SCRIPT, "contexts": CONFIG}
    for name, text in files.items():
        (folder / name).write_text(text)
    with Receiver() as receiver:
        done = receiver.run([sys.executable, *words], 60, cwd=folder)
        assert done.code == 0, done.err
        assert done.last()["beats"] == 3
        if not (folder / "found.json").exists():
            command = [sys.executable, "-m", "coverage", "json", "-o", "found.json"]
            assert receiver.run(command, 60, cwd=folder).code == 0
    files_found = json.loads((folder / "found.json").read_text())["files"]
    return {name: one["summary"]["percent_covered"] for name, one in files_found.items()}
