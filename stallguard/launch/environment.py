"""The environment of an attempt's child: the user's, and the variables that load the probe.

Pure: dictionaries in, dictionaries out.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import msgspec

from stallguard.launch import run_seed, signing_key
from stallguard.probe import process_key
from stallguard.storage import private

INJECT = Path(__file__).resolve().parent.parent / "probe" / "inject"
OURS = "STALLGUARD_"
HOME = "STALLGUARD_HOME"
# Its default is to be ignored, in each program that has no probe (yet), and no batch system sends it.  SIGUSR1 is the
# user's: Slurm sends it before the time limit, and a script without a handler ends by it, as without stallguard.
STACKS_SIGNAL = int(signal.SIGURG)


class ProbeConfig(msgspec.Struct, frozen=True):
    """The settings of the probe in one attempt."""

    socket: str
    pages: str  # directory of the pages and stack files
    token: int
    factor: int = 1
    checkpoints: str = ""  # directory of the checkpoint generations; "" = none
    resume: bool = False
    device: str = "default"
    signal: int = 0  # number of the stack-dump signal
    every: float = 300.0  # seconds between two checkpoints
    cost: float = 0.01  # largest share of the training's time for checkpoints
    inexact: str = "fallback"  # if a resume is not exact: fallback, continue or stop
    most: int = 1_000_000_000  # bytes of callbacks' own data in a checkpoint
    rows: int = 0  # batch size that stallguard passes in the arguments; 0: none
    divisor: int = 0  # divisor of the batch size passed to the script; 0: none is passed
    really: str = ""  # fewer rows if fit takes a batch size; how the learning rate is scaled then
    trackers: str = (
        ""  # directory of what W&B, MLflow and TensorBoard chose in earlier attempts; "": not resumed
    )
    project: str = ""  # root of the project, if it can have another path on another machine
    key: str = ""  # file of the key that signs pickles; "": none are kept
    seed: str = ""  # of the run, for what the script leaves unseeded; "": a new one in each attempt


def child_environment(user: Mapping[str, str], wish: ProbeConfig, inject: Path = INJECT) -> dict[str, str]:
    """Return the child's environment: the user's, the probe's directory first on PYTHONPATH, and `wish`."""
    # What a `stallguard run` inside of this one needs: the settings, and where the runs are.
    kept = {
        name: value
        for name, value in user.items()
        if not name.startswith(OURS) or "__" in name or name == HOME
    }
    path = user.get("PYTHONPATH")
    kept["PYTHONPATH"] = str(inject) if not path else f"{inject}{os.pathsep}{path}"
    kept |= {
        "STALLGUARD_SOCKET": wish.socket,
        "STALLGUARD_RUN": wish.pages,
        "STALLGUARD_TOKEN": str(wish.token),
        "STALLGUARD_FACTOR": str(wish.factor),
        "STALLGUARD_DEVICE": wish.device,
        "STALLGUARD_SIGNAL": str(wish.signal),
        "STALLGUARD_CHECKPOINT_EVERY": f"{wish.every:g}",
        "STALLGUARD_CHECKPOINT_COST": f"{wish.cost:g}",
        "STALLGUARD_CHECKPOINT_MOST": str(wish.most),
        "STALLGUARD_INEXACT": wish.inexact,
    }
    if wish.checkpoints:
        kept["STALLGUARD_CHECKPOINTS"] = wish.checkpoints
    for name, value in (
        ("DIVISOR", wish.divisor), ("ROWS", wish.rows), ("REALLY", wish.really),
    ):  # fmt: skip
        if value:
            kept[f"STALLGUARD_{name}"] = str(int(value) if isinstance(value, bool) else value)
    if wish.trackers:
        kept["STALLGUARD_TRACKERS"] = wish.trackers
    if wish.project:
        kept[process_key.PROJECT] = wish.project
    if wish.key:
        kept[signing_key.VARIABLE] = wish.key
    if wish.resume:
        kept["STALLGUARD_RESUME"] = "1"
    if wish.seed:
        kept["STALLGUARD_SEED"] = wish.seed
        if not user.get("PYTHONHASHSEED"):  # an empty one counts as none
            kept["PYTHONHASHSEED"] = kept["STALLGUARD_HASHSEED"] = run_seed.hash_seed(wish.seed)
    return kept


def keep_reference(pages: Path, environment: Mapping[str, str]) -> None:
    """Write digests of the variables of an attempt's first process: those that differ later belong to one process.

    Raises OSError.
    """
    lines = (f"{digest} {name}\n" for name, digest in process_key.digests(environment).items())
    file = pages / process_key.REFERENCE
    with open(file, "w", encoding="utf-8", errors="surrogateescape", opener=private.opener) as out:
        out.writelines(lines)
