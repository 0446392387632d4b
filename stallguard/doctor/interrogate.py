"""Runs the training environment's interpreter with a script that describes it, with a deadline.

This module must not import a framework, and must not judge an answer.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from stallguard.doctor import environment_checks
from stallguard.doctor.facts import Deep, Environment, Installed
from stallguard.errors import UNREADABLE
from stallguard.host import tool
from stallguard.launch.command import InterpreterChoice
from stallguard.probe import libraries

INSIDE = Path(__file__).parent / "inside"
MARK = b"stallguard-doctor:"  # the scripts put it before their answer; the environment may print as well
QUICK, PATIENT = 20.0, 300.0  # seconds; a first import with a plug-in to compile for can take minutes
LAST_WORDS = 3.0  # seconds for a killed interpreter to end
FIRST = ("tensorflow", "torch")  # backends of Keras that are preferred if nothing names one
ALSO = ("protobuf", "pyarrow")  # distributions that can keep a framework from loading

Answer = TypeVar("Answer", Installed, Deep)


class Reply(NamedTuple):
    """The answer of an interpreter.  `trouble`: why there is none."""

    answer: bytes = b""
    trouble: str = ""


def environment(choice: InterpreterChoice, *, deep: bool) -> Environment:
    """Return the answer of the interpreter; with `deep` it imports its framework and computes."""
    reply = ask([choice.path, str(INSIDE / "installed.py"), *distributions()], QUICK)
    installed = _decode(reply, Installed)
    framework, tested = "", None
    if installed:
        backends = [one.name for one in libraries.every() if one.runs_keras]
        there = {name for name in backends if name in installed.packages}
        there |= {"tensorflow"} if environment_checks.tensorflow_version(installed.packages) else set()
        there |= {"mlx"} & set(installed.packages)
        wanted = installed.backend[0]
        order = (*([wanted] if wanted in backends else ()), *FIRST, *backends, "mlx")
        framework = next((name for name in order if name in there), "")
    if deep and framework:
        second = ask([choice.path, str(INSIDE / "deep.py"), framework], PATIENT)
        tested = _decode(second, Deep) or Deep(trouble=second.trouble or "its answer cannot be read")
    return Environment(
        path=choice.path,
        why=choice.why,
        installed=installed,
        trouble=reply.trouble or ("" if installed else "its answer cannot be read"),
        framework=framework,
        deep=tested,
    )


def distributions() -> list[str]:
    """Return the names of the distributions whose versions matter."""
    return [name for one in libraries.every() for name in one.distributions] + list(ALSO)


def _decode(reply: Reply, kind: type[Answer]) -> Answer | None:
    with contextlib.suppress(*UNREADABLE):
        return msgspec.json.decode(reply.answer, type=kind)
    return None


def ask(argv: list[str], seconds: float) -> Reply:
    """Run `argv` with the user's environment; return the output after the mark, or why there is none."""
    try:
        result = tool.run(argv, seconds, env=os.environ, after_kill=LAST_WORDS)
    except OSError as error:
        return Reply(trouble=f"it cannot be started: {error.strerror}")
    if result.incomplete == tool.TIMED_OUT:
        return Reply(trouble=f"no answer within {seconds:g} s")
    for line in reversed(result.output.splitlines()):
        if line.startswith(MARK):
            return Reply(line[len(MARK) :])
    if result.code is None:
        return Reply(trouble=result.incomplete)
    printed = [line.strip() for line in result.errors.decode(errors="replace").splitlines() if line.strip()]
    how = f"exit code {result.code}" if result.code >= 0 else f"killed by signal {-result.code}"
    return Reply(trouble=f"{printed[-1]} ({how})" if printed else how)
