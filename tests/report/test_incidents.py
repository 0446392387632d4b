"""What went wrong, from the journal: each stall and crash with its reasons, its deeds and its end."""

from __future__ import annotations

import datetime as dt

from stallguard.core.actions import Announce, Collect, Conclude, Diagnosed, Signal
from stallguard.core.events import ClockGap, Collected, Exited, Heartbeat, Launched, ProbeNote
from stallguard.core.time_spent import total
from stallguard.core.verdicts import Decision, Finding
from stallguard.report import attempt_rows, incidents, journal_record, summary
from tests.report.nights import journal
from tests.storage.lines import encoded

SILENT = {"silence": "no progress for 75 s inside a training step", "what": "the processor is idle"}
WAIT = Finding("device-wait", 0.8, evidence=("idle",), against=("warm",), advice=("restart it", "use the CPU"))
LOCK = Finding("host-deadlock", 0.4, evidence=("idle",), advice=("look at the locks",))


def heartbeat(second, beats, attempt=1, **more):
    return second, Heartbeat(
        0.0, attempt, beats=beats, beat_at=100.0 + second, progress_at=100.0 + second, phase="step", **more
    )


STALL = (
    (0, Launched(0.0, 1, 7)),
    heartbeat(10, 1, epoch=0, epochs=3, batch=1, batches=100),
    heartbeat(50, 90, epoch=0, epochs=3, batch=90, batches=100, loss=0.5),
    (125, Announce("training.stalled", SILENT)),
    (125, Collect(1, 1)),
    (127, Collected(0.0, 1, 2.0, where="train.py:9 in step", stacks=("metal_wait",), fingerprint="f")),
    (127, Diagnosed(1, (LOCK,))),
    (127, Diagnosed(1, (WAIT, LOCK), Decision("restart", "it helps", slices=2))),
    (127, Signal(1, "TERM")),
    (130, Exited(0.0, 1, -15)),
    (132, Launched(0.0, 2, 8, slices=2, resumed=True)),
    (140, Announce("attempt.resumed", {"text": "fit 1 goes on"})),
    heartbeat(142, 1, 2, epoch=0, epochs=3, batch=81, batches=100),
    heartbeat(182, 200, 2, epoch=2, epochs=3, batch=80, batches=100, loss=0.25),
)
END = ((190, Exited(0.0, 2, 0)), (190, Conclude(0, "finished")))


def read(tmp_path, *happened):
    known = journal_record.read(journal(tmp_path / "j.jsonl", *happened))
    return known, attempt_rows.attempts(known), incidents.incidents(known)


def clock(at):
    return f"{dt.datetime.fromtimestamp(at, dt.UTC):%H:%M:%S}"


def announced(known, tries, troubles, state="finished"):
    sums = summary.totals(known, tries, troubles)
    return " ".join(summary.story(state, {"why": "enough", "code": "1"}, sums, tries, troubles, clock))


def test_a_stall_begins_with_the_last_progress_and_ends_with_the_next_attempt(tmp_path):
    known, _, [one] = read(tmp_path, *STALL, *END)

    assert [round(at - known.first) for at in (one.began, one.noticed, one.acted, one.ended)] == [50, 125, 127, 132]
    assert (one.number, one.attempt, one.outcome) == (1, 1, incidents.RESTARTED)
    assert (one.where, one.classes) == ("train.py:9 in step", ("metal_wait",))


def test_the_last_findings_and_the_decision_stand(tmp_path):
    _, _, [one] = read(tmp_path, *STALL, *END)

    assert one.findings == (WAIT, LOCK)
    assert one.decision.slices == 2
    assert [line.message for line in one.announced] == ["training.stalled", "attempt.resumed"]


def test_a_stall_that_recovers_is_over_without_a_deed(tmp_path):
    _, _, [one] = read(tmp_path, *STALL[:7], (140, Announce("training.recovered", {"gap": "90 s"})), heartbeat(141, 91))

    assert (one.outcome, one.acted, round(one.lost)) == (incidents.RECOVERED, None, 90)


def test_a_stall_at_the_end_of_the_journal_still_lasts(tmp_path):
    path = journal(tmp_path / "j.jsonl", *STALL[:5])
    with path.open("ab") as file:
        file.write(encoded(ClockGap(0.0, 1.0), "2026-03-07T10:03:20.000Z", 299.0))
    known = journal_record.read(path)
    [one] = incidents.incidents(known)

    assert one.outcome == incidents.OPEN
    assert round(one.lost) == 149, "a second of sleep is not lost"
    assert total(known.spent) == known.last - known.first == 200


def test_a_crash_is_an_incident_and_a_crash_inside_a_stall_is_not_another(tmp_path):
    crash = (130, Announce("attempt.crashed", {"attempt": "1", "how": "killed by SIGSEGV"}))
    _, _, [alone] = read(
        tmp_path, *STALL[:3], (129, Exited(0.0, 1, -11)), crash, (130, Diagnosed(0, (LOCK,))), *END[1:]
    )
    _, _, [both] = read(tmp_path, *STALL[:6], (129, Exited(0.0, 1, -11)), crash, *END[1:])

    assert (alone.kind, alone.number, alone.findings) == (incidents.CRASH, 0, (LOCK,))
    assert (both.kind, [line.message for line in both.announced]) == (
        incidents.STALL,
        ["training.stalled", "attempt.crashed"],
    )


def test_attempts_know_how_far_they_came_and_what_was_trained_twice(tmp_path):
    _, tries, _ = read(tmp_path, *STALL, *END)

    assert [(one.number, one.factor, one.resumed, one.code, one.batches) for one in tries] == [
        (1, 1, False, -15, 90),
        (2, 2, True, 0, 200),
    ]
    assert attempt_rows.repeated(tries) == 90 - 81


def test_batches_that_a_resume_passes_over_are_not_trained_twice(tmp_path):
    place = {"epochs": 4, "batches": 40, "skipped": 10}
    resumed = (
        (132, Launched(0.0, 2, 8, resumed=True)),
        heartbeat(140, 0, 2, epoch=2, batch=10, **place),
        heartbeat(142, 2, 2, epoch=2, batch=12, fit_beats=2, **place),
        heartbeat(150, 30, 2, epoch=2, batch=40, fit_beats=30, **place),
    )
    first = heartbeat(50, 90, epoch=2, epochs=4, batch=10, batches=40, fit_beats=90)
    _, tries, _ = read(tmp_path, (0, Launched(0.0, 1, 7)), first, (130, Exited(0.0, 1, -15)), *resumed)

    assert [(one.resumed_at, one.reached) for one in tries] == [(0, 90), (90, 120)]
    assert attempt_rows.repeated(tries) == 0


def test_what_was_repeated_is_not_guessed_without_epochs(tmp_path):
    _, tries, _ = read(
        tmp_path, (0, Launched(0.0, 1, 7)), heartbeat(5, 9), (9, Launched(0.0, 2, 8)), heartbeat(15, 9, 2)
    )

    assert attempt_rows.repeated(tries) is None
    assert attempt_rows.repeated(tries[:1]) == 0


def test_an_attempt_that_could_not_use_its_checkpoint_is_not_resumed(tmp_path):
    begun = (0, Launched(0.0, 2, 8, resumed=True))
    kept = {}
    for name, facts in (("anew", {"fit": "1", "epoch": "0"}), ("second", {"fit": "2", "epoch": "0"}), ("goes on", {})):
        note = (5, ProbeNote(0.0, 2, "inexact", "a sentence", {**facts, "batch": "0"}))
        kept[name] = read(tmp_path, begun, note)[1][0].resumed

    assert kept == {"anew": False, "second": True, "goes on": True}
