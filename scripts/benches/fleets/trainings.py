"""The trainings of `scripts/bench fleet`: their arguments, names, and their weights when nothing guards them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SEEDS, COPIES, EPOCHS = 4, 5, 60


def arguments(seed: int) -> list[str]:
    return ["--seed", str(seed), "--epochs", str(EPOCHS)]


def all_jobs() -> dict[str, list[str]]:
    """Return the arguments of each job, named and written as `stallguard fleet sweep` does it."""
    pairs = [(seed, copy) for seed in range(SEEDS) for copy in range(COPIES)]
    return {
        f"bench-{number:03}": ["--epochs", str(EPOCHS), "--seed", str(seed), "--copy", str(copy)]
        for number, (seed, copy) in enumerate(pairs, 1)
    }


def alone(project: Path, environment: dict[str, str], seed: int) -> str:
    """Return the weights of a training that nothing guards."""
    done = subprocess.run(
        [sys.executable, "train.py", *arguments(seed)], cwd=project, env=environment, check=True, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("digest "))
