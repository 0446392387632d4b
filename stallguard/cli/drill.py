"""`stallguard drill`: rehearse a stall in the real training environment."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from stallguard import config
from stallguard.cli._console import echo
from stallguard.cli._guard import guard
from stallguard.cli._options import given, settings
from stallguard.config.table import KEYS
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.host import tool
from stallguard.launch.command import choose_interpreter
from stallguard.storage import paths, private

TRAIN = Path(__file__).resolve().parent.parent / "drills" / "train.py"
HAS_TENSORFLOW = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorflow') is None)"
DEADLINE = 60.0  # seconds; importlib looks only for files, but the first look into an environment on a network is slow
# A rehearsal must be short: shorter timeouts, a restart at once, the batch halved at once.
SOON = {"policy.on_stall": "halve", "detector.act_after": "1s"}
KINDS = {
    "op": SOON,
    "lock": SOON,
    "gil": SOON,
    "spin": {**SOON, "detector.rows.step.spin": "20s", "detector.rows.step.prior_spin": "20s"},
    # `on_stall` is no order for a cause that no restart helps against, and the verdict is certain at once.
    "stopped": {"policy.causes": "stopped=halve"},
}
OPTIONS = tuple(key for key in KEYS.values() if key.path in ("run.python", "output.quiet", "output.color"))


@click.command("drill")
@click.option(
    "--kind", type=click.Choice(tuple(KINDS)), default="op", show_default=True,
    help="How the step blocks: in an operation of the TensorFlow runtime, on a lock, in native code that holds "
    "the GIL, in a busy loop, or stopped by a signal.",
)  # fmt: skip
@settings(OPTIONS)
def command(kind: str, **parameters: Any) -> None:
    """Rehearse a stall: a small Keras training blocks, is restarted with smaller batches, and finishes.

    Run it with the interpreter of your training: `stallguard drill --python ~/envs/tf/bin/python`.
    """
    flags = KINDS[kind] | {k: v for k, v in given(parameters).items() if v is not None}
    loaded = config.load(flags, os.environ, Path.cwd())
    require_tensorflow(loaded.config.run.python)
    if not loaded.config.output.quiet:
        ours = ", ".join(f"{name} = {value}" for name, value in KINDS[kind].items())
        echo(f"stallguard: the drill sets {ours}, so that it is over soon", err=True)
    sys.exit(guard((str(copied()), "--kind", kind), loaded))


def copied() -> Path:
    """Return a copy of the training outside of the installed package, whose lines would be those of a library.

    Raises StallguardError (exit code 126).
    """
    place, text = paths.home() / "drills" / TRAIN.name, TRAIN.read_bytes()
    try:
        private.ensure(place.parent)
        if not place.is_file() or place.read_bytes() != text:
            private.write(place, text)
    except OSError as error:
        raise StallguardError(
            f"the drill cannot be copied to {place}", why=str(error), code=CANNOT_RUN
        ) from error
    return place


def require_tensorflow(python: str) -> None:
    """Refuse an interpreter that has no TensorFlow.  Raises StallguardError (exit code 126)."""
    chosen = choose_interpreter(python or None, os.environ, shutil.which, cwd=Path.cwd())
    found = tool.run([chosen.path, "-c", HAS_TENSORFLOW], DEADLINE, env=os.environ)
    if found.incomplete:
        raise StallguardError(f"{chosen.path} does not answer", why=found.incomplete, code=CANNOT_RUN)
    if found.code:
        raise StallguardError(
            f"{chosen.path} has no TensorFlow",
            why=f"a drill rehearses in the training's own environment; this one was chosen because: {chosen.why}",
            cure="name the Python that trains: stallguard drill --python /path/to/bin/python",
            code=CANNOT_RUN,
        )
