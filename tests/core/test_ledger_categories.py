"""To the second: the category of each kind of time, from the events and actions of short stories."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import asdict

from stallguard.core import ledger
from stallguard.core.actions import Announce, Collect, Conclude, Signal
from stallguard.core.events import (
    DUMP,
    ClockGap,
    Collected,
    Event,
    Exited,
    Heartbeat,
    Launched,
    ProbeConnected,
    ProcessLeft,
    SupervisorRestarted,
)

Happened = Event | tuple[float, object]

LAUNCHED, CONNECTED = Launched(at=0.0, attempt=1, pid=7), ProbeConnected(at=1.0, attempt=1, pid=7, place="p")
SECOND = (Launched(at=80.0, attempt=2, pid=8), ProbeConnected(at=81.0, attempt=2, pid=8, place="p"))


def record(at: float, **fields: Any) -> Heartbeat:
    """Return a record that made progress at `at`, in the first attempt's process unless `fields` say otherwise."""
    usual = {"attempt": 1, "pid": 7, "beats": 90, "beat_at": at, "progress_at": at, "phase": "train"}
    return Heartbeat(at=at, **(usual | {"fits": 1, "epoch": 0, "batch": 90, "batches": 100} | fields))


def said(at: float, message: str, pid: int = 7, **facts: str) -> tuple[float, object]:
    return at, Announce(message, {"pid": str(pid), **facts})


def seconds(*happened: Happened, now: float) -> dict[str, float]:
    """Return the categories that took time until `now`."""
    known = ledger.Ledger(since=0.0)
    for what in happened:
        at, value = what if isinstance(what, tuple) else (what.at, what)
        known = ledger.after(known, at, value)
    return {name: took for name, took in asdict(ledger.spent(known, now)).items() if took}


TRAINS = (LAUNCHED, CONNECTED, record(10.0), record(50.0))  # start_up 10, training 40
STALLED = (*TRAINS, said(70.0, "training.stalled"))
CRASHED = (*TRAINS, Exited(at=75.0, attempt=1, code=-9), said(75.0, "attempt.restarting"))

STORIES: dict[str, tuple[tuple[Happened, ...], float, dict[str, float]]] = {
    "the start ends with the first batch": (TRAINS, 50.0, {"start_up": 10, "training": 40}),
    "the first batch is older than its record":
        ((LAUNCHED, CONNECTED, record(10.0, beat_at=8.0, progress_at=8.0)), 10.0, {"start_up": 8, "training": 2}),
    "imports are part of the start":
        ((LAUNCHED, CONNECTED, record(20.0, beats=0), record(30.0)), 30.0, {"start_up": 30}),
    "waits for input are counted by the probe":
        ((*TRAINS, record(60.0, input_s=4.0)), 60.0, {"start_up": 10, "training": 46, "input_wait": 4}),
    "a wait cannot be longer than the time":
        ((*TRAINS, record(60.0, input_s=99.0)), 60.0, {"start_up": 10, "training": 40, "input_wait": 10}),
    "a phase begins when the probe entered it": (
        (*TRAINS, record(60.0, phase="validation", phase_at=52.0), record(70.0, phase="checkpoint", phase_at=61.0),
         record(80.0, phase="idle", phase_at=77.0)), 81.0,
        {"start_up": 10, "training": 42, "validation": 9, "checkpoint": 16, "script": 4},
    ),
    "a record that is older than another process' changes nothing":
        ((*TRAINS, record(51.0, pid=9, phase="validation", phase_at=30.0, progress_at=40.0)), 60.0,
         {"start_up": 10, "training": 50}),
    "without hooks the time is unknown":
        ((LAUNCHED, CONNECTED, record(10.0, aside=True), record(50.0, aside=True)), 60.0,
         {"start_up": 10, "unknown": 50}),
    "a suspicion is open": ((*TRAINS, said(60.0, "training.suspected")), 63.0,
                            {"start_up": 10, "training": 50, "suspected": 3}),
    "a suspicion that is cleared":
        ((*TRAINS, said(60.0, "training.suspected"), said(65.0, "training.cleared"), record(66.0)), 66.0,
         {"start_up": 10, "training": 51, "suspected": 5}),
    "a second suspicion is the same one":
        ((*TRAINS, said(60.0, "training.suspected"), said(64.0, "training.suspected", pid=9)), 66.0,
         {"start_up": 10, "training": 50, "suspected": 6}),
    "a stall takes all its silence":
        ((*TRAINS, said(60.0, "training.suspected"), said(70.0, "training.stalled")), 71.0,
         {"start_up": 10, "training": 40, "stalled": 21}),
    "a suspicion within a stall changes nothing":
        ((*STALLED, said(71.0, "training.suspected", pid=9)), 75.0, {"start_up": 10, "training": 40, "stalled": 25}),
    "records do not end a stall": ((*STALLED, record(72.0)), 75.0, {"start_up": 10, "training": 40, "stalled": 25}),
    **{
        f"a stall that ended: {word}":
            ((*STALLED, said(80.0, f"training.{word}")), 85.0, {"start_up": 10, "training": 45, "stalled": 30})
        for word in ("cleared", "recovered", "continued")
    },
    "a stall before the first batch is followed by the rest of the start":
        ((LAUNCHED, CONNECTED, said(60.0, "training.stalled"), said(70.0, "training.recovered"), record(80.0)), 80.0,
         {"stalled": 70, "start_up": 10}),
    "a stall of a later start too":
        ((*CRASHED, *SECOND, said(90.0, "training.stalled", 8), said(95.0, "training.recovered", 8)), 99.0,
         {"start_up": 10, "training": 40, "ending": 25, "backoff": 5, "stalled": 15, "restart": 4}),
    "the process that stalls leaves": ((*STALLED, ProcessLeft(at=80.0, attempt=1, pid=7, how="vanished")), 85.0,
                                       {"start_up": 10, "training": 45, "stalled": 30}),
    "another process leaves": ((*STALLED, ProcessLeft(at=80.0, attempt=1, pid=9, how="ended")), 85.0,
                               {"start_up": 10, "training": 40, "stalled": 35}),
    "a process leaves, nothing stalls": ((*TRAINS, ProcessLeft(at=60.0, attempt=1, pid=7, how="ended")), 65.0,
                                         {"start_up": 10, "training": 55}),
    "evidence of a stall":
        ((*STALLED, (70.0, Collect(1, 1)), Collected(at=73.0, incident=1, seconds=3.0)), 75.0,
         {"start_up": 10, "training": 40, "stalled": 22, "collecting_evidence": 3}),
    "evidence that the user orders costs nothing":
        ((*STALLED, (70.0, Collect(DUMP, 1)), Collected(at=73.0, incident=DUMP, seconds=3.0)), 75.0,
         {"start_up": 10, "training": 40, "stalled": 25}),
    "a stall before the first batch, after a start that went on":
        ((LAUNCHED, CONNECTED, record(8.0, beats=0), said(70.0, "training.stalled")), 75.0,
         {"start_up": 8, "stalled": 67}),
    "evidence that the user orders meanwhile":
        ((*STALLED, (70.0, Collect(1, 1)), Collected(at=71.0, incident=DUMP, seconds=1.0)), 75.0,
         {"start_up": 10, "training": 40, "stalled": 20, "collecting_evidence": 5}),
    "evidence of a crash belongs to its pause": ((*CRASHED, (75.0, Collect(1, 1))), 79.0,
                                                 {"start_up": 10, "training": 40, "ending": 25, "backoff": 4}),
    "a stopped process": ((*TRAINS, said(70.0, "training.stalled", judged="stopped"),
                           said(80.0, "training.continued")), 82.0,
                          {"start_up": 10, "training": 42, "stopped_by_user": 30}),
    "SIGTERM ends an attempt": ((*STALLED, (72.0, Signal(1, "TERM")), (75.0, Signal(1, "KILL"))), 80.0,
                                {"start_up": 10, "training": 40, "stalled": 22, "ending": 8}),
    "SIGINT can be handled": ((*TRAINS, (60.0, Signal(1, "INT")), record(70.0)), 70.0,
                              {"start_up": 10, "training": 60}),
    "a signal after the end": ((*CRASHED, (76.0, Signal(1, "KILL"))), 79.0,
                               {"start_up": 10, "training": 40, "ending": 25, "backoff": 4}),
    "a crash, a pause and a new start": ((*CRASHED, *SECOND), 85.0,
                                         {"start_up": 10, "training": 40, "ending": 25, "backoff": 5, "restart": 5}),
    "a crash whose pause is not in the journal":
        ((*TRAINS, Exited(at=75.0, attempt=1, code=-9), *SECOND), 85.0,
         {"start_up": 10, "training": 40, "ending": 30, "restart": 5}),
    "batches again": ((*CRASHED, *SECOND, record(90.0, attempt=2, pid=8, beats=1, batch=1),
                       record(95.0, attempt=2, pid=8, batch=90)), 99.0,
                      {"start_up": 10, "training": 44, "ending": 25, "backoff": 5, "restart": 10,
                       "redone_batches": 5}),
    "waits for input among batches again":
        ((*CRASHED, *SECOND, record(90.0, attempt=2, pid=8, beats=1, batch=1),
          record(94.0, attempt=2, pid=8, batch=50, input_s=2.0)), 94.0,
         {"start_up": 10, "training": 40, "ending": 25, "backoff": 5, "restart": 10, "redone_batches": 4}),
    "a late record of the attempt before":
        ((*CRASHED, *SECOND, record(82.0)), 85.0,
         {"start_up": 10, "training": 40, "ending": 25, "backoff": 5, "restart": 5}),
    "not guarded any more": ((*TRAINS, said(60.0, "run.unguarded"), record(70.0), (75.0, Conclude(0))), 99.0,
                             {"start_up": 10, "training": 50, "unknown": 15}),
    "the end of what is not guarded any more":
        ((*TRAINS, said(60.0, "run.unguarded"), Exited(at=70.0, attempt=1, code=0), (75.0, Conclude(0))), 99.0,
         {"start_up": 10, "training": 50, "unknown": 15}),
    "no probe": ((LAUNCHED,), 30.0, {"unknown": 30}),
    "a sleep of the machine": ((*TRAINS, ClockGap(at=55.0, seconds=3600.0)), 60.0,
                               {"start_up": 10, "training": 50, "machine_asleep": 3600}),
    "a sleep while nothing is guarded":
        ((*TRAINS, said(60.0, "run.unguarded"), ClockGap(at=65.0, seconds=3600.0)), 70.0,
         {"start_up": 10, "training": 50, "unknown": 10, "machine_asleep": 3600}),
    "a time without processor is not added": ((*TRAINS, ClockGap(at=55.0, seconds=4.0, why="starved")), 60.0,
                                              {"start_up": 10, "training": 50}),
    "stallguard was killed": ((*TRAINS, SupervisorRestarted(at=90.0, seconds=35.0, until=55.0)), 95.0,
                              {"start_up": 10, "training": 50, "supervisor_absent": 35}),
    "the machine was started anew":
        ((*TRAINS, SupervisorRestarted(at=5.0, seconds=300.0, until=55.0, rebooted=True),
          Launched(at=9.0, attempt=2, pid=3)), 9.0,
         {"start_up": 10, "training": 45, "supervisor_absent": 300, "backoff": 4}),
    "nothing counts after the end":
        ((*TRAINS, Exited(at=75.0, attempt=1, code=0), (75.0, Conclude(0)), ClockGap(at=90.0, seconds=60.0)), 400.0,
         {"start_up": 10, "training": 65}),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_each_second_is_in_the_category_that_it_belongs_to(story: str) -> None:
    happened, now, expected = STORIES[story]

    assert seconds(*happened, now=now) == expected
