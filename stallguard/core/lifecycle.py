"""The life of a run, as a table of plain data; the diagram in ARCHITECTURE.md is generated from it.

Rule 1: everything that moves the state of a run goes through `next_state`.  core.shutdown.move calls it for the
handlers of core.fold, core.fallback and core.user_commands; no module sets `Run.state` by itself.
Rule 2: a trigger that a state does not list leaves the state as it is.  So a handler can send its trigger without
asking for the state first, and an event that comes too late does nothing.
Rule 3: ENDED states have no way out, and each other state can reach one of them.

Theory of operation
-------------------

A run is a sequence of attempts.  An attempt begins in STARTING, when the child process exists, and ends when its
Exited event arrives: in DONE, or in BACKOFF if another attempt follows.  (If SIGKILL does not end the child, the run
ends in FAILED.)  Between the two, a state answers three questions at once:

- Is there a child that a signal can reach?  ALIVE has these states.
- Does the verdict of the detector move the run?  WATCHED has these.  core.fold follows the verdict in no other state,
  so a run that is being ended cannot become a stall.
- What is expected next?  Progress (STARTING, WARMING, RUNNING), or the end of a gap (SUSPECT), or the evidence
  (COLLECTING), or the time at which the policy acts (HOLDING), or the child's end (STOPPING, KILLING), or the end of
  a pause (BACKOFF).  In STOPPING, KILLING and BACKOFF, `Run.deadline` says when the wait is over.

The usual stall is RUNNING - SUSPECT - COLLECTING - HOLDING - STOPPING - BACKOFF - STARTING.  HOLDING goes back to
RUNNING if the training continues by itself.  COLLECTING does not: the evidence of a stall is kept even if it ends
meanwhile, and HOLDING, which follows, recovers at the next event.

What this table does not say:

- Why the run ends.  `Run.decision` has it, and it decides between DONE and BACKOFF when the child has ended.
- Whether the end was ordered for a set time or a segment (`Run.arranged`).  Such a run stays in its state, with a
  decision and a deadline, while the training finishes its batch and saves.  It would deserve a state of its own; it has
  none because the verdict, a stall and an interrupt during that wait would have to be repeated there.
- An interrupt (Ctrl-C) that the script handles itself (`Run.interrupted`), for the same reason.
- Which of several trainings is meant.  A run has one state, which follows the training in focus (core.trainings).

Two entries look redundant.  STARTING lists "progress" because a loop that calls stallguard.beat() can report a batch
in its first record.  "ended" and "restart" stand in almost every state because a child can end at any moment; a
fallback for all states would hide that BACKOFF and UNGUARDED differ.

UNGUARDED is not a part of this life.  It is entered if the core fails on an event that it must not miss, or three
times (core.fallback): stallguard passes the user's requests on and reports the child's end, and nothing else.

This module must not know why anything happens.
"""

from __future__ import annotations

NEW, STARTING, WARMING, RUNNING = "new", "starting", "warming", "running"
SUSPECT, COLLECTING, HOLDING = "suspect", "collecting", "holding"
STOPPING, KILLING, BACKOFF = "stopping", "killing", "backoff"
UNGUARDED, DONE, FAILED = "unguarded", "done", "failed"

MEANING = {
    NEW: "nothing has been started",
    STARTING: "the training is starting; nothing is known of it yet",
    WARMING: "the training has started; no batch has ended yet",
    RUNNING: "batches end",
    SUSPECT: "possible stall: no progress for longer than usual",
    COLLECTING: "stalled: the evidence is being collected",
    HOLDING: "stalled, and the evidence is kept; it can still go on by itself",
    STOPPING: "it was asked to end (SIGTERM), and has time to save",
    KILLING: "it is being killed (SIGKILL)",
    BACKOFF: "a pause before it is started again",
    UNGUARDED: "stallguard itself failed: the training continues without supervision",
    DONE: "over",
    FAILED: "over: nothing more can be done",
}
ALIVE = frozenset({STARTING, WARMING, RUNNING, SUSPECT, COLLECTING, HOLDING, STOPPING, KILLING, UNGUARDED})
WATCHED = frozenset({STARTING, WARMING, RUNNING, SUSPECT, COLLECTING, HOLDING})
ENDING = frozenset({STOPPING, KILLING})  # the attempt was asked to end, or is being ended
ENDED = frozenset({DONE, FAILED})

TRANSITIONS: dict[str, dict[str, str]] = {
    NEW: {"launched": STARTING, "start failed": FAILED},
    STARTING: {
        "connected": WARMING, "progress": RUNNING, "suspected": SUSPECT, "stalled": COLLECTING,
        "ended": DONE, "restart": BACKOFF, "stop": STOPPING, "internal error": UNGUARDED,
    },
    WARMING: {
        "progress": RUNNING, "suspected": SUSPECT, "stalled": COLLECTING,
        "ended": DONE, "restart": BACKOFF, "stop": STOPPING, "internal error": UNGUARDED,
    },
    RUNNING: {
        "suspected": SUSPECT, "stalled": COLLECTING, "ended": DONE, "restart": BACKOFF, "stop": STOPPING,
        "internal error": UNGUARDED,
    },
    SUSPECT: {
        "recovered": RUNNING, "stalled": COLLECTING, "ended": DONE, "restart": BACKOFF, "stop": STOPPING,
        "internal error": UNGUARDED,
    },
    COLLECTING: {
        "collected": HOLDING, "ended": DONE, "restart": BACKOFF, "stop": STOPPING, "internal error": UNGUARDED,
    },
    HOLDING: {
        "recovered": RUNNING, "stop": STOPPING, "ended": DONE, "restart": BACKOFF, "internal error": UNGUARDED,
    },
    STOPPING: {"grace expired": KILLING, "ended": DONE, "restart": BACKOFF, "internal error": UNGUARDED},
    KILLING: {"unkillable": FAILED, "ended": DONE, "restart": BACKOFF, "internal error": UNGUARDED},
    BACKOFF: {"launched": STARTING, "ended": DONE, "start failed": FAILED},
    UNGUARDED: {"ended": DONE},
    DONE: {},
    FAILED: {},
}  # fmt: skip


def next_state(state: str, trigger: str) -> str:
    """Return the state after `trigger`; the same state if the table lists none."""
    return TRANSITIONS[state].get(trigger, state)


def common_moves() -> dict[str, str]:
    """Return the moves of each state in which a supervised child lives."""
    rows = [TRANSITIONS[state] for state in ALIVE - {UNGUARDED}]
    return {trigger: target for trigger, target in rows[0].items() if all(row.get(trigger) == target for row in rows)}


def diagram() -> str:
    """Return the table as a Mermaid state diagram, without the moves that many states share."""
    lines, left_out = ["stateDiagram-v2", f"    [*] --> {NEW}"], common_moves()
    for state, moves in TRANSITIONS.items():
        own = moves.items() - (left_out.items() if state in ALIVE - {UNGUARDED} else set())
        lines += [
            f"    {state} --> {target}: {trigger}" for trigger, target in moves.items() if (trigger, target) in own
        ]
        lines += [f"    {state} --> [*]"] if state in ENDED else []
    return "\n".join(lines)
