"""Runs a program of the system for a verb, and reports a missing or hanging one as an error that a user can act upon.

This module must not interpret what the program prints.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import NamedTuple

from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.host import tool


class Said(NamedTuple):
    """An exit code, and standard output and error together."""

    code: int
    text: str


def ask(program: str, words: Sequence[str], patience: float, cure: str) -> Said:
    """Run `program` in the C locale.

    Raises StallguardError if it is missing (exit code 126, with `cure`) or does not end within `patience` seconds.
    """
    path = shutil.which(program)
    if path is None:
        why = "it belongs to another operating system"
        raise StallguardError(f"there is no {program} here", why=why, cure=cure, code=CANNOT_RUN)
    result = tool.run([path, *words], patience, env=os.environ | tool.C_LOCALE)
    if result.code is None:
        why = f"{program} {' '.join(words[:2])}: {result.incomplete} (after {patience:g} s)"
        raise StallguardError(f"{program} does not answer", why=why, cure="log out and in, and try again")
    return Said(result.code, result.text)
