"""A process is known again by pid, start and boot, though the wall clock is set in between."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import psutil
import pytest

from stallguard.host import system
from stallguard.storage import run_files


@pytest.fixture
def clock_steps(monkeypatch):
    """Return a function that has psutil see the wall clock set forward by so many seconds, as a step of it does."""
    real = psutil.Process.create_time

    def step(seconds: float) -> None:
        monkeypatch.setattr(psutil.Process, "create_time", lambda self, **_: real(self) + seconds)
        boot = psutil.boot_time() + seconds
        monkeypatch.setattr(psutil, "boot_time", lambda: boot)

    return step


@pytest.mark.parametrize("seconds", [-86400.0, -5.0, 5.0, 86400.0])
def test_a_step_of_the_wall_clock_makes_a_process_no_other(clock_steps, seconds: float) -> None:
    who = run_files.identity(os.getpid())
    clock_steps(seconds)
    assert run_files.lives(who)
    assert run_files.identity(os.getpid()) == who
    assert not run_files.is_of_another_boot(who)


def test_a_process_of_the_same_number_is_another() -> None:
    who = run_files.identity(os.getpid())
    assert not run_files.lives(msgspec.structs.replace(who, started=who.started - 0.01))


def test_after_a_boot_no_process_is_the_same() -> None:
    """Ticks since the boot can be equal by chance; the boot is not."""
    who = msgspec.structs.replace(run_files.identity(os.getpid()), boot="an earlier one")
    assert not run_files.lives(who)
    assert run_files.is_of_another_boot(who)


def test_the_boot_has_a_name_that_stays() -> None:
    assert len(system.boot()) > 30
    again = subprocess.run(
        [sys.executable, "-c", "from stallguard.host import system; print(system.boot())"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert again.stdout.strip() == system.boot()


def test_an_identity_survives_its_file(tmp_path) -> None:
    who = run_files.identity(os.getpid())
    run_files.write(tmp_path / "who.json", who)
    assert msgspec.json.decode((tmp_path / "who.json").read_bytes(), type=run_files.Identity) == who


def test_a_process_that_is_over_has_no_identity() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    with pytest.raises(ProcessLookupError):
        run_files.identity(process.pid)
