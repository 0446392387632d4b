"""A run has one seed: drawn once, kept beside its checkpoints, inherited with them, given to each attempt."""

from __future__ import annotations

import os

import pytest

from stallguard.launch import run_seed
from stallguard.launch.environment import child_environment
from stallguard.launch.resume import take_over
from stallguard.probe import settings
from stallguard.probe.settings import ProbeSettings
from stallguard.storage.paths import RunDir

WISH = ProbeSettings(socket="s", pages="p", token=1)
SEEDED = ProbeSettings(socket="s", pages="p", token=1, seed="123")


def test_a_run_has_one_seed_and_another_run_another(tmp_path):
    seed = run_seed.seed(tmp_path / "one")
    assert run_seed.seed(tmp_path / "one") == seed
    assert run_seed.seed(tmp_path / "other") != seed


def test_a_run_that_resumes_another_inherits_its_seed(tmp_path):
    old, new = RunDir(tmp_path / "old"), RunDir(tmp_path / "new")
    seed = run_seed.seed(old.checkpoints)
    new.path.mkdir()
    take_over(old, new)
    assert run_seed.seed(new.checkpoints) == seed


def test_a_seed_alone_is_no_checkpoint(tmp_path):
    run = RunDir(tmp_path)
    run_seed.seed(run.checkpoints)
    assert not run.has_checkpoints()
    (run.checkpoints / "a1b2-1" / "fit-0001" / "g1").mkdir(parents=True)
    assert run.has_checkpoints()


@pytest.mark.parametrize("content", [b"", b"12x", b"\xff"])
def test_a_damaged_seed_is_drawn_again(tmp_path, content):
    (tmp_path / "seed").write_bytes(content)
    assert run_seed.seed(tmp_path).isdigit()
    assert run_seed.seed(tmp_path) == (tmp_path / "seed").read_text()


def test_a_place_that_cannot_be_written_raises(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        run_seed.seed(tmp_path / "file" / "checkpoints")


def test_each_attempt_gets_the_seed_and_a_hash_seed_of_it():
    first, second = (child_environment({}, SEEDED) for _ in range(2))
    assert first == second
    assert settings.of(first).seed == "123"
    assert 0 < int(first["PYTHONHASHSEED"]) < 2**32
    assert settings.of(first).hash_seed == first["PYTHONHASHSEED"]
    assert (
        child_environment({}, ProbeSettings(socket="s", pages="p", token=1, seed="124"))["PYTHONHASHSEED"]
        != first["PYTHONHASHSEED"]
    )


def test_without_a_seed_nothing_is_set():
    environment = child_environment(dict(os.environ), WISH)
    assert settings.of(environment).seed == ""
    assert environment.get("PYTHONHASHSEED") == os.environ.get("PYTHONHASHSEED")


@pytest.mark.parametrize("own", ["0", "5", "random"])
def test_the_users_own_hash_seed_stays(own):
    environment = child_environment({"PYTHONHASHSEED": own}, SEEDED)
    assert environment["PYTHONHASHSEED"] == own
    assert settings.of(environment).hash_seed == ""
