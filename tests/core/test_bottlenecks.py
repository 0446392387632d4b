"""What makes a training slow: the right kind first, its line, its cost; and nothing for a healthy one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from stallguard.core import bottleneck_kinds
from stallguard.core.bottlenecks import bottlenecks
from stallguard.core.events import Heartbeat, ProbeConnected
from stallguard.core.history import History, Stage, TimedReading
from stallguard.core.profile import FEEDER, TRAINING, Function, Profile, Spot
from stallguard.core.readings import Machine, Memory, Process

SCRIPT = "/home/ada/train.py"
KERAS_CALLBACK = "keras.src.callbacks.callback_list.on_train_batch_end"


def spot(seconds: float, line: int, role: str = TRAINING, phase: str = "step", **more: Any) -> Spot:
    return Spot(role, phase, seconds, SCRIPT, line, more.pop("function", "<module>"), **more)


FIT = {"calls": "keras.src.trainers.trainer.fit", "does": "tf_wait"}


def story(
    *spots: Spot, seconds: float = 60.0, beats: int = 600, functions: tuple[Function, ...] = (), cores: float = 2.0,
    queue: float = 0.0, throttled: float | None = None, faults: float = 0.0, rows: int | None = 32, dtype: str = "",
    machine: tuple[Machine, ...] = (), nice: int = 0, counts: dict[str, Any] | None = None, stages: int = 4,
    feed: str = "dataset", versions: dict[str, str] | None = None,
) -> History:  # fmt: skip
    """Return the history of a training whose time grew evenly to `spots` within `seconds`, in a few stages."""
    made = []
    for number in range(1, stages + 1):
        part = number / stages
        phases: dict[str, float] = {}
        for one in spots:
            if one.role == TRAINING:
                phases[one.phase] = phases.get(one.phase, 0.0) + one.seconds * part
        shown = tuple(
            Spot(
                one.role, one.phase, one.seconds * part, one.file, one.line, one.function, one.calls, one.does,
                one.called_by, one.feeds,
            )
            for one in spots
        )  # fmt: skip
        done = tuple(
            Function(one.purpose, one.seconds * part, one.calls, one.file, one.line, one.function) for one in functions
        )
        executing = sum(one.seconds for one in shown if one.does == "tf_wait")
        profile = Profile(seconds * part, int(120 * part), phases, executing, done, shown, beats=int(beats * part))
        heartbeat = Heartbeat(
            at=100 + seconds * part,
            attempt=1,
            beats=int(beats * part),
            fits=1,
            **({"source": "callbacks"} | (counts or {})),
        )
        at = seconds * part
        made.append(
            Stage(
                100 + at, profile, heartbeat, cores * at, queue * at, int(faults * at),
                None if throttled is None else throttled * at, 10**9,
            )
        )  # fmt: skip
    return History(
        heartbeat=made[-1].heartbeat,
        stages=tuple(made),
        rows=rows,
        dtype=dtype,
        feed=feed,
        greeted=ProbeConnected(
            at=0.0, attempt=1, pid=7, versions=versions or {"tensorflow": "2.20.0", "keras": "3.12.0"}
        ),
        machine=tuple(TimedReading(100.0 + index, one) for index, one in enumerate(machine)),
        memory=(TimedReading(100.0, Memory()),),
        process=(TimedReading(100.0, Process(nice=nice)),),
    )


def worst(history: History) -> tuple[str, int]:
    found = bottlenecks(history)
    return (found[0].kind, found[0].line) if found else ("", 0)


GENERATOR = spot(58.0, 6, FEEDER, function="generate", does="generator", feeds=True)


def test_a_healthy_training_has_none() -> None:
    assert bottlenecks(story(spot(55.0, 30, **FIT), spot(3.0, 30, phase="between", **FIT))) == ()


def test_nothing_is_said_of_the_first_seconds() -> None:
    assert bottlenecks(story(spot(9.0, 6, does="sleep"), seconds=9.0)) == ()


def test_neither_a_stall_nor_the_work_of_stallguard_is_slowness() -> None:
    lock = spot(43.0, 9, phase="no progress", does="lock", called_by=KERAS_CALLBACK)
    digest = spot(40.0, 30, phase="stallguard", does="tf_wait")
    other = spot(43.0, 6, FEEDER, phase="no progress", does="generator", feeds=True)
    assert bottlenecks(story(spot(55.0, 30, **FIT), lock, digest, other, seconds=140.0, cores=0.1)) == ()


def test_what_is_slow_beside_a_stall_has_its_share_of_the_other_time() -> None:
    callback = spot(10.0, 16, phase="between", called_by=KERAS_CALLBACK, function="on_end")
    hung = spot(60.0, 16, phase="no progress", called_by=KERAS_CALLBACK, function="on_end")
    (found,) = bottlenecks(story(spot(10.0, 30, **FIT), callback, hung, seconds=80.0))
    assert (found.kind, found.seconds, found.share) == (bottleneck_kinds.CALLBACK, 10.0, 0.5)


def test_the_processor_that_idled_in_a_stall_does_not_make_a_generator_the_limit() -> None:
    computing = story(spot(58.0, 30, **FIT), spot(30.0, 6, FEEDER, does="generator", feeds=True), cores=2.0)
    last = computing.stages[-1]
    paused = {**last.profile.phases, "no progress": 300.0}
    stalled = replace(last, at=last.at + 300.0, profile=replace(last.profile, seconds=360.0, phases=paused))
    assert bottlenecks(replace(computing, stages=(*computing.stages, stalled))) == ()


def test_saves_of_stallguard_are_not_counted_as_those_of_the_script() -> None:
    saved = story(spot(40.0, 30, **FIT), spot(20.0, 30, phase="checkpoint", calls="keras.save"), counts={"saves": 25})
    last = replace(saved.stages[-1], profile=replace(saved.stages[-1].profile, saves=20))
    (found,) = bottlenecks(replace(saved, stages=(*saved.stages[:-1], last)))
    assert (found.kind, found.evidence) == (bottleneck_kinds.CHECKPOINTS, ("20 saves, 1 s each",))


def test_a_generator_that_takes_all_the_time_is_named_with_its_line_and_its_share() -> None:
    found = bottlenecks(story(spot(58.0, 30, **FIT), GENERATOR, cores=0.1))
    assert [one.kind for one in found] == [bottleneck_kinds.INPUT]
    assert found[0].where == "generate() at train.py:6"
    assert found[0].share == pytest.approx(58 / 60, abs=0.001)
    assert found[0].seconds == 58.0
    assert "prefetch" in found[0].advice[0]


def test_a_generator_beside_which_the_model_computes_costs_nothing() -> None:
    beside = spot(30.0, 6, FEEDER, function="generate", does="generator", feeds=True)
    assert bottlenecks(story(spot(58.0, 30, **FIT), beside, cores=3.5)) == ()
    assert worst(story(spot(58.0, 30, **FIT), beside, cores=0.6)) == (bottleneck_kinds.INPUT, 6)


def test_a_mapped_function_that_the_samples_miss_is_named_by_its_measured_calls() -> None:
    mapped = Function("input", 40.0, 16000, SCRIPT, 11, "curve")
    found = bottlenecks(story(spot(58.0, 30, **FIT), functions=(mapped,), cores=1.0))
    assert (found[0].kind, found[0].where) == (bottleneck_kinds.INPUT, "curve() at train.py:11")
    assert "16\u202f000 times" in found[0].evidence[0]


def test_a_wait_for_the_iterator_in_python_is_a_wait_for_input() -> None:
    assert worst(story(spot(40.0, 12, does="iterator"), spot(18.0, 13, **FIT))) == (bottleneck_kinds.INPUT, 12)


def test_a_callback_is_named_and_not_the_fit_that_calls_it() -> None:
    history = story(
        spot(20.0, 30, **FIT), spot(38.0, 16, phase="between", does="user", called_by=KERAS_CALLBACK, function="on_end")
    )
    assert worst(history) == (bottleneck_kinds.CALLBACK, 16)


def test_a_lock_that_another_thread_holds_is_named_with_that_thread() -> None:
    history = story(
        spot(20.0, 30, **FIT),
        spot(38.0, 25, phase="between", does="lock", called_by=KERAS_CALLBACK, function="on_end"),
        spot(50.0, 16, FEEDER, function="write", does="sleep"),
    )
    found = bottlenecks(history)
    assert [one.kind for one in found] == [bottleneck_kinds.LOCK]
    assert found[0].evidence == ("meanwhile another thread was in write() at train.py:16",)


def test_checkpoints_and_validation_are_distinguished_from_the_callback_that_makes_them() -> None:
    in_callback = {"called_by": KERAS_CALLBACK, "function": "on_end"}
    saving = story(spot(20.0, 30, **FIT), spot(35.0, 9, phase="checkpoint", **in_callback), counts={"saves": 600})
    checking = story(spot(20.0, 30, **FIT), spot(35.0, 9, phase="validation", **in_callback), counts={"checks": 900})
    assert worst(saving) == (bottleneck_kinds.CHECKPOINTS, 9)
    assert worst(checking) == (bottleneck_kinds.VALIDATION, 9)
    assert bottlenecks(saving)[0].evidence == ("600 saves, 58.3 ms each",)


def test_python_code_of_the_step_is_the_scripts_own() -> None:
    loss = spot(40.0, 12, does="tf_wait", called_by="keras.src.trainers.compile_utils.call", function="ranking_loss")
    assert worst(story(spot(18.0, 30, **FIT), loss)) == (bottleneck_kinds.SCRIPT, 12)


def test_a_native_call_of_a_loop_that_no_hook_brackets_is_not_called_the_scripts_own_code() -> None:
    assert bottlenecks(story(spot(58.0, 12, does="user"), counts={"source": "torch"})) == ()
    assert worst(story(spot(58.0, 12, does="user"), counts={"source": "tape"})) == (bottleneck_kinds.SCRIPT, 12)
    assert worst(story(spot(58.0, 12, does="sleep"), counts={"source": "torch"})) == (bottleneck_kinds.SCRIPT, 12)


def test_tracing_again_and_again_is_retracing_and_with_new_models_it_is_the_models() -> None:
    counts = {"traces": 600}
    traced = spot(40.0, 23, phase="tracing", calls="tensorflow.python.eager.def_function.__call__", does="compile")
    layers = spot(10.0, 8, phase="between", calls="keras.src.models.sequential.__init__", function="built")
    assert worst(story(traced, spot(15.0, 23, **FIT), counts=counts)) == (bottleneck_kinds.RETRACING, 23)
    assert worst(story(traced, layers, counts=counts)) == (bottleneck_kinds.REBUILT, 8)
    assert bottlenecks(story(traced, spot(15.0, 23, **FIT), counts={"traces": 4})) == ()
    assert bottlenecks(story(traced, spot(15.0, 23, **FIT), beats=20, counts={"traces": 8})) == (), "each of them once"


def test_a_model_that_is_built_once_or_called_in_the_step_is_not_rebuilt() -> None:
    counts = {"traces": 600}
    traced = spot(50.0, 23, phase="tracing", calls="keras.src.models.sequential.__call__", does="compile")
    called = spot(5.0, 24, phase="between", calls="tf_keras.src.layers.layer.__call__", does="user")
    assert worst(story(traced, called, counts=counts)) == (bottleneck_kinds.RETRACING, 23)

    made = spot(6.0, 8, phase="idle", calls="keras.src.models.sequential.__init__", function="built")
    once = story(traced, made, counts=counts)
    first = replace(once.stages[0].profile, spots=once.stages[-1].profile.spots)
    stages = (replace(once.stages[0], profile=first), *once.stages[1:])
    assert worst(replace(once, stages=stages)) == (bottleneck_kinds.RETRACING, 23)
    assert worst(once) == (bottleneck_kinds.REBUILT, 8)


def test_models_are_rebuilt_if_a_part_of_the_later_tracing_makes_them() -> None:
    """Numbers of a real run whose first profile has two thirds of the time: 0.6 of 8 s after it, of 22 s in all."""
    first = (
        spot(12.4, 20, phase="tracing", calls="keras.src.backend.tensorflow.trainer.train_on_batch"),
        spot(1.2, 9, phase="between", calls="keras.src.models.sequential.__init__", function="built"),
    )
    last = tuple(replace(one, seconds=one.seconds + more) for one, more in zip(first, (7.2, 0.6), strict=True))
    seen = story(*last, seconds=23.2, counts={"traces": 600})
    earlier = story(*first, seconds=15.4).stages[-1].profile
    stages = (replace(seen.stages[0], profile=earlier), *seen.stages[1:])
    assert worst(replace(seen, stages=stages)) == (bottleneck_kinds.REBUILT, 9)


def test_float64_costs_half_of_the_computing() -> None:
    found = bottlenecks(story(spot(50.0, 30, **FIT), dtype="float64"))
    assert [(one.kind, one.seconds) for one in found] == [(bottleneck_kinds.DOUBLE, 25.0)]


def test_batches_of_one_row_that_take_milliseconds_are_too_small() -> None:
    assert worst(story(spot(58.0, 30, **FIT), rows=1, beats=30_000)) == (bottleneck_kinds.TINY, 0)
    assert bottlenecks(story(spot(58.0, 30, **FIT), rows=1, beats=600)) == (), "each of them computes for long"
    assert bottlenecks(story(spot(58.0, 30, **FIT), rows=32, beats=30_000)) == ()


def falling(*shares: int) -> History:
    """Return a training whose stages of 15 s have these many batches, with a callback that grows."""
    stages, beats, slow = [], 0, 0.0
    for number, share in enumerate((0, *shares)):
        beats += share
        slow += 15.0 - share * 0.02 if share else 0.0
        at = 15.0 * number
        where = spot(slow, 16, phase="between", does="sleep", called_by=KERAS_CALLBACK, function="on_end")
        profile = Profile(at, int(2 * at), {"step": at - slow, "between": slow}, 0.0, (), (where,), beats=beats)
        stages.append(Stage(at, profile, Heartbeat(at=at, attempt=1, beats=beats, fits=1), at, 0.0, 0, None, 10**9))
    return History(heartbeat=stages[-1].heartbeat, stages=tuple(stages))


def test_a_pace_that_falls_is_one_bottleneck_with_what_grew() -> None:
    found = bottlenecks(falling(600, 300, 150, 75, 40))
    assert [one.kind for one in found] == [bottleneck_kinds.PACE]
    assert found[0].line == 16
    assert found[0].evidence[0].startswith("from 40 to 2.67 batches a second within ")
    assert any("a callback took" in text for text in found[0].evidence)


def test_a_pace_that_only_varies_does_not_fall() -> None:
    assert bottleneck_kinds.PACE not in [one.kind for one in bottlenecks(falling(300, 280, 310, 290, 305))]


BUSY = (Machine(idle=0.05, cores=4, busiest=("render",)),) * 3


def test_others_on_the_machine_are_named_and_a_low_priority_if_that_is_why() -> None:
    slow = {"cores": 1.0, "queue": 2.0, "machine": BUSY}
    assert worst(story(spot(58.0, 30, **FIT), **slow)) == (bottleneck_kinds.BUSY, 0)
    assert worst(story(spot(58.0, 30, **FIT), nice=19, **slow)) == (bottleneck_kinds.PRIORITY, 0)
    assert "render" in bottlenecks(story(spot(58.0, 30, **FIT), **slow))[0].evidence[0]


@pytest.mark.parametrize(("background", "says_taskpolicy"), [(None, False), (False, False), (True, True)])
def test_only_a_training_in_the_background_is_advised_to_leave_it(
    background: bool | None, says_taskpolicy: bool
) -> None:
    history = story(spot(58.0, 30, **FIT), cores=1.0, queue=2.0, machine=BUSY, nice=5)
    reading = replace(history.process[-1].reading, background=background)
    found = bottlenecks(replace(history, process=(TimedReading(100.0, reading),)))

    assert found[0].kind == bottleneck_kinds.PRIORITY
    assert any("taskpolicy" in text for text in found[0].advice) == says_taskpolicy


def test_a_training_that_waits_for_no_core_is_not_slowed_by_others() -> None:
    assert bottlenecks(story(spot(58.0, 30, **FIT), cores=0.05, queue=0.1, machine=BUSY)) == ()


def test_a_quota_costs_the_time_for_which_it_held_back() -> None:
    found = bottlenecks(story(spot(58.0, 30, **FIT), throttled=0.6))
    assert [(one.kind, one.share) for one in found] == [(bottleneck_kinds.QUOTA, 0.6)]
    assert bottlenecks(story(spot(58.0, 30, **FIT), throttled=0.01)) == ()


def test_pages_that_come_back_from_the_disk_cost_time() -> None:
    assert worst(story(spot(58.0, 30, **FIT), faults=5000.0)) == (bottleneck_kinds.SWAP, 0)
    assert bottlenecks(story(spot(58.0, 30, **FIT), faults=5.0)) == ()


def test_the_systems_work_counts_if_the_process_waits_for_pages() -> None:
    history = story(spot(58.0, 30, **FIT), faults=130.0)
    stages = tuple(replace(stage, system=0.5 * (stage.at - 100.0)) for stage in history.stages)

    def share(*states: str) -> float:
        seen = tuple(TimedReading(100.0, Process(state=state)) for state in states)
        found = bottlenecks(replace(history, process=seen, stages=stages))
        return found[0].share if found else 0.0

    assert share("running", "running", "uninterruptible") == pytest.approx(1 / 3 + 0.5, abs=0.01)
    assert share("running") == 0.0


def test_the_line_that_waits_for_pages_is_named_with_the_swapping() -> None:
    reads = spot(58.0, 12, phase="between", does="user", function="rows")
    found = bottlenecks(story(reads, faults=9000.0))
    assert [(one.kind, one.line) for one in found] == [(bottleneck_kinds.SWAP, 12)]


def test_what_the_script_does_after_its_training_does_not_make_the_training_slow() -> None:
    after = spot(40.0, 50, phase="idle", does="user", function="plot")
    assert bottlenecks(story(spot(20.0, 30, **FIT), after)) == ()


def test_a_record_that_is_newer_than_its_profile_shows_no_falling_pace() -> None:
    history = story(spot(58.0, 30, **FIT))
    newer = tuple(
        replace(stage, heartbeat=replace(stage.heartbeat, beats=beats))
        for stage, beats in zip(history.stages, (450, 750, 930, 1050), strict=True)
    )
    assert bottlenecks(replace(history, stages=newer)) == ()


def test_what_a_script_waits_for_after_its_training_is_no_input() -> None:
    waits = spot(40.0, 9, phase="finishing", function="upload", does="io")

    assert bottlenecks(story(spot(20.0, 7, **FIT), waits)) == ()
    assert bottlenecks(story(spot(20.0, 7, **FIT), replace(waits, phase="between")))[0].kind == bottleneck_kinds.INPUT
