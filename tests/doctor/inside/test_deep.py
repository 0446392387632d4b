"""A framework that is imported and computes in the training's interpreter."""

from __future__ import annotations

import sys

import pytest

from stallguard.doctor.interrogate import environment
from stallguard.launch.command import InterpreterChoice


def script(tmp_path, body):
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return InterpreterChoice(str(path), "a test")


@pytest.mark.tf
def test_deep_computes_on_the_devices_of_the_environment():
    announced = environment(InterpreterChoice(sys.executable, "a test"), deep=True)
    assert announced.deep.trouble == ""
    assert "/CPU:0" in announced.deep.devices


def test_deep_tells_why_a_framework_cannot_be_imported(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('Library not loaded: libmetal_plugin.dylib')")
    metadata = tmp_path / "torch-2.13.0.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n")
    lines = f'export PYTHONPATH={tmp_path} KERAS_BACKEND=torch\nexec {sys.executable} "$@"'
    announced = environment(script(tmp_path, lines), deep=True)
    assert announced.framework == "torch"
    assert "ImportError: Library not loaded" in announced.deep.trouble


def test_deep_computes_in_an_environment_of_mlx_alone(other_python):
    announced = environment(InterpreterChoice(other_python("mlx"), "a test"), deep=True)
    assert (announced.framework, announced.deep.trouble) == ("mlx", "")
    assert announced.installed.packages.keys() >= {"mlx", "mlx-lm"}
    assert "Device(cpu, 0)" in announced.deep.devices
