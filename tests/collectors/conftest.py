"""Fixtures for collecting evidence."""

from __future__ import annotations

import threading

import pytest

from tests.collectors.stuck import Stuck


@pytest.fixture
def stuck(tmp_path):
    made = []

    def make(kind):
        made.append(Stuck(tmp_path, kind))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def release():
    """An event that lets hanging collectors go at the end, so that no thread is left behind."""
    event = threading.Event()
    yield event
    event.set()
