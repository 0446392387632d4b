"""`scripts/bench resume [--kills N]`: is a killed training resumed exactly, how soon, and what do its checkpoints cost?

Runs ten scripts as users write them (exactness/scripts_*.py) under `stallguard run`, kills each with SIGKILL at random
instants (before the first batch, inside batches, inside saves), and compares the order of the batches of every
attempt, and the end, with those of the plain training, bit for bit.  The checkpoints are made far oftener than in real
life; a third of the kills wait for one.

Then: the time from a restart to the next trained batch against that of a plain start, and the cost of a checkpoint of
25 million parameters with Adam, with the rest that it makes the next one wait.  `--kills 300` is the full proof.
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

from exactness.catalog import SHAPES
from harness.results import Goal, concluded, table
from resumption.attempts import Place
from resumption.chains import SCRIPTS, Chains, Kills

KILLS, PAIRS = 30, 7
IN_SAVES = 0.2  # of the kills, at least
LATER, SHARE = 0.5, 0.01  # seconds; of the training time
HEAD = (
    "script", "kills", "before 1st batch", "inside a save", "trainings", "went on inside an epoch",
    "batches done again", "left out", "out of order", "said", "wrong",
)  # fmt: skip


def row(name: str, seen: Kills) -> tuple[str, ...]:
    """Return one line of the table of kills."""
    return (
        name, str(seen.kills), str(seen.early), str(seen.in_save), str(seen.trainings),
        f"{sum(seen.inside)} of {len(seen.inside)}", f"{sum(seen.again)}, at most {max(seen.again, default=0)}",
        str(seen.left_out), str(seen.disorder), str(seen.said), f"{seen.wrong} of {seen.trainings}",
    )  # fmt: skip


def killing(kills: int, seed: int, names: list[str]) -> list[Goal]:
    """Kill trainings of every script, print what that showed, and return the goals."""
    dice = random.Random(seed)
    shapes = {shape.name: shape for shape in SHAPES}
    found = {}
    for index, name in enumerate(names):
        share = kills // len(names) + (index < kills % len(names))
        with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
            chains = Chains(shapes[name], dice, Path(folder))
            chains.kill(share)
        found[name] = chains.seen
        print(f"{name}: {share} kills, {chains.seen.wrong} wrong", file=sys.stderr, flush=True)
    print(table(HEAD, [row(name, seen) for name, seen in found.items()]))
    everything = list(found.values())
    for trouble in sorted({text for seen in everything for text in seen.troubles}):
        print(f"trouble: {trouble}")
    in_saves = sum(seen.in_save for seen in everything)
    print(f"kills inside a save: {in_saves} of {kills}")
    return [
        Goal("fits that left a batch out", sum(seen.left_out for seen in everything), 0),
        Goal("fits that trained batches out of order", sum(seen.disorder for seen in everything), 0),
        Goal("trainings with wrong results", sum(seen.wrong for seen in everything), 0),
        Goal("troubles", sum(len(seen.troubles) for seen in everything), 0),
        Goal("kills that missed a save", kills - in_saves, kills - IN_SAVES * kills),
    ]  # fmt: skip


def restarting() -> Goal:
    """Compare the time to the next trained batch after a restart with that of a plain start, in pairs."""
    plain, resumed = [], []
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        place = Place(Path(folder), 0.0)
        place.attempt("tfdata", resume=False, kill_after=0.25)
        kept = place.folder / "kept"
        shutil.copytree(place.checkpoints, kept)
        for _ in range(PAIRS):
            plain.append(place.attempt("tfdata", resume=False, guarded=False, kill_after=0.0).first or 0.0)
            shutil.rmtree(place.checkpoints)
            shutil.copytree(kept, place.checkpoints)
            resumed.append(place.attempt("tfdata", resume=True, kill_after=0.0).first or 0.0)
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
        place = Place(Path(folder), 1.0, SHARE)  # so often that only the share bounds it
        rows = place.attempt("large", resume=False).rows
        files = [path.stat().st_size for path in place.checkpoints.rglob("tensors.bin")]
        place.close()
    saves = [row for row in rows if "cost" in row]
    print(f"checkpoint of {rows[-1]['parameters'] / 1e6:.1f} million parameters with Adam, {max(files) / 1e6:.0f} MB:")
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
    parser.add_argument("--only", default=",".join(SCRIPTS), metavar="SCRIPT,...")
    options = parser.parse_args()
    began = time.monotonic()
    goals = [*killing(options.kills, options.seed, options.only.split(",")), restarting(), costs()]
    return concluded(goals, f"\n{time.monotonic() - began:.0f} s; ")


if __name__ == "__main__":
    sys.exit(main())
