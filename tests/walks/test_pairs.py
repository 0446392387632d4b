"""Which interpreters the checks of Metal are made with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def environment(place: Path, *installed: str) -> Path:
    for name in installed:
        (place / "lib" / "python3.12" / "site-packages" / f"{name}.dist-info").mkdir(parents=True)
    return place / "bin" / "python"


def test_each_pair_is_walked_once_with_the_walks_own_first(tmp_path):
    from mac.pairs import BESIDE, metal_pythons

    own = environment(tmp_path / ".venv", "tensorflow-2.16.2", "tensorflow_macos-2.16.2", "tensorflow_metal-1.2.0")
    newer = environment(tmp_path / ".venvs/metal218", "tensorflow-2.18.1", "tensorflow_metal-1.2.0", "numpy-1.26.4")
    other = environment(tmp_path / ".venvs/metalplugin", "tensorflow-2.21.0", "tensorflow_metal_plugin-0.4.1")

    expected = [
        ("tensorflow 2.16.2 + tensorflow-metal 1.2.0", str(own)),
        ("tensorflow 2.18.1 + tensorflow-metal 1.2.0", str(newer)),
        ("tensorflow 2.21.0 + tensorflow-metal-plugin 0.4.1", str(other)),
    ]
    assert list(metal_pythons(tmp_path, own, BESIDE).items()) == expected
    assert list(metal_pythons(tmp_path, own).items()) == expected[:2], "--plugin was not asked for"


@pytest.mark.parametrize("installed", [(), ("tensorflow-2.18.1",), ("tensorflow_metal-1.2.0",)])
def test_without_a_pair_the_walks_own_python_is_the_only_one(tmp_path, installed):
    from mac.pairs import metal_pythons

    own = environment(tmp_path / ".venv", *installed)
    environment(tmp_path / ".venvs/metal218", *installed)
    assert metal_pythons(tmp_path, own) == {"no plug-in": str(own)}


def test_a_scene_has_them(scene):
    assert sys.executable in scene.metal_pythons.values()
