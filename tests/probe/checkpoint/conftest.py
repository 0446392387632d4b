"""What these tests share: a receiver, of scripts that need not import their framework each time."""

from __future__ import annotations

import pytest

from tests.probe.imported import ForkReceiver


@pytest.fixture
def receiver(servers):
    with ForkReceiver(servers) as there:
        yield there
