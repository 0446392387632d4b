"""What only a smaller batch cures is cured with default remedies, wherever it fails again after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from .runs import AT_ONCE, SCRIPTS, Guard, Guarded

pytestmark = [pytest.mark.tf, pytest.mark.live]


def factors(run: Guarded) -> list[int]:
    return [action.get("factor", 1) for action in run.actions("attempt.start_requested")]


def trained(guard: Guard, home: Path, *words: str, patience: str = "1") -> Guarded:
    home.mkdir()
    words = ("--checkpoint-every", "1s", "--checkpoint-cost", "1", str(SCRIPTS / "until_smaller.py"), *words)
    run = guard(home, *AT_ONCE, "--patience", patience, *words)
    assert run.code == 0, run.err
    return run


@pytest.mark.parametrize("where", ["same batch", "first batch after the resume"])
def test_a_batch_that_blocks_each_time_is_halved_without_an_order(
    guard_keras: Guard, tmp_path: Path, where: str
) -> None:
    """Right after a resume the position in the epoch is no size of a batch, and the graph runs for the first time."""
    memory = str(tmp_path / ("again" if where != "same batch" else "never"))
    run = trained(guard_keras, tmp_path / "home", "1,17", "lock", "32", memory)

    assert factors(run) == [1, 1, 2], run.err
    assert run.outcome()["batches"] >= 3 * 24


def test_a_first_batch_that_blocks_each_time_is_halved_without_an_order(guard_keras: Guard, tmp_path: Path) -> None:
    """No step has shown how many timers TensorFlow has itself; no checkpoint, and the graph runs for the first time."""
    run = trained(guard_keras, tmp_path / "home", "0,0", "lock", "32", str(tmp_path / "never"), patience="0.25")

    assert factors(run) == [1, 1, 2], run.err
    assert "waits for a socket, a pipe, a timer" not in run.err


def test_a_batch_too_large_at_the_begin_of_an_epoch_is_halved_until_it_fits(guard_keras: Guard, tmp_path: Path) -> None:
    """The checkpoint between two epochs is at "epoch 2, batch 0": that is no batch of 0 rows."""
    run = trained(guard_keras, tmp_path / "home", "1,0", "memory", "16", "-")

    assert factors(run) == [1, 2, 4], run.err
    plain = trained(guard_keras, tmp_path / "plain", "9,0", "memory", "16", "-")
    assert run.out.split()[:1] == plain.out.split()[:1] == [b"trained"]
    assert float(run.out.split()[1]) == pytest.approx(float(plain.out.split()[1]), rel=1e-4)
