"""A crash leaves its stacks in a file of the run, and what the program itself does with faulthandler stays plain."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.probe.receiver import Heard, Receiver, python

CRASH = "import ctypes\ndef crash():\n    ctypes.string_at(0)\n"
ENABLE = "import faulthandler\nfaulthandler.enable()\n"
HEAD = "Fatal Python error: "


def crashes(receiver: Receiver) -> dict[str, str]:
    """Return the files of crashes, by the rest of their names."""
    files = (receiver.folder / "probe").glob("*.crash")
    return {path.name.partition(".")[2]: path.read_text() for path in files}


def plain(code: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(python(code), env={**os.environ, **extra}, capture_output=True, text=True, check=False)


def shape(text: str) -> str:
    return re.sub("0x[0-9a-f]+", "0x", text)


@pytest.mark.parametrize(
    ("doing", "reason"),
    [
        ("crash()", "Segmentation fault"),
        ("import os; os.abort()", "Aborted"),
        *((f"import os, signal; os.kill(os.getpid(), signal.{name})", reason) for name, reason in
          {"SIGBUS": "Bus error", "SIGFPE": "Floating", "SIGILL": "Illegal instruction"}.items()),
    ],
)  # fmt: skip
def test_a_crash_leaves_its_line_and_prints_what_it_prints_without_the_probe(receiver, doing, reason):
    code = f"{CRASH}def train():\n    {doing}\ntrain()\n"
    heard = receiver.run(python(code))

    assert heard.err == plain(code).stderr
    assert heard.code == plain(code).returncode
    [text] = crashes(receiver).values()
    assert text.startswith(HEAD + reason)
    assert 'File "<string>", line 5 in train' in text


@pytest.mark.parametrize(
    ("code", "environment"), [(ENABLE, {}), ("", {"PYTHONFAULTHANDLER": "1"}), (ENABLE, {"PYTHONFAULTHANDLER": "1"})]
)
def test_a_program_that_has_its_stacks_on_standard_error_gets_them_there(receiver, code, environment):
    code += CRASH + "crash()"
    heard = receiver.run(python(code), **environment)

    assert heard.err.count(HEAD) == 1
    assert shape(heard.err) == shape(plain(code, **environment).stderr)
    assert "".join(crashes(receiver).values()) == ""


def test_the_file_to_which_a_program_has_them_written_is_known(receiver, tmp_path):
    own = tmp_path / "own file"
    own.write_text("before\n")
    code = f"import faulthandler\nfile = open({str(own)!r}, 'a')\nfaulthandler.enable(file=file)\n{CRASH}crash()"
    receiver.run(python(code))

    assert own.read_text().startswith(f"before\n{HEAD}")
    assert list(crashes(receiver).values()) == [f"the program has them written to 7 {own}\n"]


SEEN = """
import faulthandler as f, io
print(f.is_enabled(), f.disable(), f.enable(), f.is_enabled(), f.disable(), f.is_enabled())
try:
    f.enable(file=io.StringIO())
except Exception as error:
    print(type(error).__name__, f.is_enabled(), f.enable.__name__)
"""


def test_a_program_sees_faulthandler_as_without_the_probe_and_one_that_disables_it_is_recorded(receiver):
    heard = receiver.run(python(f"{SEEN}{CRASH}crash()"))

    assert heard.out == plain(SEEN).stdout
    assert heard.err == ""
    [text] = crashes(receiver).values()
    assert "line 10 in crash" in text


FORK = """
import os, stallguard
if {trained}:
    stallguard.beat()
if os.fork() == 0:
    {work}
    crash()
print(os.wait()[1])
"""


@pytest.mark.parametrize("trained", [True, False])
def test_the_crash_of_a_worker_is_not_in_the_file_of_its_parent(receiver, trained):
    heard = receiver.run(python(CRASH + FORK.format(trained=trained, work="pass")))

    assert heard.out.strip() == "11"
    found = crashes(receiver)
    assert found.pop("crash") == ""
    assert {name: text[: len(HEAD)] for name, text in found.items()} == {"workers.crash": HEAD}


def test_a_forked_process_that_trains_has_a_file_of_its_own(receiver):
    receiver.run(python(CRASH + FORK.format(trained=False, work="stallguard.beat()")))

    files = sorted((receiver.folder / "probe").glob("*.crash"))
    assert {path.name.partition(".")[2]: path.stat().st_size > 0 for path in files if path.stat().st_size} == {
        "crash": True
    }


AGAIN = 'import os, sys\nif len(sys.argv) == 1:\n    os.execv(sys.executable, [sys.executable, *sys.argv, "2"])\n'


def test_a_program_that_replaced_itself_is_recorded(receiver, tmp_path):
    (tmp_path / "train.py").write_text(f"{AGAIN}{CRASH}crash()")
    receiver.run([sys.executable, str(tmp_path / "train.py")])

    [text] = crashes(receiver).values()
    assert "line 6 in crash" in text


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no list of descriptors")
def test_its_descriptor_is_out_of_the_way_and_not_inherited(receiver):
    code = (
        "import os, subprocess\nfile = open(os.devnull)\nprint(file.fileno() < 10)\n"
        "subprocess.run('ls -l /proc/self/fd', shell=True, close_fds=False)"
    )
    heard: Heard = receiver.run(python(code))

    assert heard.out.startswith("True\n")
    assert ".crash" not in heard.out


CLOSED = """
import os, time, stallguard
stallguard.beat()
os.closerange(3, 300)
files = [open("mine", "w") for _ in range(300)]
end = time.monotonic() + 20
def opened(number):
    return os.path.exists(f"/proc/self/fd/{number}") and os.readlink(f"/proc/self/fd/{number}")
while not any(str(opened(number)).endswith(".crash") for number in range(600)):
    assert time.monotonic() < end
    time.sleep(0.05)
crash()
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no list of descriptors")
def test_a_program_that_closed_the_descriptor_is_recorded_again_and_its_files_are_left_alone(receiver):
    receiver.run(python(CRASH + CLOSED))

    assert (receiver.folder / "mine").read_text() == ""
    [text] = crashes(receiver).values()
    assert HEAD in text
