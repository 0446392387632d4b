"""What was seen of a training on the GPU under stallguard: a dump, a long step, a blocked step.

Must not ask anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mac.table import Row, judged, unknown

BUSY = 0.5  # share of a core above which a step is no step of the GPU alone
DUMP = 60.0  # seconds: a dump by hand has ended by then
NEEDED = "stacks"


def dump(items: Sequence[Mapping[str, Any]], code: int, seconds: float) -> Row:
    """Whether a dump of a training at work has its stacks; how long each of its items took."""
    states = {str(item.get("name")): str(item.get("state")) for item in items}
    slowest = sorted(items, key=lambda item: -float(item.get("seconds", 0.0)))
    each = ", ".join(f"{item.get('name')} {float(item.get('seconds', 0.0)):.1f} s" for item in slowest)
    late = [name for name, state in states.items() if state not in ("collected", "nothing")]
    figure = f"exit code {code}, {len(items)} items in {seconds:.1f} s: {each or 'none'}"
    holds = code == 0 and states.get(NEEDED) == "collected" and seconds < DUMP
    means = f"stacks come while it computes; without: {', '.join(late) or 'nothing'}"
    return judged("dump of a training", holds, figure, means,
                  "the evidence of a training at work lacks its stacks")  # fmt: skip


def long_step(seconds: float, cpu: float, stalls: int, *, done: bool) -> Row:
    """Whether a step that uses the GPU alone passes for work.  `cpu`: seconds of the processor that it used."""
    check, figure = ("GPU-only step", f"{seconds:.0f} s, {cpu:.0f} s of the processor, called a stall {stalls} times")
    if not done:
        return judged(check, holds=False, figure=figure, means="it ends", otherwise="the step did not end")
    if stalls == 0 and cpu > BUSY * seconds:
        return unknown(check, "the step used the processor as well, so it shows nothing of the GPU alone", figure)
    return judged(check, stalls == 0, figure, "a long step on the GPU alone is no stall",
                  "trainings with long steps are ended for nothing")  # fmt: skip


def blocked(seconds: float, window_server: float | None, training: float | None, *, called: bool) -> Row:
    """Whether a blocked step is a stall though WindowServer uses the GPU.  Times: of the GPU; None: not listed."""
    uses = [("WindowServer", window_server), ("the training", training)]
    shown = ", ".join(f"{name} {'not listed' if time is None else f'{time * 1e3:.0f} ms'}" for name, time in uses)
    figure = f"{'a stall' if called else 'no stall'} after {seconds:.0f} s; GPU time: {shown}"
    check, expected = "blocked step", "a blocked step is a stall, also while WindowServer uses the GPU"
    if called and not window_server:
        return unknown(check, "a stall, but WindowServer was not seen to use the GPU meanwhile", figure, expected)
    return judged(check, called, figure, expected, "the GPU's work for others passes for the training's")  # fmt: skip
