"""`scripts/bench resume [--kills N]`: is a killed training resumed exactly, how soon, and what do its checkpoints cost?

Trains a small deterministic `fit` of arrays, of a tf.data pipeline and of a PyDataset, kills it with SIGKILL at random
instants (before the first batch, inside batches, inside saves), starts it again until it ends, and compares every
attempt with the checkpoints on the disk, and the end with that of the undisturbed training, bit for bit.  The
checkpoints are made far oftener than in real life, so that many kills meet one.

Then: the time from a restart to the next trained batch against that of a plain start, and the cost of a checkpoint of
25 million parameters with Adam, with the rest that it makes the next one wait.  `--kills 100` is the full proof.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from detection.figures import table
from detection.goals import Goal, verdict
from resumption.attempts import STEPS, Kill, Place
from resumption.chains import TOTAL, Kills, kill_often

KINDS = ("numpy", "tfdata", "pydataset")
KILLS, PAIRS = 30, 7
LATER, SHARE = 0.5, 0.01  # seconds; of the training time
HEAD = (
    "data", "kills", "before 1st batch", "inside a save", "trainings", "resumed after batch", "inside an epoch",
    "batches done again", "misplaced", "wrong weights",
)  # fmt: skip


def row(kind: str, seen: Kills) -> tuple[str, ...]:
    """Return one line of the table of kills."""
    begun = seen.beginnings or [0]
    inside = sum(done % STEPS > 0 for done in begun)
    return (
        kind, str(seen.kills), str(seen.before_first), str(seen.in_save), str(seen.trainings),
        f"{min(begun)}..{max(begun)} of {TOTAL}", f"{inside} of {len(seen.beginnings)}",
        f"{sum(seen.lost)}, at most {max(seen.lost, default=0)}", str(seen.misplaced + seen.disorder),
        f"{seen.wrong} of {seen.trainings}",
    )  # fmt: skip


def killing(kills: int, seed: int) -> list[Goal]:
    """Kill trainings of every kind of data, print what that showed, and return the goals."""
    dice = random.Random(seed)
    found = {}
    for index, kind in enumerate(KINDS):
        share = kills // len(KINDS) + (index < kills % len(KINDS))
        found[kind], _ = kill_often(kind, share, dice)
        print(f"{kind}: {share} kills", file=sys.stderr, flush=True)
    print(table(HEAD, [row(kind, seen) for kind, seen in found.items()]))
    everything = list(found.values())
    for trouble in sorted({text for seen in everything for text in seen.troubles}):
        print(f"trouble: {trouble}")
    misplaced = sum(seen.misplaced + seen.disorder for seen in everything)
    return [
        Goal("attempts that left a batch out or trained one twice", misplaced, 0),
        Goal("trainings with wrong weights", sum(seen.wrong for seen in everything), 0),
        Goal("troubles", sum(len(seen.troubles) for seen in everything), 0),
        Goal("kills without one inside a save", kills if not any(seen.in_save for seen in everything) else 0, 0),
    ]  # fmt: skip


def restarting() -> Goal:
    """Compare the time to the next trained batch after a restart with that of a plain start, in pairs."""
    plain, resumed = [], []
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        place = Place(Path(folder), 0.0)
        place.attempt("tfdata", resume=False, kill=Kill(0.25))
        kept = place.folder / "kept"
        shutil.copytree(place.checkpoints, kept)
        for _ in range(PAIRS):
            plain.append(place.attempt("tfdata", resume=False, guarded=False, kill=Kill(0.0)).first or 0.0)
            shutil.rmtree(place.checkpoints)
            shutil.copytree(kept, place.checkpoints)
            resumed.append(place.attempt("tfdata", resume=True, kill=Kill(0.0)).first or 0.0)
        place.close()
    later = statistics.median(b - a for a, b in zip(plain, resumed, strict=True))
    print(
        f"\nfrom start to the next trained batch, {PAIRS} pairs: plain {statistics.median(plain):.2f} s, "
        f"resumed {statistics.median(resumed):.2f} s, later by {later:+.2f} s"
    )
    return Goal("seconds that a resumed start takes longer", later, LATER)


def costs() -> Goal:
    """Print what checkpoints of a large model cost, and return the largest share of the time that they may take."""
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        place = Place(Path(folder), 1.0)  # so often that only the share bounds it
        place.share = SHARE
        rows = place.attempt("large", resume=False).rows
        files = [path.stat().st_size for path in place.checkpoints.glob("fit-0001/g*/tensors.bin")]
        place.close()
    saves = [row for row in rows if "cost" in row]
    print(
        f"checkpoint of {rows[-1]['parameters'] / 1e6:.1f} million parameters with Adam, {max(files) / 1e6:.0f} MB:"
    )
    for save in saves:
        print(f"    {save['cost']:.2f} s; the next not before {save['rest']:.0f} s more of training")
    share = max((save["cost"] / (save["cost"] + save["rest"]) for save in saves), default=1.0)
    print(f"largest share of the training time: {share:.2%}")
    return Goal("share of the time for checkpoints", round(share, 4), SHARE)


def main() -> int:
    """Kill, measure, print; return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/bench resume")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    goals = [*killing(options.kills, options.seed), restarting(), costs()]
    print(f"\n{time.monotonic() - began:.0f} s; {verdict(goals)}")
    return 0 if all(goal.holds for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
