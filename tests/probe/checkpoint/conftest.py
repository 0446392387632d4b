"""What these tests share: a receiver."""

from __future__ import annotations

import pytest

from tests.probe.receiver import Receiver


@pytest.fixture
def receiver():
    with Receiver() as there:
        yield there
