"""A run keeps the probe that it began with, whatever becomes of the installed stallguard."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from stallguard.launch.probe_copy import PACKAGE, UNUSED, ProbeFiles


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An installed stallguard of this test's own."""
    place = tmp_path / "site" / "stallguard"
    (place / "probe" / "inject" / "__pycache__").mkdir(parents=True)
    (place / "__init__.py").write_text("api = 1\n")
    (place / "probe" / "wire.py").write_text("version = 1\n")
    (place / "probe" / "inject" / "sitecustomize.py").write_text("version = 1\n")
    (place / "probe" / "inject" / "__pycache__" / "sitecustomize.cpython-311.pyc").write_bytes(b"compiled")
    return place


def version(found: Path | None) -> str:
    assert found is not None
    return (found.parent / "wire.py").read_text()


def test_before_it_is_kept_the_installed_one_is_used(tmp_path, package):
    assert ProbeFiles(tmp_path / "home", package).inject == package / "probe" / "inject"
    assert not (tmp_path / "home").exists()


def test_after_an_upgrade_the_run_has_its_own_and_the_next_run_the_new_one(tmp_path, package):
    ours = ProbeFiles(tmp_path / "home", package)
    ours.keep()
    (package / "probe" / "wire.py").write_text("version = 22\n")

    assert version(ours.inject) == "version = 1\n"
    assert version(ProbeFiles(tmp_path / "home", package).inject) == "version = 22\n"


def test_after_it_was_removed_the_run_has_its_own(tmp_path, package):
    ours = ProbeFiles(tmp_path / "home", package)
    ours.keep()
    shutil.rmtree(package)

    assert version(ours.inject) == "version = 1\n"
    assert (ours.inject / "__pycache__" / "sitecustomize.cpython-311.pyc").exists()
    assert (ours.inject.parent.parent / "__init__.py").exists(), "the script's API"


def test_without_a_copy_a_removed_one_is_known_to_be_gone(tmp_path, package):
    ours = ProbeFiles(tmp_path / "home", package)
    shutil.rmtree(package)

    assert ours.inject is None


def test_a_copy_that_somebody_changed_is_not_used_and_made_again(tmp_path, package):
    ours = ProbeFiles(tmp_path / "home", package)
    ours.keep()
    (ours.inject.parent / "wire.py").write_text("version = 'half'\n")

    assert ours.inject == package / "probe" / "inject"
    ours.keep()
    assert ours.inject != package / "probe" / "inject"
    assert version(ours.inject) == "version = 1\n"


def test_copies_that_no_run_used_for_long_are_removed(tmp_path, package):
    old, recent = (tmp_path / "home" / "probes" / name for name in ("0.0.1-1", "0.0.2-2"))
    old.mkdir(parents=True)
    recent.mkdir()
    os.utime(old, (0, recent.stat().st_mtime - UNUSED - 60))
    ProbeFiles(tmp_path / "home", package).keep()

    assert [old.exists(), recent.exists()] == [False, True]


def test_runs_that_begin_together_have_one_copy(tmp_path, package):
    some = [ProbeFiles(tmp_path / "home", package) for _ in range(6)]
    failed = []

    def keep(one):
        try:
            one.keep()
            assert one.inject.is_relative_to(tmp_path / "home"), "no run removes the copy of another"
        except (AssertionError, OSError) as error:
            failed.append(error)

    threads = [threading.Thread(target=keep, args=(one,)) for one in some]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert failed == []
    assert len({one.inject for one in some}) == 1
    assert len(list((tmp_path / "home" / "probes").iterdir())) == 1


def test_a_home_that_python_path_cannot_name_has_no_copy(tmp_path, package):
    ours = ProbeFiles(tmp_path / "a:b", package)
    ours.keep()

    assert ours.inject == package / "probe" / "inject"
    assert not (tmp_path / "a:b").exists()


def test_the_copy_has_all_that_the_probe_imports(tmp_path):
    ours = ProbeFiles(tmp_path / "home")
    ours.keep()
    kept = {path.relative_to(ours.inject.parent) for path in ours.inject.parent.rglob("*.py")}

    assert kept == {path.relative_to(PACKAGE / "probe") for path in (PACKAGE / "probe").rglob("*.py")}
