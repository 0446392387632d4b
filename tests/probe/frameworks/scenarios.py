"""Runs the scenarios of the real frameworks under the probe."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stallguard.probe import wire
from tests.probe.receiver import Receiver

CHILDREN = Path(__file__).parents[2] / "children"
PORTABLE = {
    "fit": (40, 4, 0, "callbacks"),
    "predict": (0, 20, 0, None),
    "single_batches": (5, 0, 0, "on_batch"),
    "threads": (4, 0, 0, "callbacks"),
}


def guarded(interpreter, script, *arguments, **environment):
    """Run one of the children under the probe."""
    with Receiver() as receiver:
        return receiver.run([interpreter, str(CHILDREN / script), *arguments], 600, cwd=CHILDREN, **environment)


def table(heartbeat):
    """Return what each scenario counted, in the form of EXPECTED."""
    assert heartbeat.code == 0, heartbeat.err[-3000:]
    found = json.loads(heartbeat.out.splitlines()[-1])
    return {
        name: (row["beats"], row["checks"], row.get("saves", 0), wire.SOURCES[row["source"]] if row["beats"] else None)
        for name, row in found.items()
    }


def keras_3_beats_and_dispatches_as_before(other_python: Callable[[str], str], backend: str) -> Any:
    """Train with Keras 3 on `backend`, check what was counted, and return what was heard."""
    heartbeat = guarded(other_python(backend), "keras_scenarios.py", *PORTABLE, KERAS_BACKEND=backend)
    assert table(heartbeat) == PORTABLE
    threads = json.loads(heartbeat.out.splitlines()[-1])["threads"]["result"]
    assert {name.split("-")[0] for name in threads} == {"ThreadPoolExecutor"}
    return heartbeat
