"""A thread that waits for its GPU: one that does nothing, and one that is busy while its memory and its power rest."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stallguard.core.detection import detector
from stallguard.core.events import ProbeConnected
from stallguard.core.readings import Device
from tests.simulation.alone import LIMITS, Alone
from tests.simulation.program import OWN, Rates

PACED = ["step", "between", "epoch end", "validation", "checkpoint"]
# What an NVIDIA H200 reads in a training, in a kernel without end, and without work.
WORKS = Device(
    utilisation=0.9, moved=True, power=400.0, power_limit=700.0, memory_utilisation=0.3, used_by_run=True, others=0
)
HUNG = replace(WORKS, utilisation=1.0, power=118.0, memory_utilisation=0.0)
IDLE = replace(WORKS, utilisation=0.0, moved=False, power=117.0, memory_utilisation=0.0)
VALUE = ("device", 0)  # loss.item()


def paced(phase: str, device: Device | None = WORKS, library: str = "torch") -> Alone:
    """A training that has been in `phase` often enough to know its pace, and is in it again."""
    scene = Alone()
    scene.tell(ProbeConnected, attempt=1, pid=7, armed=True, versions={library: "1"})
    scene.system.device = device
    scene.train(60)
    for _ in range(40):
        scene.enter(phase).silent(0.5, "spin")
        ended(scene, phase, 0.5).train(1)
    scene.enter(phase)
    return ended(scene, phase, 0.0) if phase == "validation" else scene


def ended(scene: Alone, phase: str, seconds: float) -> Alone:
    then = phase if phase == "validation" else "step"
    return scene.progress(phase=then, longest=seconds, longest_phase=phase, checks=scene.heartbeat.checks + 1)


def times(scene: Alone, device: Device | None, frame: tuple[str, int] = VALUE, **rates: float) -> list[float]:
    """Return the seconds until the wait is noticed, until it is a stall, and until it is acted upon."""
    scene.system.device = device
    scene.training.stuck_rates = Rates(**({"cores": 1.0, "census": OWN} | rates))  # type: ignore[arg-type]
    began = scene.now
    noticed = scene.silent_until("suspect", frame=frame, within=300)
    judged = noticed + scene.silent_until("stalled", frame=frame, within=600)
    due = detector.act_at(scene.detector_state, LIMITS)
    return [noticed, judged, float("inf") if due is None else due - began]


@pytest.mark.costly
@pytest.mark.parametrize("phase", PACED)
@pytest.mark.parametrize("cores", [0.0, 1.0])
def test_who_waits_for_a_gpu_that_does_nothing_is_noticed_in_30_s_and_acted_upon_within_2_min(
    phase: str, cores: float
) -> None:
    scene = paced(phase)
    noticed, judged, acted = times(scene, IDLE, cores=cores)

    assert noticed <= 30
    assert judged <= 50
    assert acted <= 116
    quiet = ("deadlock", "idle device")  # no thread can be woken: known sooner
    assert scene.detector_state.judgement.evidence in (quiet if not cores else quiet[1:])


@pytest.mark.parametrize(
    ("phase", "frame", "library"),
    [
        ("between", ("library", 0), "torch"), ("between", ("device", 1), "torch"), ("step", ("library", 1), "torch"),
        ("step", ("library", 0), "jax"),
    ],
    ids=["computes in a callback", "a thread could end it", "a thread could end a step", "compiles"],
)  # fmt: skip
def test_a_call_that_can_compute_or_wait_for_something_else_has_two_minutes(
    phase: str, frame: tuple[str, int], library: str
) -> None:
    scene = paced(phase, library=library)

    assert times(scene, IDLE, frame)[1] == pytest.approx(LIMITS.one_place, abs=4)


def test_who_cannot_queue_more_work_for_an_idle_gpu_in_a_step_waits_for_it() -> None:
    """A host function that never returns holds the queue up; the next kernel's launch waits in any call of torch."""
    noticed, judged, acted = times(paced("step"), IDLE, ("library", 0))

    assert noticed <= 30
    assert judged <= 55
    assert acted <= 116


@pytest.mark.parametrize(
    ("device", "rates"),
    [
        (replace(IDLE, used_by_run=False), {}), (IDLE, {"cores": 2.0}), (IDLE, {"faults": 5000.0}), (IDLE, {"io": 5e6}),
    ],
    ids=["of others", "the host computes", "touches memory", "reads"],
)  # fmt: skip
def test_what_is_not_one_wait_for_its_own_idle_gpu_has_its_time(device: Device, rates: dict[str, float]) -> None:
    assert times(paced("between"), device, **rates)[1] > 290


@pytest.mark.parametrize("worked", [True, False])
def test_a_gpu_whose_user_is_not_known_is_its_own_if_it_worked_in_healthy_steps(worked: bool) -> None:
    """In a container NVML has the host's pids."""
    unknown = {"used_by_run": None, "moved": None}
    scene = paced("between", replace(WORKS if worked else IDLE, **unknown))

    assert (times(scene, replace(IDLE, **unknown))[1] < 50) == worked


@pytest.mark.parametrize("shown", [True, False])
def test_another_program_at_work_hides_no_idle_wait_if_the_run_s_own_work_was_shown_before(shown: bool) -> None:
    """NVIDIA's MPS does not show whose work it is."""
    scene = paced("between", replace(WORKS, moved=shown, others=1))
    scene.training.stuck_rates = Rates(cores=1.0, census=OWN)
    for second in range(60):
        scene.system.device = replace(WORKS, moved=False, others=1, power=300.0 + 100.0 * (second // 4 % 2))
        scene.silent(1, frame=VALUE)

    assert ("stalled" in scene.steps) == shown


EARLY = ["importing", "tracing", "idle", "named", "finishing", "first steps", "epoch end"]


def early(where: str) -> Alone:
    """A training of which no pace is known where it is."""
    scene = Alone()
    scene.system.device = WORKS
    return scene.train(0.4) if where == "first steps" else scene.enter(where)


@pytest.mark.parametrize("frame", [VALUE, ("library", 0)])
@pytest.mark.parametrize("where", EARLY)
def test_a_hung_gpu_is_noticed_in_27_s_and_judged_in_55_where_no_pace_is_known(
    where: str, frame: tuple[str, int]
) -> None:
    scene = early(where)
    noticed, judged, acted = times(scene, HUNG, frame)

    assert noticed <= 27
    assert judged <= 55
    assert acted <= 116
    assert scene.detector_state.judgement.evidence == "busy device"


@pytest.mark.parametrize(
    ("device", "frame"),
    [
        (replace(HUNG, memory_utilisation=None), VALUE), (replace(HUNG, power=None), VALUE),
        (replace(HUNG, power_limit=None), VALUE), (replace(HUNG, memory_utilisation=0.2), VALUE),
        (replace(HUNG, power=350.0), VALUE), (HUNG, ("call", 0)), (None, VALUE),
    ],
)  # fmt: skip
def test_nothing_is_hung_that_is_not_known_to_rest(device: Device | None, frame: tuple[str, int]) -> None:
    assert times(early("tracing"), device, frame)[0] > 120


def test_a_kernel_that_takes_20_seconds_on_purpose_is_no_news() -> None:
    scene = early("first steps")
    scene.system.device = HUNG

    assert "suspect" not in scene.silent(20, "spin", frame=VALUE).steps


@pytest.mark.parametrize(("where", "judged"), [("importing", False), ("tracing", True)])
def test_of_a_library_that_trains_for_hours_in_one_call_it_is_only_said_where_no_batch_is_counted(
    where: str, judged: bool
) -> None:
    scene = Alone().tell(ProbeConnected, attempt=1, pid=7, armed=True, versions={"jax": "1"})
    scene.system.device = WORKS
    found = times(scene.enter(where), HUNG)

    assert found[0] <= 27
    assert (found[1] < 60) == judged


def test_a_hung_gpu_on_which_other_programs_come_and_go_is_judged_as_soon() -> None:
    scene = paced("between")
    scene.training.stuck_rates = Rates(cores=1.0, census=OWN)
    for second in range(48):
        power = 118.0 + 60.0 * (second // 5 % 2)
        scene.system.device = replace(HUNG, power=power, others=second // 5 % 2)
        scene.silent(1, frame=VALUE)

    assert scene.detector_state.judgement.step == "stalled"


def test_a_gpu_whose_memory_is_at_work_computes_though_its_power_is_even() -> None:
    """An evaluation that reads a value of each batch is nearly always found at that line."""
    assert times(paced("between"), replace(WORKS, power=300.0))[1] > 290


def test_on_a_shared_gpu_the_work_of_the_memory_can_be_anothers() -> None:
    assert times(paced("between"), replace(WORKS, power=300.0, others=1))[1] < 50
