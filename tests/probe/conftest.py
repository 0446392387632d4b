"""What the probe's tests share: a receiver, and the interpreters that a training environment may have."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.probe.receiver import Receiver


@pytest.fixture
def receiver():
    with Receiver() as there:
        yield there


def _interpreter(version: str) -> str | None:
    """Return a Python of this version: on PATH, or one of pyenv's."""
    found = shutil.which(f"python{version}")
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in (found, *map(str, pyenv)):
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


@pytest.fixture(scope="session")
def python_of():
    """Return a function from a version to a Python of it; it skips if there is none."""

    def find(version: str) -> str:
        found = _interpreter(version)
        if found is None:
            pytest.skip(f"no Python {version} on this machine")
        return found

    return find


@pytest.fixture(scope="session", params=["3.9", "3.10", "3.12", "3.13"])
def any_python(request, python_of):
    """The Pythons that a training environment may run, those that are here."""
    return python_of(request.param)
