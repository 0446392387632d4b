"""The checks of the walk, in order: what cannot be noticed first.

Each says in a line what it does, and what its user may notice.
"""

from __future__ import annotations

import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from mac import gpu, machine, night, terminal
from mac.scene import Scene
from mac.table import FAILED, UNASKED, Row

MAC, APPLE, ANYWHERE = "a Mac", "a Mac with Apple silicon", ""


class Check(NamedTuple):
    """`notice`: what a user at the machine can notice of it; "" if there is nothing.  `needs`: where it can be made."""

    name: str
    says: str
    do: Callable[[Scene], Iterator[Row]]
    notice: str = ""
    needs: str = MAC


CHECKS = (
    Check("gpu", "read the GPU without root", gpu.rest, needs=APPLE),
    Check("memory", "read memory pressure, swap and the compressor", machine.memory),
    Check("heat", "read heat, source of power and lid", machine.surroundings),
    Check("sleep", "compare our clock with the sleeps that the kernel remembers", machine.sleep),
    Check("processes", "read a child's threads, kill it, and learn how it ended", machine.processes),
    Check("terminal", "run a script under a terminal: its bytes, Ctrl-C, Ctrl-Z, a pipe that closes", terminal.checks,
          needs=ANYWHERE),
    Check("pythons", "run a script with each Python that is here: does the probe connect?", machine.probes,
          needs=ANYWHERE),
    Check("samples", "sample an idle process of each Python that is here", machine.samples),
    Check("evidence", "run each tool of an evidence bundle once on an idle process", machine.evidence,
          "up to two minutes; the unified log is read for GPU restarts of the last minutes"),
    Check("work", "train on the GPU, watch its counters, ask for stacks", gpu.work,
          "three minutes of a busy GPU and perhaps the fan", APPLE),
    Check("job", "install a job, replace it, kill stallguard under it, let it finish, stop it, remove it", night.job,
          'macOS says "Background Items Added"; everything is removed again'),
    Check("answers", "ask launchd for its default time to end, and about a label that is switched off", night.answers,
          "the same message again"),
    Check("agent-gpu", "train on the GPU under launchd for a few batches", night.gpu, "the same message again",
          APPLE),
    Check("caffeinate", "hold the Mac awake for a moment and look whether macOS lists it", machine.caffeinate),
    Check("guarded", "look whether a job may list ~/Documents; its names are not kept", night.guarded,
          "macOS may ask whether `ls` may look into Documents: refuse"),
    Check("notification", "send one notification", machine.desktop_notification, "a notification of Script Editor"),
    Check("doctor", "have stallguard's doctor compute on the GPU", machine.doctor, needs=APPLE),
    Check("drill", "rehearse a stall with a small training", machine.drill, "up to ten minutes of a training",
          ANYWHERE),
    Check("tests", "run the tests of tests/live", machine.live_tests, "a few more minutes of all that"),
    Check("suite", "run the whole suite without the Metal plug-in", machine.suite, "up to half an hour of work",
          ANYWHERE),
)  # fmt: skip


def unattended(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Return those that need no GPU, and of which no user notices anything."""
    return tuple(check for check in checks if not check.notice and check.needs != APPLE)


def chosen(only: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks of these names, in order; all if none is named.  Raises ValueError."""
    unknown = sorted(set(only) - {check.name for check in CHECKS})
    if unknown:
        raise ValueError(
            f"no check {', '.join(unknown)}; there are: {', '.join(check.name for check in CHECKS)}"
        )
    return tuple(check for check in CHECKS if not only or check.name in only)


def place() -> str:
    """Return which checks can be made here: APPLE, MAC, or ANYWHERE."""
    if sys.platform != "darwin":
        return ANYWHERE
    return APPLE if platform.machine() == "arm64" else MAC


def fits(needs: str, here: str) -> bool:
    """Return whether a check that needs this can be made here."""
    order = (ANYWHERE, MAC, APPLE)
    return order.index(needs) <= order.index(here)


def walk(scene: Scene, checks: Sequence[Check], pause: Callable[[], None], here: str = APPLE) -> list[Row]:
    """Make the checks; return their rows.  `pause`: before each that may be noticed.  An interruption ends it."""
    rows: list[Row] = []
    for number, check in enumerate(checks, start=1):
        if not fits(check.needs, here):
            rows.append(Row(check.name, UNASKED, means=f"needs {check.needs}"))
            continue
        scene.say(f"{number}/{len(checks)}  {check.name}: {check.says}")
        try:
            if check.notice:
                scene.say(f"      you may notice: {check.notice}")
                pause()
            began = time.monotonic()
            for row in check.do(scene):
                rows.append(row._replace(seconds=round(time.monotonic() - began, 2)))
                began = time.monotonic()
        except KeyboardInterrupt:
            rest = checks[number - 1 :]
            return rows + [Row(left.name, UNASKED, means="interrupted by you") for left in rest]
        except Exception as error:  # noqa: BLE001 - one that fails must not hide the others
            rows.append(Row(check.name, FAILED, type(error).__name__, str(error)))
            scene.tracebacks.append(f"{check.name}\n{traceback.format_exc()}")
    return rows
