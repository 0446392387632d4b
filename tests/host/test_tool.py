"""Programs that are run for their output: missing, failing, hanging, flooding ones."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from stallguard.host import tool


def shell(command: str, seconds: float = 20.0, **named) -> tool.ToolResult:
    return tool.run(["/bin/sh", "-c", command], seconds, **named)


def test_the_result_has_the_exit_code_and_both_streams() -> None:
    assert shell("echo out; echo err >&2; exit 3") == (3, b"out\n", b"err\n", "")
    assert shell("echo out; echo err >&2").text == "out\nerr\n"
    assert shell("echo err >&2; echo out", merge=True) == (0, b"err\nout\n", b"", "")
    assert shell("kill -SEGV $$").code == -11


def test_a_program_that_is_missing_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        tool.run(["/no/such/tool"], 5)


def test_the_environment_and_the_directory_are_those_that_were_given(tmp_path: Path) -> None:
    assert shell("env").text.count("LC_ALL=C\n") == 1
    here = shell("echo $NAME; pwd", env={"NAME": "x"}, cwd=tmp_path)
    assert here.text == f"x\n{os.path.realpath(tmp_path)}\n"


@pytest.mark.parametrize("merge", [False, True])
def test_a_program_that_hangs_is_killed_with_its_children_and_its_output_is_kept(*, merge: bool) -> None:
    begun = time.monotonic()
    assert shell("echo so far; sleep 60 & sleep 60", 0.2, merge=merge) == (None, b"so far\n", b"", tool.TIMED_OUT)
    assert time.monotonic() - begun < 5


def test_a_program_that_has_closed_its_output_is_waited_for_until_the_deadline() -> None:
    assert shell("echo all; exec >&- 2>&-; sleep 60", 0.3) == (None, b"all\n", b"", tool.TIMED_OUT)
    assert shell("exec >&- 2>&-; sleep 0.1; exit 4").code == 4


def test_what_a_program_leaves_behind_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    shell(f"sleep 60 >/dev/null 2>&1 & echo $! > {file}")
    pid = int(file.read_text())
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and "Z" not in _state(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _state(pid) in ("", "Z")


def _state(pid: int) -> str:
    return shell(f"ps -o stat= -p {pid}").text.strip()[:1]


@pytest.mark.parametrize("stream", ["", ">&2"])
def test_endless_output_is_cut_and_its_program_killed(stream: str) -> None:
    result = shell(f"yes {stream}", limit=1001)
    kept = result.errors if stream else result.output
    assert (len(kept), result.code, result.incomplete) == (1001, None, tool.TRUNCATED)


def test_a_sensor_gets_the_output_of_a_tool_that_succeeds() -> None:
    assert tool.output(["/bin/sh", "-c", "echo x; echo y >&2"], 5) == "x\n"
    assert tool.output(["/no/such/tool"], 5) is None
    assert tool.output(["/bin/sh", "-c", "echo x; exit 64"], 5) is None
    assert tool.output(["/bin/sh", "-c", "echo x; exit 64"], 5, lenient=True) == "x\n"


def test_a_sensor_is_stopped_by_a_tool_that_hangs() -> None:
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="/bin/sh did not answer"):
        tool.output(["/bin/sh", "-c", "sleep 60 & sleep 60"], 0.2)
    assert time.monotonic() - begun < 5


def test_a_sensor_gets_the_beginning_of_endless_output() -> None:
    text = tool.output(["/bin/sh", "-c", "head -c 20000000 /dev/zero"], 20)
    assert text is not None
    assert len(text) == tool.OUTPUT_MAX
