"""The stack-dump signal: it shows stacks while Python runs, and ends no process while its interpreter is taken down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.probe.receiver import ROOT

# The C library's handlers of exit run after the interpreter is gone; here one of them never returns.
HANGS = """
import ctypes, os, sys
sys.path.insert(0, {probe!r})
import stack_signal
print(stack_signal.arm({number}, {file!r}), flush=True)
os.kill(os.getpid(), {number})
library = ctypes.CDLL(None)
getattr(library, "__cxa_atexit")(library.pause, None, None)
"""


def mask(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(f"{name}:")).split()[1], 16)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux shows which signals a process catches"
)
def test_a_signal_after_the_end_of_the_interpreter_does_not_end_the_process(tmp_path):
    number, stacks = int(signal.SIGURG), tmp_path / "stacks"
    code = HANGS.format(probe=str(ROOT / "stallguard" / "probe"), number=number, file=str(stacks))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "True\n"
            bit, end = 1 << (number - 1), time.monotonic() + 60
            while not stacks.exists() or mask(child.pid, "SigCgt") & bit:  # the interpreter still lives
                assert time.monotonic() < end
                time.sleep(0.01)
            assert "most recent call first" in stacks.read_text()
            os.kill(child.pid, number)
            assert mask(child.pid, "SigIgn") & bit
            assert child.poll() is None
        finally:
            child.kill()
