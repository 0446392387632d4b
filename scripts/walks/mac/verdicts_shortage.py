"""What was seen of a training beside others: on a shared GPU, and while memory is short.

Must not ask anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mac.table import Row, judged, unknown

FOUND = 60.0  # seconds: an idle processor in a step is a stall after 30 s or, if it waits for the GPU, 45 s; and slack
SATURATED = 0.5  # share of the GPU that others use, below which nothing is shown


def beside(batches: int, others: int, stalls: int, suspicions: int, said: str) -> Row:
    """Whether a training goes on without an alarm while another process saturates the GPU."""
    check, expected = "training on a shared GPU", "it goes on, and no stall is called"
    figure = f"{batches} batches beside {others} of the other; {stalls} stalls, {suspicions} possible stalls"
    if not others:
        return unknown(check, "the other process did not use the GPU meanwhile", figure, expected)
    if not batches and not stalls:
        return judged(check, holds=False, figure=figure, means=expected, otherwise=f"it does not train: {said}")
    return judged(check, batches > 0 and stalls == 0, figure, expected, "slow batches beside another pass for a stall")


def blocked(found: float | None, devices: Sequence[Mapping[str, Any]]) -> Row:
    """Whether a blocked training is a stall, and the use of the GPU by another is not counted as its own.

    `found`: seconds until the stall; `devices`: the readings of the GPU meanwhile.
    """
    check, expected = "the other's use of the GPU", "a blocked training is a stall, though another uses the GPU"
    uses = [float(one["utilisation"]) for one in devices if one.get("utilisation") is not None]
    moved = [bool(one["moved"]) for one in devices if one.get("moved") is not None]
    shown = f"{max(uses):.0%} in use" if uses else "its use is not read"
    called = "no stall" if found is None else f"a stall after {found:.0f} s"
    figure = f"{called}; GPU: {shown}; counted as the training's in {sum(moved)} of {len(moved)} readings"
    if found is None or found > FOUND:
        return judged(check, holds=False, figure=figure, means=expected,
                      otherwise="the GPU's work for another passes for the training's")  # fmt: skip
    if not moved or max(uses, default=0.0) < SATURATED:
        return unknown(check, "a stall, but the GPU was not read as busy with another meanwhile", figure, expected)
    return judged(check, not any(moved), figure, expected, "the other's use is counted as the training's")


def short(code: int, text: str, levels: Sequence[str], alarms: Sequence[str], batches: int) -> Row:
    """Whether a shortage of memory is seen, and is no alarm."""
    check, expected = "training while memory is short", "the pressure is seen, and is no alarm"
    if code:
        why = f"it cannot be simulated: {' '.join(text.split())[-120:]}"
        return unknown(check, f"{why}; with root it can: sudo -v; scripts/live --only short-memory",
                       f"exit code {code}", expected)  # fmt: skip
    read = ", ".join(dict.fromkeys(levels)) or "none"
    figure = f"pressure read: {read}; alarms: {', '.join(alarms) or 'none'}; {batches} batches"
    return judged(check, "warn" in levels and not alarms and batches > 0, figure, expected,
                  "the pressure is not seen" if "warn" not in levels else "the training is disturbed")  # fmt: skip
