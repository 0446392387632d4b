"""What is the script's and what a library's does not depend on where a library lies."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from stallguard.probe import libraries


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(libraries, "_known", {})
    monkeypatch.setattr(libraries, "_recorded", {})


def is_librarys(*path):
    return libraries.is_librarys(str(Path(*path)))


def test_python_the_probe_and_installed_packages_are_libraries(tmp_path):
    for file in (
        os.__file__,
        np.__file__,
        libraries.__file__,
        "<frozen importlib._bootstrap>",
        str(Path(sysconfig.get_paths()["purelib"], "new", "of_later.py")),
        "/usr/lib/python3/dist-packages/six.py",
        "/opt/conda/envs/night/lib/python3.11/site-packages/pandas/core/frame.py",
        str(tmp_path / "venv" / "lib" / "python3.12" / "site-packages" / "added_later.py"),
    ):
        assert libraries.is_librarys(file), file
    for file in ("train.py", "/home/ada/train.py", "<ipython-input-3-x>", "<string>", "/home/ada/lib/python/a.py"):
        assert not libraries.is_librarys(file), file


def test_what_an_installer_put_into_a_directory_is_a_library_and_what_lies_beside_it_is_not(tmp_path, monkeypatch):
    record = tmp_path / "fancy_layers-1.0.dist-info"
    record.mkdir()
    (record / "RECORD").write_text(
        'fancy/__init__.py,,\nfancy_one.py,sha256=x,3\n"odd,name/__init__.py",,\n../bin/x,,\n'
    )
    (tmp_path / "another-2.0.dist-info").mkdir()  # without a record, as some distributions of Linux make them
    (tmp_path / "zebra-2.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert is_librarys(tmp_path, "fancy", "deep", "layer.py")
    assert is_librarys(tmp_path, "fancy_one.py")
    assert not is_librarys(tmp_path, "train.py")
    assert not is_librarys(tmp_path, "fancy2", "layer.py")


def test_the_nearest_directory_of_the_path_decides(tmp_path, monkeypatch):
    inner = tmp_path / "libs"
    (inner / "fancy-1.0.dist-info").mkdir(parents=True)
    (inner / "fancy-1.0.dist-info" / "RECORD").write_text("fancy/__init__.py,,\n")
    monkeypatch.syspath_prepend(inner)
    monkeypatch.syspath_prepend(tmp_path)
    assert is_librarys(inner, "fancy", "layer.py")
    assert not is_librarys(tmp_path, "fancy", "layer.py")


@pytest.mark.parametrize("broken", ["no record", "a file", "not text"])
def test_metadata_that_cannot_be_read_make_nothing_a_library(broken, tmp_path, monkeypatch):
    info = tmp_path / "fancy-1.0.dist-info"
    if broken == "a file":
        info.write_text("")
    else:
        info.mkdir()
    if broken == "not text":
        (info / "RECORD").write_bytes(b"\xff\xfe\0")
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_librarys(tmp_path, "fancy", "layer.py")


def test_a_project_of_the_users_that_is_installed_in_editable_form_is_the_scripts(tmp_path, monkeypatch):
    source = tmp_path / "project" / "src"
    source.mkdir(parents=True)
    monkeypatch.syspath_prepend(source)
    assert not is_librarys(source, "project", "model.py")


def test_a_clone_of_a_training_library_is_one_and_a_folder_of_that_name_is_not(tmp_path, monkeypatch):
    place = tmp_path / "src" / "keras"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text("")
    module = type(sys)("keras")
    module.__file__ = str(place / "__init__.py")
    monkeypatch.setitem(sys.modules, "keras", module)
    libraries.read("keras")
    assert is_librarys(place, "src", "callbacks.py")
    assert not is_librarys(tmp_path, "keras", "train.py")
    assert not is_librarys(tmp_path, "src", "train.py")


def test_a_script_that_bears_the_name_of_a_library_is_a_script(tmp_path, monkeypatch):
    module = type(sys)("torch")
    module.__file__ = str(tmp_path / "torch.py")
    monkeypatch.setitem(sys.modules, "torch", module)
    libraries.read("torch")
    assert not is_librarys(tmp_path, "torch.py")
    assert not is_librarys(tmp_path, "train.py")


def test_a_training_with_other_processes_is_known_also_beside_a_library_that_keeps_that_elsewhere(monkeypatch):
    class Several:
        is_available = is_initialized = staticmethod(lambda: True)
        get_world_size = staticmethod(lambda: 2)

    class Newer:
        """JAX of a version that keeps the number elsewhere."""

    monkeypatch.setattr(libraries, "known", [libraries.read("jax"), libraries.read("torch")])
    monkeypatch.setitem(sys.modules, "jax._src.distributed", Newer)
    assert not libraries.have_peers()
    monkeypatch.setitem(sys.modules, "torch.distributed", Several)
    assert libraries.have_peers()
    monkeypatch.setattr(Several, "get_world_size", staticmethod(lambda: 1))
    assert not libraries.have_peers()
