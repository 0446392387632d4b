"""The check of a Metal call that never returns: found, named, acted upon, and the GPU usable afterwards.

A command buffer waits for an event that is never signalled, inside a step of a guarded fit.
Must not judge: verdicts_wait does.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mac import verdicts_wait
from mac.guarded import QUIET, GuardedRun, started
from mac.scene import Scene, until
from mac.table import Row, unknown
from mac.verdicts_wait import Seen

CALLS, LOAD = Path(__file__).with_name("metal_calls.py"), Path(__file__).with_name("waiting_load.py")
IMPORT = 180.0  # seconds for the framework, and the steps before the wait
RUN = 300.0  # seconds from the wait to the end of the second attempt: it is acted upon after 115 s
FILL = 30.0  # seconds for a small computation on the GPU
NATIVE = re.compile(r"waitUntilCompleted|waitUntilSignaledValue")


def checks(scene: Scene, how: str = "metal") -> Iterator[Row]:
    """Guard a fit one step of which waits in Metal without end.  `how`: `pause` waits outside of Metal, as on Linux."""
    python = next(iter(scene.metal_pythons.values()))
    if how == "metal":
        before = scene.tool("metal_fill_before", python, str(CALLS), seconds=FILL)
        if before.code:
            yield unknown("Metal call that never returns", f"Metal does not compute here: {before.text.strip()[-200:]}")
            return
    once = scene.home / "metal-waited"
    words = ("run", "--python", python, *QUIET, str(LOAD), str(once), how)
    with started(scene, *words) as one:
        until(lambda: "waiting since" in one.output or one.process.poll() is not None, IMPORT)
        until(lambda: one.process.poll() is not None, RUN)
        yield from verdicts_wait.waited(_seen(one, once), darwin=sys.platform == "darwin")
    if how == "metal":
        after = scene.tool("metal_fill_after", python, str(CALLS), seconds=FILL)
        yield verdicts_wait.usable(after.code, after.text, after.seconds)


def _seen(one: GuardedRun, once: Path) -> Seen:
    text, events = one.output, one.events
    began = re.search(r"^waiting since ([\d.]+)$", text, re.MULTILINE)
    findings = [event["findings"] for event in events if event.get("event") == "incident.diagnosed"]
    evidence = one.names("evidence.collected")
    return Seen(
        began=float(began[1]) if began else None,
        returned=tuple(once.read_text(errors="replace").splitlines()) if once.exists() else (),
        suspected=_first(events, "training.suspected"),
        stalled=_first(events, "training.stalled"),
        restarted=_first(events, "attempt.restarting"),
        line=str(evidence[0].get("facts", {}).get("line", "")) if evidence else "",
        causes=tuple((str(found["cause"]), float(found["confidence"])) for found in (findings[-1] if findings else ())),
        native=_native(one),
        attempts=len(one.names("attempt.started")),
        code=one.process.poll(),
        said=text.strip()[-200:],
    )


def _first(events: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return when the first event of that name was, in seconds since the epoch."""
    stamp = next((str(event["time"]) for event in events if event.get("event") == name), None)
    return dt.datetime.fromisoformat(stamp).timestamp() if stamp else None


def _native(one: GuardedRun) -> bool:
    """Return whether the native stacks of the incident name the call of Metal."""
    files = one.run.path.glob("incidents/1/*") if one.run else iter(())
    return any(NATIVE.search(file.read_text(errors="replace")) for file in files if file.is_file())
