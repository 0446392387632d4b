"""The checks of the walk, in order: what cannot be noticed first.

Each says in a line what it does, and what its user may notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from mac import gpu, machine, night
from mac.scene import Scene
from mac.table import FAILED, UNASKED, Row


class Check(NamedTuple):
    """`notice`: what a user at the Mac can notice of it; "" if there is nothing."""

    name: str
    says: str
    do: Callable[[Scene], Iterator[Row]]
    notice: str = ""


CHECKS = (
    Check("gpu", "read the GPU without root", gpu.rest),
    Check("memory", "read memory pressure, swap and the compressor", machine.memory),
    Check("heat", "read heat, source of power and lid", machine.surroundings),
    Check("sleep", "compare our clock with the sleeps that the kernel remembers", machine.sleep),
    Check("processes", "read a child's threads, kill it, and learn how it ended", machine.processes),
    Check("samples", "sample an idle process of each Python that is here", machine.samples),
    Check("evidence", "run each tool of an evidence bundle once on an idle process", machine.evidence,
          "up to two minutes; the unified log is read for GPU restarts of the last minutes"),
    Check("work", "train on the GPU, watch its counters, ask for stacks", gpu.work,
          "three minutes of a busy GPU and perhaps the fan"),
    Check("job", "install a job, replace it, kill stallguard under it, let it finish, stop it, remove it", night.job,
          'macOS says "Background Items Added"; everything is removed again'),
    Check("answers", "ask launchd for its default time to end, and about a label that is switched off", night.answers,
          "the same message again"),
    Check("agent-gpu", "train on the GPU under launchd for a few batches", night.gpu, "the same message again"),
    Check("caffeinate", "hold the Mac awake for a moment and look whether macOS lists it", machine.caffeinate),
    Check("guarded", "look whether a job may list ~/Documents; its names are not kept", night.guarded,
          "macOS may ask whether `ls` may look into Documents: refuse"),
    Check("notification", "send one notification", machine.notification, "a notification of Script Editor"),
    Check("doctor", "have stallguard's doctor compute on the GPU", machine.doctor),
    Check("drill", "rehearse a stall with a small training", machine.drill, "up to ten minutes of a training"),
    Check("tests", "run the tests of tests/live", machine.suite, "a few more minutes of all that"),
)  # fmt: skip


def chosen(only: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks of these names, in order; all if none is named.  Raises ValueError."""
    unknown = sorted(set(only) - {check.name for check in CHECKS})
    if unknown:
        raise ValueError(
            f"no check {', '.join(unknown)}; there are: {', '.join(check.name for check in CHECKS)}"
        )
    return tuple(check for check in CHECKS if not only or check.name in only)


def walk(scene: Scene, checks: Sequence[Check], pause: Callable[[], None]) -> list[Row]:
    """Make the checks; return their rows.  `pause`: before each that may be noticed.  An interruption ends it."""
    rows: list[Row] = []
    for number, check in enumerate(checks, start=1):
        scene.say(f"{number}/{len(checks)}  {check.name}: {check.says}")
        try:
            if check.notice:
                scene.say(f"      you may notice: {check.notice}")
                pause()
            rows.extend(check.do(scene))
        except KeyboardInterrupt:
            rest = checks[number - 1 :]
            return rows + [Row(left.name, UNASKED, means="interrupted by you") for left in rest]
        except Exception as error:  # noqa: BLE001 - one that fails must not hide the others
            rows.append(Row(check.name, FAILED, type(error).__name__, str(error)))
    return rows
