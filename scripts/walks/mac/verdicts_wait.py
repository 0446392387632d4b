"""What was seen of a Metal call that never returns.

Must not ask anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mac.table import Row, judged, unknown

NAME = "Metal call that never returns"
# docs/detection.md: stacks are kept after 30 s of an idle processor in a step, or 45 s of a call that waits for the
# GPU; acted upon after two minutes.
FOUND, ACTED = 45.0, 120.0
SLACK = 15.0  # seconds for the readings
ENDING = 30.0  # seconds for the evidence, and for a training that ignores SIGTERM because its main thread is in C
CAUSE = "device-wait"
LINES = ("waiting_load.py:", "metal_calls.py:")


class Seen(NamedTuple):
    """What happened.  Times are seconds since the epoch; None: it did not happen.

    `returned`: how each way to wait that came back has ended; `line`: what the evidence names; `causes`: of the last
    diagnosis with their confidence, the likeliest first; `native`: whether the native stacks name the call.
    """

    began: float | None
    returned: tuple[str, ...]
    suspected: float | None
    stalled: float | None
    restarted: float | None
    line: str
    causes: tuple[tuple[str, float], ...]
    native: bool
    attempts: int
    code: int | None
    said: str


def waited(seen: Seen, *, darwin: bool = True) -> Iterator[Row]:
    """Whether the wait was found in time, named, and acted upon.  `darwin`: whether native stacks can name it."""
    if seen.began is None:
        yield unknown(NAME, f"the fit did not come to its wait: {seen.said}")
        return
    ways = "; ".join(seen.returned)
    if seen.stalled is None and seen.attempts == 1 and seen.code == 0 and ways:
        yield unknown(NAME, "macOS let no call wait without end, and the fit went on by itself", ways)
        return
    aside = f"; {ways}" if ways else ""
    # If the first way to wait came back, the second has begun later than what is noted.
    late = "" if not ways else "; the time counts from the first way to wait"
    found = None if seen.stalled is None else seen.stalled - seen.began
    suspected = "no" if seen.suspected is None else f"{seen.suspected - seen.began:.0f} s"
    figure = f"a stall after {_seconds(found)} (possible stall: {suspected}){aside}{late}"
    yield judged(f"{NAME}: found", found is not None and (ways or found <= FOUND + SLACK), figure,
                 f"a stall within {FOUND:.0f} s", "it is found too late, or not at all")  # fmt: skip
    cause, confidence = seen.causes[0] if seen.causes else ("no cause", 0.0)
    native = "native stacks name the call" if seen.native else "no native stack names the call"
    line = seen.line.strip("; ") or "no line"
    figure = f"{cause} ({confidence:.0%}); {line}; {native}"
    named = any(name in seen.line for name in LINES) and cause == CAUSE and (seen.native or not darwin)
    yield judged(f"{NAME}: named", named, figure, f"its line, and the cause {CAUSE}", "it is explained otherwise")
    acted = None if seen.restarted is None else seen.restarted - seen.began
    figure = f"started again after {_seconds(acted)}; {seen.attempts} attempts, exit code {seen.code}"
    holds = acted is not None and (ways or acted <= ACTED + ENDING) and (seen.attempts, seen.code) == (2, 0)
    yield judged(f"{NAME}: acted upon", holds, figure, "the training is started again after two minutes, and ends well",
                 f"it is not remedied: {seen.said}")  # fmt: skip


def usable(code: int, said: str, seconds: float) -> Row:
    """Whether another process computes on the GPU afterwards."""
    return judged("GPU after a Metal call that never returned", code == 0, f"{said.strip()[-100:]} ({seconds:.1f} s)",
                  "another process computes on the GPU at once",
                  "the GPU does not compute: restart the Mac before you train, and send the file")  # fmt: skip


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f} s"
