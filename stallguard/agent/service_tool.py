"""Runs a system tool with a deadline.

Must not interpret its output.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from stallguard.errors import CANNOT_RUN, StallguardError


class Said(NamedTuple):
    """An exit code, and standard output and error together."""

    code: int
    text: str


def ask(program: str, words: Sequence[str], patience: float, cure: str) -> Said:
    """Run `program` in the C locale.

    Raises StallguardError if it is not installed (exit code 126, with `cure`) or exceeds `patience` seconds.
    """
    path = shutil.which(program)
    if path is None:
        why = "it belongs to another operating system"
        raise StallguardError(f"there is no {program} here", why=why, cure=cure, code=CANNOT_RUN)
    try:
        done = subprocess.run(
            [path, *words], capture_output=True, text=True, errors="replace", timeout=patience, check=False,
            stdin=subprocess.DEVNULL, env=os.environ | {"LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        why = f"{program} {' '.join(words[:2])} did not answer for {patience:g} s"
        raise StallguardError(
            f"{program} does not answer", why=why, cure="log out and in, and try again"
        ) from error
    return Said(done.returncode, done.stdout + done.stderr)
