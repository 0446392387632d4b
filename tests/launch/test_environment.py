"""What an attempt gets from its run: one seed, the key of signatures, and the probe that the run began with."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from pathlib import Path

import pytest

from stallguard.launch import environment
from stallguard.launch.earlier_run import take_over
from stallguard.launch.environment import PACKAGE, UNUSED, ProbeFiles, child_environment, hash_seed
from stallguard.storage.paths import RunDir


def test_a_run_has_one_seed_and_another_run_another(tmp_path):
    seed = environment.run_seed(tmp_path / "one")
    assert environment.run_seed(tmp_path / "one") == seed
    assert environment.run_seed(tmp_path / "other") != seed


def test_a_run_that_resumes_another_inherits_its_seed(tmp_path):
    old, new = RunDir(tmp_path / "old"), RunDir(tmp_path / "new")
    seed = environment.run_seed(old.checkpoints)
    new.path.mkdir()
    take_over(old, new)
    assert environment.run_seed(new.checkpoints) == seed


def test_a_seed_alone_is_no_checkpoint(tmp_path):
    run = RunDir(tmp_path)
    environment.run_seed(run.checkpoints)
    assert not run.has_checkpoints()
    (run.checkpoints / "a1b2-1" / "fit-0001" / "g1").mkdir(parents=True)
    assert run.has_checkpoints()


@pytest.mark.parametrize("content", [b"", b"12x", b"\xff"])
def test_a_damaged_seed_is_drawn_again(tmp_path, content):
    (tmp_path / "seed").write_bytes(content)
    assert environment.run_seed(tmp_path).isdigit()
    assert environment.run_seed(tmp_path) == (tmp_path / "seed").read_text()


def test_a_place_that_cannot_be_written_raises(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        environment.run_seed(tmp_path / "file" / "checkpoints")


@pytest.mark.parametrize("user", [{}, {"PYTHONHASHSEED": ""}])
def test_the_hash_seed_follows_from_the_seed(user):
    hashes = hash_seed("123", user)
    assert hashes == hash_seed("123", {}) != hash_seed("124", {})
    assert 0 < int(hashes) < 2**32
    assert child_environment(user, hashes)["PYTHONHASHSEED"] == hashes


@pytest.mark.parametrize(
    ("seed", "user"), [("", {}), *(("123", {"PYTHONHASHSEED": own}) for own in ("0", "5", "random"))]
)
def test_the_users_own_hash_seed_stays(seed, user):
    assert hash_seed(seed, user) == ""
    assert child_environment(user).get("PYTHONHASHSEED") == user.get("PYTHONHASHSEED")


def mode(file: str) -> int:
    return stat.S_IMODE(Path(file).stat().st_mode)


@pytest.mark.parametrize("umask", [0, 0o077, 0o777])
def test_one_key_is_made_for_all_runs_and_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        first = environment.signing_key(tmp_path / "home", "")
    finally:
        os.umask(before)
    content = Path(first).read_bytes()
    assert len(content) == environment.KEY_BYTES
    assert mode(first) == 0o600
    assert environment.signing_key(tmp_path / "home", "") == first
    assert Path(first).read_bytes() == content
    assert list((tmp_path / "home").iterdir()) == [Path(first)]


def test_each_user_has_another_key(tmp_path: Path) -> None:
    files = [environment.signing_key(tmp_path / name, "") for name in "ab"]
    assert Path(files[0]).read_bytes() != Path(files[1]).read_bytes()


def test_each_machine_of_a_fleet_has_the_same_key_and_no_other_fleet_has_it(tmp_path: Path) -> None:
    keys = [
        Path(environment.fleet_signing_key(tmp_path / machine, token)).read_bytes()
        for machine, token in (("a", "00" * 32), ("b", "00" * 32), ("b", "11" * 32))
    ]
    assert keys[0] == keys[1] != keys[2]
    assert bytes(32) not in keys  # it does not show the token
    assert mode(str(tmp_path / "a" / "fleet" / environment.KEY_NAME)) == 0o600


def test_the_key_that_a_worker_of_a_fleet_names_is_used(tmp_path: Path) -> None:
    assert environment.signing_key(tmp_path / "home", "/fleet/key") == "/fleet/key"
    assert not (tmp_path / "home").exists()


def test_a_key_that_others_can_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    Path(environment.signing_key(tmp_path, "")).chmod(0o644)
    with pytest.raises(PermissionError, match="others can read the key"):
        environment.signing_key(tmp_path, "")


def test_a_directory_that_cannot_be_written_to_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(OSError, match="home"):
        environment.signing_key(tmp_path / "home", "")


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
