"""The life of a run, as a table of plain data; the picture in ARCHITECTURE.md is generated from it.

Rule 1: every state change of a run goes through `next_state`.
Rule 2: a trigger that a state does not list leaves the state as it is; there are no hidden moves.
Rule 3: ENDED states have no way out.
This module may not know why anything happens.
"""

from __future__ import annotations

NEW, STARTING, WARMING, RUNNING = "new", "starting", "warming", "running"
SUSPECT, COLLECTING, HOLDING = "suspect", "collecting", "holding"
STOPPING, KILLING, BACKOFF = "stopping", "killing", "backoff"
UNGUARDED, DONE, FAILED = "unguarded", "done", "failed"

MEANING = {
    NEW: "nothing has been started",
    STARTING: "the child exists; the probe has not spoken",
    WARMING: "the probe is in; no batch yet",
    RUNNING: "batches end",
    SUSPECT: "silent for longer than usual: watched four times a second",
    COLLECTING: "stalled: the evidence is being gathered",
    HOLDING: "stalled and recorded; it may still recover by itself",
    STOPPING: "asked to end (SIGTERM); its grace is running",
    KILLING: "SIGKILL sent",
    BACKOFF: "a pause before the next attempt",
    UNGUARDED: "stallguard itself failed: the training goes its way, and nobody judges it",
    DONE: "over",
    FAILED: "over: nothing more can be done",
}
ALIVE = frozenset({STARTING, WARMING, RUNNING, SUSPECT, COLLECTING, HOLDING, STOPPING, KILLING, UNGUARDED})
WATCHED = frozenset({STARTING, WARMING, RUNNING, SUSPECT, COLLECTING, HOLDING})
ENDED = frozenset({DONE, FAILED})

TRANSITIONS: dict[str, dict[str, str]] = {
    NEW: {"launched": STARTING, "impossible": FAILED},
    STARTING: {
        "greeted": WARMING, "progress": RUNNING, "suspected": SUSPECT, "stalled": COLLECTING,
        "ended": DONE, "again": BACKOFF, "stop": STOPPING, "failed us": UNGUARDED,
    },
    WARMING: {
        "progress": RUNNING, "suspected": SUSPECT, "stalled": COLLECTING,
        "ended": DONE, "again": BACKOFF, "stop": STOPPING, "failed us": UNGUARDED,
    },
    RUNNING: {
        "suspected": SUSPECT, "stalled": COLLECTING, "ended": DONE, "again": BACKOFF, "stop": STOPPING,
        "failed us": UNGUARDED,
    },
    SUSPECT: {
        "recovered": RUNNING, "stalled": COLLECTING, "ended": DONE, "again": BACKOFF, "stop": STOPPING,
        "failed us": UNGUARDED,
    },
    COLLECTING: {
        "collected": HOLDING, "ended": DONE, "again": BACKOFF, "stop": STOPPING, "failed us": UNGUARDED,
    },
    HOLDING: {
        "recovered": RUNNING, "stop": STOPPING, "ended": DONE, "again": BACKOFF, "failed us": UNGUARDED,
    },
    STOPPING: {"grace over": KILLING, "ended": DONE, "again": BACKOFF, "failed us": UNGUARDED},
    KILLING: {"unkillable": FAILED, "ended": DONE, "again": BACKOFF, "failed us": UNGUARDED},
    BACKOFF: {"launched": STARTING, "ended": DONE, "impossible": FAILED},
    UNGUARDED: {"ended": DONE},
    DONE: {},
    FAILED: {},
}  # fmt: skip


def next_state(state: str, trigger: str) -> str:
    """Return the state after `trigger`; the same state where the table lists none."""
    return TRANSITIONS[state].get(trigger, state)


def diagram() -> str:
    """Return the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {NEW}"]
    for state, moves in TRANSITIONS.items():
        lines += [f"    {state} --> {target}: {trigger}" for trigger, target in moves.items()]
        lines += [f"    {state} --> [*]"] if state in ENDED else []
    return "\n".join(lines)
