"""What these tests share: a receiver, of scripts that need not import their framework each time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stallguard.probe import settings
from stallguard.probe.checkpoint.written_files import WrittenFiles
from stallguard.probe.settings import ProbeSettings
from tests.probe.imported import ForkReceiver


@pytest.fixture
def receiver(servers):
    with ForkReceiver(servers) as there:
        yield there


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The key of the user, with which pickles are signed."""
    file = tmp_path / "signing.key"
    file.write_bytes(os.urandom(32))
    file.chmod(0o600)
    monkeypatch.setenv(settings.VARIABLE, settings.encode(ProbeSettings(key=str(file))))
    return file


@pytest.fixture
def files(tmp_path):
    found = WrittenFiles(str(tmp_path / "copies"))
    found.begin()
    yield found
    found.end()
