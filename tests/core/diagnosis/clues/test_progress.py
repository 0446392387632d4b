"""What the frame of the training's thread says about the cause, before any stack is collected and without a census."""

from __future__ import annotations

import pytest

from stallguard.core.diagnosis import causes, diagnose
from stallguard.core.events import Heartbeat, Sampled
from stallguard.core.history import History, remember
from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Process
from stallguard.core.verdicts import Finding, Judgement
from tests.simulation.alone import Alone

NOW = 200.0
SINCE = 180.0


def findings(
    phase: str, wait: str, evidence: str = "external wait", wait_at: float = 180.5, *,
    census: dict[str, int] | None = None, timers_known: bool = False,
) -> list[Finding]:  # fmt: skip
    judgement = Judgement(
        step="stalled", row="STEP", phase=phase, evidence=evidence, gap=20.0, since=SINCE, pulse=True,
        timers_known=timers_known,
    )  # fmt: skip
    seen = History()
    for second in range(60):
        at = NOW - 59 + second
        record = Heartbeat(
            at=at, attempt=1, beats=500, phase=phase, progress_at=SINCE, sent_at=at,
            wait=wait if at >= wait_at else "", wait_at=wait_at if at >= wait_at else 0.0, wakers=0,
        )  # fmt: skip
        seen = remember(seen, record)
        seen = remember(seen, Sampled(at=at, reading=Process(state="sleeping", cpu=10.0, members=1, census=census)))
    return list(diagnose.diagnose(seen, judgement, NOW))


@pytest.mark.parametrize("phase", ["step", "between", "epoch end", "validation"])
def test_an_idle_wait_in_a_call_of_the_library_is_a_wait_for_the_device(phase: str) -> None:
    first = findings(phase, "library")[0]

    assert first.cause == causes.DEVICE_WAIT
    assert "its thread stands in a call of the training library for 20 s" in " ".join(first.evidence)


def test_a_call_of_the_library_for_the_next_batch_is_a_wait_for_the_input() -> None:
    assert findings("input", "library")[0].cause == causes.INPUT_STARVATION


@pytest.mark.parametrize("phase", ["step", "between", "epoch end"])
def test_a_lock_is_a_deadlock_also_inside_a_step_and_the_kind_of_wait_is_said(phase: str) -> None:
    first = findings(phase, "lock", "deadlock")[0]

    assert first.cause == causes.HOST_DEADLOCK
    said = " ".join(first.evidence)
    assert "a lock, an event, a queue or another thread, without a timeout, for 20 s" in said
    assert "no other Python thread can release it" in said
    assert "all of its threads" not in said, "without a census the other threads are unknown"


@pytest.mark.parametrize("wait", ["sleep", "io", "timed"])
def test_a_thread_that_waits_for_something_outside_is_known_as_such_without_a_census(wait: str) -> None:
    assert findings("between", wait)[0].cause == causes.OUTSIDE_WAIT
    assert causes.OUTSIDE_WAIT not in {found.cause for found in findings("between", "")}


def test_a_wait_from_before_the_last_progress_says_nothing() -> None:
    old = findings("between", "lock", wait_at=170.0)

    assert all("without a timeout" not in " ".join(found.evidence) for found in old)


@pytest.mark.parametrize(
    ("census", "timers_known", "is_outside"),
    [
        ({"futex": 15, "sleep": 1, "timed": 1}, False, False),  # TensorFlow's own: before the first healthy step
        ({"futex": 15, "sleep": 1, "timed": 1}, True, True),
        ({"futex": 15, "sock": 1}, False, True),
    ],
)
def test_a_timer_is_evidence_only_if_it_is_known_which_ones_the_library_has_itself(
    census: dict[str, int], timers_known: bool, is_outside: bool
) -> None:
    found = findings("first run", "", census=census, timers_known=timers_known)
    assert (causes.OUTSIDE_WAIT in {one.cause for one in found}) is is_outside


def test_work_just_before_a_short_wait_does_not_hide_its_cause() -> None:
    """With little patience the wait is judged while the last ten seconds still hold a compilation."""
    scene = Alone(DetectorLimits(patience=0.25)).train(60)
    scene.silent(5.0, "compile")
    scene.silent_until("stalled", "deadlock")
    scene.stacks("lock")

    assert scene.diagnosed()[0].cause == causes.HOST_DEADLOCK


@pytest.mark.parametrize(
    ("stacks", "cause"), [(("user",), causes.OUTSIDE_WAIT), (("user", "generator"), causes.INPUT_STARVATION)]
)
def test_a_callback_that_sleeps_before_the_first_batch_of_an_epoch_is_no_input(
    stacks: tuple[str, ...], cause: str
) -> None:
    scene = Alone().train(60).enter("epoch start")
    scene.silent_until("stalled", "sleeper", frame=("sleep", 0))
    scene.stacks(*stacks)

    assert scene.diagnosed()[0].cause == cause
