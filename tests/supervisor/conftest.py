"""Fixtures for the output of a run."""

from __future__ import annotations

import contextlib

import pytest

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
