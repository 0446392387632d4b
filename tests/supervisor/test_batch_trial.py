"""One try of find-batch: which ends count as survival, which as the batch's fault, and which say nothing of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stallguard.core import fold, trainings
from stallguard.core.diagnosis import causes
from stallguard.core.events import Heartbeat
from stallguard.core.history import History, SeenLines
from stallguard.core.limits import Limits
from stallguard.core.readings import Memory
from stallguard.core.run import Run, Totals
from stallguard.core.verdicts import Finding
from stallguard.supervisor.batch_trial import TrialVerdict, judged, pressed

STEPS = 50


def ended(batches: int = STEPS, cause: str = "", **changes: object) -> Run:
    run, _ = fold.begin(Limits(), 0.0)
    history = History(heartbeat=Heartbeat(at=1.0, attempt=1, beats=batches))
    findings = (Finding(cause, 0.9),) if cause else ()
    return replace(remembering(run, history), findings=findings, **changes)


def remembering(run: Run, history: History) -> Run:
    return trainings.put(run, replace(run.training, history=history))


def test_a_try_that_was_stopped_after_its_batches_survived() -> None:
    assert judged(ended(code=143), STEPS) == TrialVerdict(STEPS)


def test_so_did_a_training_that_came_to_its_end_before() -> None:
    assert judged(ended(20, code=0), STEPS).trouble == ""


@pytest.mark.parametrize("cause", [causes.OUT_OF_MEMORY, causes.OUT_OF_MEMORY_KILL, causes.GPU_ERROR])
def test_what_a_batch_can_do_is_its_fault(cause: str) -> None:
    verdict = judged(ended(3, cause, code=1), STEPS)
    assert verdict.trouble
    assert not verdict.hopeless


@pytest.mark.parametrize("cause", [causes.SCRIPT_ERROR, causes.PLUGIN_MISMATCH, causes.SILENT_EXIT])
def test_what_no_size_would_change_ends_the_search(cause: str) -> None:
    assert judged(ended(0, cause, code=1), STEPS).hopeless


def test_a_stall_is_trouble_even_after_enough_batches() -> None:
    assert judged(ended(code=143, totals=Totals(incidents=1)), STEPS).trouble == "it stalled"


def test_an_interrupt_and_a_script_without_batches_say_nothing() -> None:
    assert judged(ended(3, code=130, interrupts=1), STEPS).hopeless
    assert judged(ended(0, code=0), STEPS).hopeless


def test_parts_that_a_script_does_not_train_in_say_nothing() -> None:
    whole = ended(code=143, factor=2)
    assert "--batch-flag" in judged(whole, STEPS).trouble
    assert judged(whole, STEPS).hopeless
    cut = replace(whole.history, heartbeat=Heartbeat(at=1.0, attempt=1, beats=STEPS, factor=2))
    assert judged(remembering(whole, cut), STEPS).trouble == ""


def test_memory_that_becomes_tight_is_trouble_and_memory_that_was_tight_before_is_not() -> None:
    tight, calm = Memory(pressure="critical"), Memory(pressure="normal")
    memory = tuple(SeenLines(float(at), reading) for at, reading in enumerate([calm, tight]))
    run = ended(code=143)
    assert "pressure" in judged(remembering(run, replace(run.history, memory=memory)), STEPS).trouble
    assert not pressed([tight, tight, calm])
    assert not pressed([])
    assert pressed([Memory(stall_full=0.0), Memory(stall_full=0.2)])
    assert not pressed([Memory(stall_full=0.2), Memory(stall_full=0.3)])


def test_batches_that_stay_whole_end_the_search_and_say_why() -> None:
    whole = ended(code=143, whole="Model: batches stay whole, because the loss adds up over the batch")
    assert judged(whole, STEPS).hopeless
    assert "the loss adds up" in judged(whole, STEPS).trouble
