"""Fixtures for the output of a run, and for the receiver of records."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallguard.storage import paths
from tests.supervisor.listening import Ear
from tests.supervisor.stage import LONG, Stage


@pytest.fixture
def stage(tmp_path):
    stages = []

    def build(out, err=None, **more):
        stages.append(Stage(tmp_path / "output.log", out, err or out, **more))
        return stages[-1]

    yield build
    for each in stages:
        with contextlib.suppress(OSError):  # a test that finished it has closed it
            each.close()


@pytest.fixture
def finished():
    def finish(stage):
        assert stage.output.finish(LONG)
        stage.close = lambda: None
        for side in {stage.out, stage.err}:
            side.close()
        return stage.out.data

    return finish


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[Ear]:
    place = paths.socket_dir("/tmp")
    made = Ear(place, tmp_path)
    yield made
    made.beats.close()
    for probe in made.probes:
        probe.end()
    shutil.rmtree(place)
