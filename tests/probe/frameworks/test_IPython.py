"""The places of a notebook are its cells: In [2] is "cell 2", in the kernels of nbconvert and papermill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stallguard.storage import cells
from tests.probe.receiver import Receiver

HANGS = """
import threading
def wait(i):
    if i == 40:
        threading.Event().wait()
""", """
import stallguard, time
for i in range(100):
    time.sleep(0.02)
    wait(i)
    stallguard.beat()
"""  # fmt: skip
FAILS = "def broken(i):\n    return {}[i]\n", "import stallguard\nstallguard.beat()\nbroken(71)"
CRASHES = "import ctypes, stallguard\ndef touch():\n    stallguard.beat()\n    ctypes.string_at(0)", "touch()"
TOOLS = {
    "nbconvert": ("jupyter", "nbconvert", "--to", "notebook", "--execute", "nb.ipynb", "--output", "out.ipynb"),
    "papermill": ("papermill", "-k", "python3", "nb.ipynb", "out.ipynb"),
}


def notebook(sources):
    """Return the text of a notebook: a title, then a cell for each source."""
    code = [
        {"cell_type": "code", "metadata": {}, "source": one.strip("\n"), "execution_count": None, "outputs": []}
        for one in sources
    ]
    title = {"cell_type": "markdown", "metadata": {}, "source": "# A title, which has no number"}
    return json.dumps({"cells": [title, *code], "metadata": {}, "nbformat": 4, "nbformat_minor": 4})


def executed(other_python, tmp_path, sources, tool):
    """Execute a notebook under guard; return what was printed, and the report."""
    bin_ = Path(other_python("jupyter")).parent
    (tmp_path / "nb.ipynb").write_text(notebook(sources))
    command, *rest = TOOLS[tool]
    # The file of the kernel's connection stays in TMPDIR if the tool is killed.
    theirs = ["env", f"TMPDIR={tmp_path}", f"IPYTHONDIR={tmp_path / 'ipython'}", f"JUPYTER_RUNTIME_DIR={tmp_path}"]
    run = [sys.executable, "-m", "stallguard", "run", "--max-restarts", "0", "--", *theirs, str(bin_ / command), *rest]
    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path / "home")}
    done = subprocess.run(run, check=False, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    report = [sys.executable, "-m", "stallguard", "report"]
    said = subprocess.run(report, check=False, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    return " ".join((done.stdout + done.stderr).split()), " ".join(said.stdout.split())


@pytest.mark.parametrize("tool", TOOLS)
def test_a_stall_names_the_cell(other_python, tmp_path, tool):
    printed, report = executed(other_python, tmp_path, HANGS, tool)
    assert "it hangs at cell 1, line 4 in wait" in printed
    assert "It hung at cell 1, line 4 in wait" in report
    assert "> cell 2, line 4" in report
    assert "/ipykernel_" not in report


def test_an_error_of_the_script_names_the_cell(other_python, tmp_path):
    printed, _ = executed(other_python, tmp_path, FAILS, "nbconvert")
    assert "your script failed: KeyError: 71, at cell 1, line 2 in broken" in printed


def test_a_crash_names_the_cell(other_python, tmp_path):
    printed, _ = executed(other_python, tmp_path, CRASHES, "nbconvert")
    assert "the crash was in line 4 of cell 1, in touch" in printed


COMPILED = """
import os, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
if sys.argv[1] == "one name":
    shell.compile.get_code_name = lambda raw, code, number: "/tmp/one.py"
for text, stored in (("a = 1", True), ("b = 2", False), ("c = 3", True), ("a = 1", True)):
    shell.run_cell(text, store_history=stored)
print(os.getpid(), flush=True)
"""


@pytest.mark.parametrize(("names", "numbers"), [("own names", ["cell 1", "cell 2", "cell 3"]), ("one name", [])])
def test_code_without_a_number_of_its_own_has_none(other_python, tmp_path, names, numbers):
    with Receiver() as receiver:
        command = [other_python("jupyter"), "-c", COMPILED, names]
        heard = receiver.run(command, 60, IPYTHONDIR=str(tmp_path))
        assert heard.code == 0, heard.err
        assert sorted(cells.of(receiver.folder / "probe", int(heard.out)).values()) == numbers
