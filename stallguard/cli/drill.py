"""`stallguard drill`: rehearse a stall in the real training environment, before trusting a night to it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from stallguard import config
from stallguard.cli._options import given, settings
from stallguard.cli.run import guard
from stallguard.config.table import KEYS

TRAIN = Path(__file__).resolve().parent.parent / "drills" / "train.py"
KINDS = ("op", "lock", "gil", "spin", "stopped")
# A rehearsal must not take the patience of a night: judged sooner, acted upon at once, halved at once.
REHEARSAL = {"policy.on_stall": "halve", "policy.causes": "stopped=halve", "detector.act_after": "1s"}
SOONER = {"spin": {"detector.rows.step.spin": "20s", "detector.rows.step.prior_spin": "20s"}}
OPTIONS = tuple(key for key in KEYS.values() if key.path in ("run.python", "output.quiet", "output.color"))


@click.command("drill")
@click.option(
    "--kind", type=click.Choice(KINDS), default="op", show_default=True,
    help="How the step blocks: in an operation of the TensorFlow runtime, on a lock, in native code that holds "
    "the GIL, in a busy loop, or stopped by a signal.",
)  # fmt: skip
@settings(OPTIONS)
def command(kind: str, **parameters: Any) -> None:
    """Rehearse a stall: a small Keras training that really blocks, is caught, restarted smaller, and finishes.

    Run it with the interpreter of your training: `stallguard drill --python ~/envs/tf/bin/python`.
    """
    flags = REHEARSAL | SOONER.get(kind, {}) | {k: v for k, v in given(parameters).items() if v is not None}
    loaded = config.load(flags, os.environ, Path.cwd())
    sys.exit(guard((str(TRAIN), "--kind", kind), loaded))
