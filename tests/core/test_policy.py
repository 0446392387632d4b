"""The restart policy: each cause gets its remedy, and no remedy crosses the bounds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallguard.core.diagnosis import causes
from stallguard.core.limits import ON_STALL, DetectorLimits, PolicyLimits
from stallguard.core.policy import (
    LONGEST_PAUSE,
    AttemptHistory,
    add_attempt,
    decide,
    is_urgent,
    mathematics,
    pause,
    slices_inside,
)
from stallguard.core.verdicts import Finding
from stallguard.errors import GAVE_UP
from tests import examples
from tests.simulation.attempts import Attempt, Ending, end, history_of, live
from tests.simulation.simulation import Simulation
from tests.simulation.subjects import OneTraining

SAME, HALF, QUARTER = (1, "default"), (2, "default"), (4, "default")

HALVING = [HALF, QUARTER, (8, "default"), (16, "default"), (32, "default"), (64, "default")]
# cause: what is tried, in order, where it comes back at the same batch each time on a machine with a GPU
STUCK = {
    causes.DEVICE_WAIT: [SAME, HALF, (2, "cpu")],
    causes.GPU_ERROR: [SAME, HALF, (2, "cpu")],
    causes.GPU_ERROR_STICKY: [SAME, SAME, (1, "cpu")],
    causes.GPU_INTERACTIVITY: [SAME, SAME],
    causes.CUDA_FAULT: [SAME],
    causes.GPU_MEMORY_FAULT: [SAME],
    causes.NCCL: [SAME, SAME],
    causes.HOST_DEADLOCK: [SAME, HALF],
    causes.OUTSIDE_WAIT: [SAME, SAME],
    causes.OPENMP_CLASH: [SAME, SAME],
    causes.GIL_HELD: [SAME, (1, "cpu")],
    causes.BUSY_LOOP: [SAME],
    causes.INPUT_STARVATION: [SAME, SAME],
    causes.MEMORY_THRASH: HALVING,
    causes.GPU_OUT_OF_MEMORY: HALVING,
    causes.OUT_OF_MEMORY_KILL: HALVING,
    causes.OUT_OF_MEMORY: HALVING,
    causes.SIZE_LIMIT: [HALF, QUARTER, (4, "cpu")],
    causes.MEMORY_GROWTH: [SAME, *HALVING],
    causes.NATIVE_CRASH: [SAME, SAME, (1, "cpu")],
    causes.KILLED: [SAME, SAME],
    causes.UNKNOWN: [SAME, SAME],
    causes.MEMORY_RUNS_OUT: [SAME, SAME],
    causes.OBJECT_GROWS: [SAME, SAME],
    causes.STEPS_NEED_MORE: HALVING,
}
# cause: action and exit code at once, for a process that ended with code 3, or stalled
AT_ONCE = {
    causes.MUTEX_CLASH: ("give_up", GAVE_UP, None),
    causes.PLUGIN_MISMATCH: ("give_up", 3, 3),
    causes.STUCK_IN_KERNEL: ("give_up", GAVE_UP, None),
    causes.GPU_BUSY_AFTER_KILL: ("give_up", 137, -9),
    causes.MACHINE_FROZE: ("notify", 0, None),
    causes.CUDA_ASSERT: ("give_up", 3, 3),
    causes.GPU_LOST: ("give_up", 3, 3),
    causes.SCRIPT_ERROR: ("finish", 3, 3),
    causes.SILENT_EXIT: ("finish", 3, 3),
    causes.ENDED_BY_REQUEST: ("finish", 143, -15),
    causes.FINISHED: ("finish", 0, 0),
    causes.EXIT_HANG: ("finish", 0, None),
    causes.STOPPED: ("notify", 0, None),
    causes.THROTTLED: ("notify", 0, None),
    causes.TRANSIENT: ("notify", 0, None),
    causes.CPU_FALLBACK: ("notify", 0, None),
    causes.RETRACING: ("notify", 0, None),
    causes.SLOW_OPTIMIZER: ("notify", 0, None),
    causes.ROSETTA: ("notify", 0, None),
    causes.WRONG_NUMBERS: ("notify", 0, None),
    causes.COMPILING: ("notify", 0, None),
    causes.DATA_ENDED: ("notify", 0, None),
    causes.ASLEEP: ("wait", 0, None),
    causes.SAVING: ("wait", 0, None),
}
CRASHES = (causes.NATIVE_CRASH, causes.KILLED, causes.OUT_OF_MEMORY_KILL)


def test_every_cause_has_its_row_here() -> None:
    assert set(STUCK) | set(AT_ONCE) == set(causes.CAUSES)


@pytest.mark.parametrize("cause", STUCK)
def test_what_comes_back_at_the_same_batch_climbs_its_ladder_and_ends(cause: str) -> None:
    code = -11 if cause in CRASHES else None
    night = live(lambda _: Ending(cause, code=code), gpu=True)
    assert night.tries == STUCK[cause]
    assert night.end.action == "give_up"
    assert night.end.code == (139 if code else GAVE_UP)


PLACES = ["importing", "idle", "tracing", "first run", "step", "between", "input", "validation", "checkpoint"]


@settings(max_examples=examples.of(300, fast=50), deadline=None)
@given(
    st.sampled_from(sorted(STUCK)),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(PLACES)), min_size=8, max_size=8),
    st.sampled_from([None, 64]),
)
def test_wherever_it_comes_back_without_progress_the_whole_ladder_is_climbed(
    cause: str, places: list[tuple[int, str]], rows: int | None
) -> None:
    """At the same batch, before the first one after the resume, while tracing: no attempt gets past batch 60."""

    def training(attempt: Attempt) -> Ending:
        at, phase = (60, "step") if attempt.number == 1 else places[attempt.number % len(places)]
        return Ending(cause, at=at, phase=phase, code=-11 if cause in CRASHES else None)

    assert live(training, PolicyLimits(), gpu=True, rows=rows).tries[:8] == STUCK[cause][:8]


@settings(max_examples=examples.of(100, fast=16), deadline=None)
@given(st.lists(st.sampled_from([causes.DEVICE_WAIT, causes.HOST_DEADLOCK, causes.UNKNOWN]), min_size=4, max_size=4))
def test_a_rung_that_did_not_help_is_not_taken_again_for_another_name_of_the_same_trouble(names: list[str]) -> None:
    """What is known of a hang is worth 56 % once and 57 % the other time."""
    night = live(lambda attempt: Ending(names[(attempt.number - 1) % 4]), gpu=True)
    changed = [one for one in night.tries if one != SAME]
    assert changed == [one for one in (HALF, (2, "cpu"), (1, "cpu")) if one in changed]
    if names[1] == causes.DEVICE_WAIT:
        assert HALF in night.tries


def test_what_was_seen_in_an_earlier_attempt_is_still_known() -> None:
    """An attempt that stalls before its first batch shows neither its rows nor that it uses a GPU."""
    trained, blocked = Ending(causes.DEVICE_WAIT), Ending(causes.DEVICE_WAIT, at=0, phase="importing")
    past = AttemptHistory()
    for number, (ending, factor) in enumerate([(trained, 1), (blocked, 1), (blocked, 2)]):
        shown = {"gpu": True, "rows": 3} if ending is trained else {}
        story = end(Simulation(OneTraining(DetectorLimits()), several=True), ending, **shown).history
        began = 100.0 * number
        past = add_attempt(past, story, [Finding(ending.cause, 0.9)], factor, "default", began, began + 50.0)
    chosen = decide([Finding(causes.DEVICE_WAIT, 0.9)], past, PolicyLimits())
    assert (chosen.action, chosen.device) == ("restart", "cpu")
    halved = decide([Finding(causes.OUT_OF_MEMORY, 0.9)], past, PolicyLimits())
    assert halved.action == "give_up"
    assert "1/4 of a batch of 3 rows is less than 1 row" in halved.why


@pytest.mark.parametrize("cause", AT_ONCE)
def test_what_no_restart_helps_is_settled_at_once(cause: str) -> None:
    action, code, ended = AT_ONCE[cause]
    (only,) = live(lambda _: Ending(cause, code=ended)).decisions
    assert (only.action, only.code) == (action, code)
    assert only.why


@pytest.mark.parametrize("order", [word for word in ON_STALL if word != "auto"])
@pytest.mark.parametrize("cause", [causes.SCRIPT_ERROR, causes.PLUGIN_MISMATCH, causes.STUCK_IN_KERNEL])
def test_no_order_restarts_what_no_restart_helps(cause: str, order: str) -> None:
    assert not live(lambda _: Ending(cause), PolicyLimits(on_stall=order)).tries


@pytest.mark.parametrize("cause", [causes.GPU_INTERACTIVITY, causes.BUSY_LOOP, causes.SCRIPT_ERROR])
def test_where_the_batch_has_no_part_it_is_never_made_smaller(cause: str) -> None:
    night = live(lambda attempt: Ending(cause, at=60 + attempt.number), gpu=True)
    assert all(factor == 1 for factor, _ in night.tries)


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (PolicyLimits(), 8), (PolicyLimits(causes=("gpu-out-of-memory=halve", "device-wait=stop")), 8),
        (PolicyLimits(on_stall="stop"), 8), (PolicyLimits(causes=("gpu-out-of-memory=stop",)), 1),
        (PolicyLimits(causes=("out-of-memory = restart",)), 1), (PolicyLimits(batch_flag="--batch"), 1),
    ],
)  # fmt: skip
def test_a_step_is_trained_again_in_slices_unless_something_else_is_ordered(limits: PolicyLimits, most: int) -> None:
    assert slices_inside(limits) == most


def test_a_smaller_batch_that_helps_is_kept() -> None:
    def training(attempt: Attempt) -> Ending:
        return Ending(causes.DEVICE_WAIT) if attempt.factor < 2 else Ending(causes.FINISHED, at=5000, code=0)

    night = live(training)
    assert night.tries == [SAME, HALF]
    assert (night.end.action, night.end.code) == ("finish", 0)


def test_the_order_to_halve_halves_for_as_long_as_the_batch_can_be_halved() -> None:
    night = live(lambda _: Ending(causes.DEVICE_WAIT), PolicyLimits(on_stall="halve"))
    assert [factor for factor, _ in night.tries] == [2, 4, 8, 16, 32, 64]
    assert night.end.code == GAVE_UP


def test_the_order_for_the_cpu_needs_no_gpu_that_was_seen() -> None:
    night = live(lambda _: Ending(causes.DEVICE_WAIT), PolicyLimits(on_stall="cpu"))
    assert night.tries[0] == (1, "cpu")


@pytest.mark.parametrize(("order", "action"), [("stop", "give_up"), ("notify", "notify")])
def test_orders_that_restart_nothing(order: str, action: str) -> None:
    (only,) = live(lambda _: Ending(causes.DEVICE_WAIT), PolicyLimits(on_stall=order)).decisions
    assert only.action == action


def test_the_order_to_notify_ends_nothing_that_no_restart_would_help() -> None:
    stalls = {
        order: live(lambda _: Ending(causes.EXIT_HANG), PolicyLimits(on_stall=order)) for order in ("auto", "notify")
    }
    assert {order: night.end.action for order, night in stalls.items()} == {"auto": "finish", "notify": "notify"}


def test_the_end_of_a_script_that_failed_names_its_error() -> None:
    said = ("it ended with exit code 1", f"Python ended with an error: ValueError: {'x' * 500}")
    long = Finding(causes.SCRIPT_ERROR, 0.8, evidence=said)
    past = add_attempt(
        AttemptHistory(), history_of(Ending(causes.SCRIPT_ERROR, code=1)), [long], 1, "default", 1.0, 1.0
    )
    why = decide([long], past, PolicyLimits()).why
    assert why.startswith("your script failed: ValueError: xxx")
    assert len(why) < 250


def test_an_order_for_stalls_says_nothing_of_crashes() -> None:
    night = live(lambda _: Ending(causes.NATIVE_CRASH, code=-11), PolicyLimits(on_stall="stop"))
    assert night.tries[0] == SAME


def test_an_order_for_one_cause_is_stronger_than_one_for_all() -> None:
    limits = PolicyLimits(on_stall="stop", causes=("host-deadlock = restart", "device-wait=cpu", "rubbish"))
    assert live(lambda _: Ending(causes.HOST_DEADLOCK), limits).tries[0] == SAME
    assert live(lambda _: Ending(causes.DEVICE_WAIT), limits).tries[0] == (1, "cpu")
    assert not live(lambda _: Ending(causes.BUSY_LOOP), limits).tries


def test_a_cause_on_thin_evidence_gets_the_remedy_of_the_unknown() -> None:
    night = live(lambda _: Ending(causes.MEMORY_THRASH, confidence=0.3))
    assert night.tries[0] == SAME


# ---- bounds ---------------------------------------------------------------------------------------------------


def test_the_batch_keeps_its_least_rows() -> None:
    night = live(lambda _: Ending(causes.OUT_OF_MEMORY_KILL, code=-9), PolicyLimits(min_batch=8), rows=32)
    assert night.tries == [HALF, QUARTER]
    assert night.end.code == 137


def test_without_a_gpu_there_is_no_going_to_the_cpu() -> None:
    assert live(lambda _: Ending(causes.DEVICE_WAIT), gpu=False).tries == [SAME, HALF]


def test_a_crash_that_gets_on_is_restarted_three_times() -> None:
    night = live(lambda attempt: Ending(causes.NATIVE_CRASH, at=60 * attempt.number, code=-6))
    assert night.tries == [SAME, SAME, SAME]
    assert night.end.code == 134


def test_crashes_hours_apart_are_no_habit() -> None:
    night = live(lambda attempt: Ending(causes.NATIVE_CRASH, 60 * attempt.number, 7 * 3600.0, -6), most=20)
    assert night.tries == [SAME] * 20
    assert {decision.delay for decision in night.decisions} == {0.0}


def test_a_deadlock_that_gets_on_each_time_may_spend_the_budget() -> None:
    limits = PolicyLimits(max_restarts=5)
    night = live(lambda attempt: Ending(causes.HOST_DEADLOCK, at=60 * attempt.number), limits)
    assert len(night.tries) == 5
    assert "5 restarts" in night.end.why


def test_what_is_spent_comes_back_as_it_ages() -> None:
    limits = PolicyLimits(max_restarts=2, restart_window=1000.0)
    night = live(lambda attempt: Ending(causes.KILLED, at=60 * attempt.number, lasted=600.0, code=-9), limits, most=30)
    assert len(night.tries) == 30


def test_no_restart_at_all_where_none_is_allowed() -> None:
    (only,) = live(lambda _: Ending(causes.DEVICE_WAIT), PolicyLimits(max_restarts=0)).decisions
    assert (only.action, only.code) == ("give_up", GAVE_UP)


def test_another_phase_is_another_trouble() -> None:
    def training(attempt: Attempt) -> Ending:
        return Ending(causes.DEVICE_WAIT, at=60 * attempt.number, phase="step" if attempt.number % 2 else "validation")

    assert set(live(training, PolicyLimits(max_restarts=6)).tries) == {SAME}


def test_the_first_restart_comes_at_once_and_then_the_pauses_double() -> None:
    limits = PolicyLimits(backoff=20.0)
    assert [pause(troubles, limits) for troubles in range(1, 6)] == [0.0, 20.0, 40.0, 80.0, LONGEST_PAUSE]
    assert pause(10_000, limits) == LONGEST_PAUSE
    assert [pause(troubles, PolicyLimits(backoff=600.0)) for troubles in (1, 2, 9)] == [0.0, 600.0, 600.0]


def test_a_healthy_attempt_ends_the_pauses() -> None:
    def training(attempt: Attempt) -> Ending:
        lasted = 7200.0 if attempt.number == 4 else 60.0
        return Ending(causes.KILLED, at=60 * attempt.number, lasted=lasted, code=-9)

    delays = [decision.delay for decision in live(training, most=5).decisions]
    assert delays == [0.0, 2.0, 4.0, 0.0, 2.0]


def test_a_long_attempt_that_came_no_further_is_not_a_healthy_one() -> None:
    night = live(lambda _: Ending(causes.BUSY_LOOP, lasted=7200.0), PolicyLimits(max_restarts=100))
    assert len(night.tries) == 1


def test_a_smaller_batch_is_reported_for_what_it_does_to_the_mathematics() -> None:
    assert mathematics(1, "default") == "neither the batch nor the device changes"
    assert "4 slices" in mathematics(4, "default")
    assert "BatchNormalization" in mathematics(4, "default")
    assert "CPU" in mathematics(1, "cpu")
    assert "the optimizer sees the same batch" in mathematics(2, "cpu")
    assert "rounds differently" in mathematics(2, "cpu")


def test_only_what_computes_nonsense_is_urgent() -> None:
    assert is_urgent([Finding(causes.GPU_ERROR_STICKY, 0.9)])
    assert not is_urgent([Finding(causes.GPU_ERROR, 0.9), Finding(causes.GPU_ERROR_STICKY, 0.8)])
    assert not is_urgent([])


# ---- whatever happens -----------------------------------------------------------------------------------------

ENDINGS = st.builds(
    Ending, cause=st.sampled_from([*causes.CAUSES, "never heard of"]), at=st.integers(0, 5000),
    lasted=st.floats(0.01, 5000.0), code=st.one_of(st.none(), st.integers(-15, 255)),
    phase=st.sampled_from(["step", "between", "input"]), confidence=st.floats(0.0, 1.0),
)  # fmt: skip
LIMITS = st.builds(
    PolicyLimits, on_stall=st.sampled_from(ON_STALL), max_restarts=st.integers(0, 8),
    restart_window=st.floats(1.0, 10_000.0), no_progress_limit=st.integers(1, 4), min_batch=st.integers(1, 64),
    backoff=st.floats(0.0, 50.0), healthy=st.floats(1.0, 4000.0),
)  # fmt: skip


@settings(max_examples=examples.of(120, fast=20), deadline=None)
@given(st.lists(ENDINGS, min_size=1, max_size=40), LIMITS, st.booleans(), st.one_of(st.none(), st.integers(1, 512)))
def test_the_budget_holds_in_every_window(
    endings: list[Ending], limits: PolicyLimits, gpu: bool, rows: int | None
) -> None:
    night = live(lambda attempt: endings[(attempt.number - 1) % len(endings)], limits, gpu=gpu, rows=rows)
    restarts = night.began[1:]
    for began in restarts:
        within = [other for other in restarts if began <= other < began + limits.restart_window]
        assert len(within) <= limits.max_restarts
    assert all(0.0 <= decision.delay <= LONGEST_PAUSE for decision in night.decisions)
    assert all(decision.why and decision.mathematics for decision in night.decisions)
    assert all(rows is None or factor == 1 or rows // factor >= limits.min_batch for factor, _ in night.tries)


@settings(max_examples=examples.of(120, fast=20), deadline=None)
@given(st.lists(ENDINGS, max_size=20), LIMITS)
def test_a_finished_training_is_never_started_again(endings: list[Ending], limits: PolicyLimits) -> None:
    past = AttemptHistory()
    for number, ending in enumerate([*endings, Ending(causes.FINISHED, code=0)]):
        story = history_of(ending)
        past = add_attempt(past, story, [Finding(ending.cause, 0.9)], 1, "default", float(number), float(number))
    assert decide([Finding(causes.NATIVE_CRASH, 0.9)], past, limits).action == "finish"


@settings(max_examples=examples.of(200, fast=33), deadline=None)
@given(st.lists(st.builds(Finding, cause=st.text(), confidence=st.floats(0, 1)), max_size=3), LIMITS)
def test_there_is_always_a_decision(findings: list[Finding], limits: PolicyLimits) -> None:
    assert decide(findings, AttemptHistory(), limits).action in ("wait", "notify", "restart", "give_up", "finish")
