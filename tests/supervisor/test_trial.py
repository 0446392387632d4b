"""One trial: which ends count as survival, which as the batch's fault, which say nothing of it, and its figures."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stallguard.core import fold, trainings
from stallguard.core.diagnosis import causes
from stallguard.core.events import Event, Heartbeat, Sampled, UserCommand
from stallguard.core.history import History, TimedReading
from stallguard.core.readings import AnyReading, Device, Machine, Memory, Process
from stallguard.core.run import Run, Totals, beats, with_attempt
from stallguard.core.verdicts import Finding
from stallguard.supervisor.trial import Observations, TrialVerdict, judged, pressed, used_gpu

STEPS = 50


def judge(run: Run) -> TrialVerdict:
    return judged(run, is_complete=beats(run) >= STEPS)


def ended(batches: int = STEPS, cause: str = "", attempt: dict[str, object] | None = None, **changes: object) -> Run:
    run = fold.begin(0.0)
    history = History(heartbeat=Heartbeat(at=1.0, attempt=1, beats=batches))
    findings = (Finding(cause, 0.9),) if cause else ()
    return replace(with_attempt(remembering(run, history), findings=findings, **(attempt or {})), **changes)


def remembering(run: Run, history: History) -> Run:
    return trainings.put(run, replace(run.training, history=history))


def test_a_try_that_was_stopped_after_its_batches_survived() -> None:
    assert judge(ended(code=143)) == TrialVerdict(STEPS)


def test_so_did_a_training_that_came_to_its_end_before() -> None:
    assert judge(ended(20, code=0)).trouble == ""


@pytest.mark.parametrize("cause", [causes.OUT_OF_MEMORY, causes.OUT_OF_MEMORY_KILL, causes.GPU_ERROR])
def test_what_a_batch_can_do_is_its_fault(cause: str) -> None:
    verdict = judge(ended(3, cause, code=1))
    assert verdict.trouble
    assert not verdict.hopeless


@pytest.mark.parametrize("cause", [causes.SCRIPT_ERROR, causes.PLUGIN_MISMATCH, causes.SILENT_EXIT])
def test_what_no_size_would_change_ends_the_search(cause: str) -> None:
    assert judge(ended(0, cause, code=1)).hopeless


def test_a_stall_is_trouble_even_after_enough_batches() -> None:
    assert judge(ended(code=143, totals=Totals(incidents=1))).trouble == "it stalled"


def test_an_interrupt_and_a_script_without_batches_say_nothing() -> None:
    assert judge(ended(3, code=130, attempt={"interrupts": 1})).hopeless
    assert judge(ended(0, code=0)).hopeless


def test_parts_that_a_script_does_not_train_in_say_nothing() -> None:
    whole = ended(code=143, attempt={"slices": 2})
    assert "--batch-flag" in judge(whole).trouble
    assert judge(whole).hopeless
    cut = replace(whole.history, heartbeat=Heartbeat(at=1.0, attempt=1, beats=STEPS, slices=2))
    assert judge(remembering(whole, cut)).trouble == ""


def test_memory_that_becomes_tight_is_trouble_and_memory_that_was_tight_before_is_not() -> None:
    tight, calm = Memory(pressure="critical"), Memory(pressure="normal")
    memory = tuple(TimedReading(float(at), reading) for at, reading in enumerate([calm, tight]))
    run = ended(code=143)
    assert "pressure" in judge(remembering(run, replace(run.history, memory=memory))).trouble
    assert not pressed([tight, tight, calm])
    assert not pressed([])
    assert pressed([Memory(stall_full=0.0), Memory(stall_full=0.2)])
    assert not pressed([Memory(stall_full=0.2), Memory(stall_full=0.3)])


def test_batches_that_stay_whole_end_the_search_and_say_why() -> None:
    whole = ended(code=143, whole="Model: batches stay whole, because the loss adds up over the batch")
    assert judge(whole).hopeless
    assert "the loss adds up" in judge(whole).trouble


def read(at: float, reading: AnyReading) -> Sampled:
    return Sampled(at=at, reading=reading)


def observed(*events: Event, beats_of: int = 7) -> Observations:
    """Ten seconds at 20 batches a second, from 100 on, and what the sensors read meanwhile."""
    seen = Observations(cpus=4)
    for event in events:
        seen.take(event)
    for number in range(201):
        at = 100.0 + number / 20
        seen.take(Heartbeat(at=at, attempt=1, pid=beats_of, beats=number + 1, beat_at=at, phase="step"))
    return seen


def test_energy_is_the_power_over_the_measured_stretch_and_unknown_without_a_reading() -> None:
    power = [(90.0, 500.0), (101.0, 100.0), (105.0, 100.0), (109.0, 200.0), (120.0, 900.0)]
    trial = observed(*(read(at, Device(power=watts, used_by_run=True, moved=True)) for at, watts in power)).figures()
    assert trial.rate == pytest.approx(20)
    assert trial.watts == pytest.approx(125)
    assert trial.joules == pytest.approx(125 / 20)
    assert trial.used_gpu is True
    bare = observed(read(101.0, Device(utilisation=0.5))).figures()
    assert (bare.watts, bare.joules, bare.gpu, bare.used_gpu) == (None, None, 0.5, None)


def test_the_processors_use_is_of_the_process_that_trains_and_of_the_measured_stretch() -> None:
    process = [read(99.0, Process(pid=7, cpu=1.0)), read(101.0, Process(pid=0, cpu=900.0, footprint=5))]
    process += [read(102.0, Process(pid=7, cpu=10.0, run_queue=1.0, footprint=9))]
    process += [read(106.0, Process(pid=7, cpu=16.0, run_queue=3.0, footprint=8))]
    trial = observed(*process, read(104.0, Machine(idle=0.25))).figures()
    assert trial.cores == pytest.approx(1.5)
    assert trial.waited == pytest.approx(0.5)
    assert trial.others == pytest.approx(1 - 0.25 - 1.5 / 4)
    assert trial.memory == 9
    assert "other programs took 38% of the processor" in trial.note


def test_of_several_processes_the_one_that_trains_most_is_measured() -> None:
    others = [Heartbeat(at=101.0 + n, attempt=1, pid=8, beats=n + 1, beat_at=101.0 + n) for n in range(5)]
    assert observed(*others).figures().rate == pytest.approx(20)


def test_only_orders_to_end_count_as_the_users() -> None:
    seen = observed(UserCommand(at=1.0, verb="dump"), UserCommand(at=2.0, verb="interrupt"))
    assert seen.orders == 1


def test_whether_the_gpu_was_used_is_unknown_unless_its_driver_knows_the_process() -> None:
    assert used_gpu([Device(used_by_run=True, moved=False), Device(used_by_run=True, moved=True)]) is True
    assert used_gpu([Device(used_by_run=False), Device(used_by_run=False)]) is False
    assert used_gpu([Device(used_by_run=None, utilisation=0.9)]) is None
    assert used_gpu([]) is None
