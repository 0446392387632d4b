"""`scripts/bench microbatch [--gpu] [FACTOR...]`: how much less memory does a batch need that is trained in slices?

Trains a convolution with batches of 512, each batch whole and in 2, 4 and 8 slices, each in a process of its own under
the probe, on the CPU or, with --gpu, where Keras trains by itself (KERAS_BACKEND says with what).  Prints the peak of
resident memory, or of the GPU's, what of it came with the training, the seconds of a batch, and how far the weights
came apart from those of the whole batch.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from harness.children import BENCHES, ROOT, environment
from harness.results import Goal, concluded, table
from stallguard.probe import settings
from stallguard.probe.settings import ProbeSettings

CHILD = BENCHES / "microbatch_child.py"
INJECT = ROOT / "stallguard" / "probe" / "inject"
FACTORS = (1, 2, 4, 8)
# At factor 4, of what training with the whole batch adds to the process: about a third, and what the threads of a CPU
# happen to hold at once (4 % more or less were seen).  Of the weights' own size.
THIRD, APART = 0.4, 1e-4
Row = dict[str, Any]


def measure(factor: int, folder: Path, device: str) -> Row:
    weights = folder / f"{factor}.npy"
    wish = ProbeSettings(socket=str(folder / "s"), pages=str(folder), token=1, slices=factor, device=device)
    done = subprocess.run(
        [sys.executable, str(CHILD), str(weights), device],
        env=environment(**{settings.VARIABLE: settings.encode(wish)}, PYTHONPATH=str(INJECT), TF_CPP_MIN_LOG_LEVEL="3"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found | {"factor": factor, "weights": np.load(weights)}


def apart(row: Row, whole: Row) -> float:
    """Return the largest difference of a weight, relative to the largest weight."""
    return float(np.abs(row["weights"] - whole["weights"]).max() / np.abs(whole["weights"]).max())


def by_training(row: Row) -> float:
    """Return the bytes that training added to the peak of the process, or of the GPU."""
    return float(row["peak"] - row["before"])


def shown(row: Row, whole: Row) -> tuple[str, ...]:
    return (
        str(row["factor"]), f"{row['peak'] / 1e6:.0f} MB", f"{row['peak'] / whole['peak']:.0%}",
        f"{by_training(row) / 1e6:.0f} MB", f"{row['seconds']:.2f} s", f"{apart(row, whole):.1e}",
    )  # fmt: skip


def goals(rows: list[Row]) -> list[Goal]:
    peaks = [row["peak"] for row in rows]
    rises = sum(after >= before for before, after in itertools.pairwise(peaks))
    quarter = [by_training(row) / by_training(rows[0]) for row in rows if row["factor"] == 4]
    return [
        Goal("factors that need no less memory than the one before", rises, 0),
        *(Goal("by training in 4 slices, of the whole batch's", share, THIRD) for share in quarter),
        Goal("weights apart", max(apart(row, rows[0]) for row in rows), APART),
    ]


def main() -> int:
    device = "default" if "--gpu" in sys.argv else "cpu"
    factors = [int(word) for word in sys.argv[1:] if word != "--gpu"] or FACTORS
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        rows = [measure(factor, Path(folder), device) for factor in factors]
    if device != "cpu" and not rows[0]["gpu"]:
        print("Keras trains on no GPU here: leave --gpu out, or choose another KERAS_BACKEND")
        return 1
    head = ("slices", "peak", "of whole", "by training", "a batch", "weights apart")
    print(table(head, [shown(row, rows[0]) for row in rows]))
    found = goals(rows)
    return concluded(found, "\n")


if __name__ == "__main__":
    sys.exit(main())
