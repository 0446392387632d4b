"""Loops whose batches are trained in parts, run by the real libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.probe.receiver import Receiver


def in_parts(interpreter: str, child: Path, count: int, *cases: str, **environment: Any) -> dict[str, Any]:
    """Return what each case of a child ends with, its batches in `count` parts."""
    with Receiver() as receiver:
        heard = receiver.run([interpreter, str(child), *cases], 600, cwd=child.parent, slices=count, **environment)
    assert heard.code == 0, heard.err[-3000:]
    assert not [note for note in heard.notes if note["kind"] in ("aside", "trouble")]
    found: dict[str, Any] = json.loads(heard.out.splitlines()[-1])
    return found


def restarted(interpreter: str, child: Path, folder: Path, counts: tuple[int, int], case: str) -> dict[str, Any]:
    """Return the same of a case that is killed in the second epoch with its batches in `counts[0]` parts.

    It goes on with `counts[1]`.
    """
    saves = {"checkpoints": str(folder), "checkpoint_every": 0.0, "checkpoint_cost": 1.0}
    with Receiver() as receiver:
        killed = receiver.run(
            [interpreter, str(child), case], 600, cwd=child.parent, slices=counts[0], STOP="1 1", **saves
        )
    assert killed.code == 9, killed.err[-3000:]
    return in_parts(interpreter, child, counts[1], case, resume=True, **saves)


def differing(plain: dict[str, Any], found: dict[str, Any], within: float) -> dict[str, Any]:
    """Return the cases that do not end alike: values, updates of the optimizer, learning rate."""
    differences = {}
    for name, row in found.items():
        most = max(
            (abs(one - other) for one, other in zip(row["values"], plain[name]["values"], strict=True)), default=0.0
        )
        facts = [(one["steps"], one["rate"], len(one["values"])) for one in (row, plain[name])]
        if not most <= within or facts[0] != facts[1]:
            differences[name] = (most, *facts)
    return differences


def notes_of(found: dict[str, Any], name: str) -> dict[str, str]:
    """Return the notes of a case on parts, by their kind."""
    return {kind: text for kind, text in found[name]["notes"] if kind in ("micro", "whole", "inexact")}
