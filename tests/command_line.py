"""Runs a verb in the process of the tests: its output and exit code, without the start of an interpreter.

For what a verb prints and answers.  If the process is the point (signals, a terminal, encodings, a verb that guards a
run or starts a program that prints), a test calls `process`.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

from stallguard.cli import main

ROOT = Path(__file__).parents[1]


def stallguard(*words: str, env: Mapping[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line with these variables in this directory, and restore what it changes."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before, path, place, stdin = dict(os.environ), list(sys.path), Path.cwd(), sys.stdin
    os.chdir(cwd)
    _set_environment(env)
    sys.stdin = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the libraries, as an interpreter does
            main(list(words))
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        gc.enable()  # `main` disables it
        sys.stdin, sys.path[:] = stdin, path
        _set_environment(before)
        os.chdir(place)
    shown = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return subprocess.CompletedProcess(["stallguard", *words], code, *shown)


def process(*words: str, env: Mapping[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in an interpreter of its own."""
    places = os.pathsep.join(filter(None, (env.get("PYTHONPATH"), str(ROOT))))
    return subprocess.run(
        [sys.executable, "-m", "stallguard", *words], env={**env, "PYTHONPATH": places}, cwd=cwd,
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def _set_environment(env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
