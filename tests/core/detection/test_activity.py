"""The class of evidence is what the tree did over the last seconds, and never more than the readings say."""

from __future__ import annotations

import pytest

from stallguard.core.detection import activity
from stallguard.core.detection.activity import Activity, own_timers
from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Device, Process

LIMITS = DetectorLimits()
CALM = {"futex": 9, "sleep": 1, "timed": 1}


def watched(seconds: float = 6.0, *, seen: Activity | None = None, **rates: object) -> Activity:
    """Return the evidence after a silence of `seconds` with counters growing at `rates` a second."""
    seen = seen or Activity(timers={2: 8}, own_timers=2, level=1.0)
    unknown = rates.pop("unknown", ())
    fixed = {key: rates.pop(key) for key in ("census", "state", "remote", "main_site") if key in rates}
    for tick in range(int(seconds * 4) + 1):
        now = tick / 4
        grown = {"cpu": 5.0, "io": 0, "disk": 0, "minor_faults": 0, "major_faults": 0, "run_queue": 0.0}
        grown |= {name: grown[name] + rate * now for name, rate in rates.items()}
        grown = {name: value if name in ("cpu", "run_queue") else int(value) for name, value in grown.items()}
        grown |= dict.fromkeys(unknown)
        reading = Process(**{"state": "sleeping", "census": CALM} | grown | fixed)
        seen = activity.read_process(seen, reading, now, now, stepping=False, limits=LIMITS)
    return seen


def test_an_idle_tree_in_which_nothing_can_wake_is_a_deadlock():
    assert watched().kind == activity.DEADLOCK
    assert activity.current(watched(), 0.0).deadlock == pytest.approx(6.0)


@pytest.mark.parametrize("site", ["poll", "sock", "read", "write", "sync", "disk", "other", "sleep"])
def test_one_thread_that_something_may_wake_makes_it_an_external_wait(site):
    seen = watched(census=CALM | {site: CALM.get(site, 0) + 1})

    assert seen.kind == activity.EXTERNAL
    assert activity.current(seen, 0.0).deadlock == 0.0
    assert activity.current(seen, 0.0).external == pytest.approx(6.0)


def test_a_script_that_sleeps_in_its_own_loop_is_in_no_deadlock_even_where_its_steps_sleep_too():
    assert watched(census=CALM, main_site="futex").kind == activity.DEADLOCK
    assert watched(census=CALM, main_site="sleep").kind == activity.EXTERNAL


def test_without_a_census_idleness_is_an_external_wait():
    assert watched(census=None).kind == activity.EXTERNAL


def test_a_census_of_before_the_silence_proves_nothing():
    seen = watched()
    for tick in range(20):
        now = 6.25 + tick / 4
        reading = Process(state="sleeping", cpu=5.0, io=0, minor_faults=0)
        seen = activity.read_process(seen, reading, now, now, stepping=False, limits=LIMITS)

    assert seen.kind == activity.EXTERNAL


@pytest.mark.parametrize(
    ("rates", "kind"),
    [
        ({"cpu": 1.0}, activity.SPIN),
        ({"cpu": 1.0, "minor_faults": 4000.0}, activity.WORKING),
        ({"cpu": 0.3, "io": 200_000.0}, activity.WORKING),
        ({"cpu": 0.5, "major_faults": 20.0}, activity.WORKING),
        ({"cpu": 0.04}, activity.DEADLOCK),  # under 5 % of this run's own level
        ({"cpu": 0.0, "io": 200_000.0}, activity.WORKING),
    ],
)
def test_a_busy_tree_spins_unless_its_work_can_be_seen(rates, kind):
    assert watched(**rates).kind == kind


def test_unknown_counters_are_no_evidence():
    seen = activity.read_process(Activity(), Process(state="sleeping"), 1.0, 1.0, stepping=False, limits=LIMITS)

    assert seen.kind == activity.UNKNOWN
    assert not activity.is_fresh(seen, 1.0, LIMITS)


def test_what_a_tree_reads_and_writes_is_seen_at_the_disk_if_nothing_else_counts_it_and_else_it_is_in_no_deadlock():
    assert watched(unknown=("io",)).kind == activity.DEADLOCK
    assert watched(unknown=("io",), disk=200_000.0).kind == activity.WORKING
    assert watched(unknown=("io", "disk")).kind == activity.EXTERNAL


def test_a_busy_tree_whose_page_faults_are_not_known_may_be_at_work():
    assert watched(cpu=1.0).kind == activity.SPIN
    assert watched(cpu=1.0, unknown=("minor_faults",)).kind == activity.WORKING


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        (Device(moved=True, used_by_run=True), activity.WORKING),
        (Device(utilisation=0.9, used_by_run=True, others=0), activity.WORKING),
        (Device(utilisation=0.9, used_by_run=True, others=1), activity.SHARED),
        (Device(utilisation=0.9, used_by_run=True), activity.SHARED),
        (Device(utilisation=0.9), activity.SHARED),
    ],
)
def test_a_gpu_that_can_compute_for_the_run_is_no_rest_though_its_power_is_not_known(device, kind):
    for cores in (0.0, 1.0):  # a host that sleeps until the step is over, or that polls
        seen = Activity(timers={2: 8}, own_timers=2, level=1.0, device=device, device_seen=5.0)
        assert watched(seen=seen, cpu=cores).kind == kind


@pytest.mark.parametrize("power", [None, 90.0])
def test_a_gpu_that_only_other_programs_use_says_nothing_of_the_run(power):
    device = Device(utilisation=0.9, used_by_run=False, power=power)
    seen = Activity(timers={2: 8}, own_timers=2, level=1.0, device=device, device_seen=5.0, power=power or 0.0)
    assert watched(seen=seen, cpu=0.0).kind == activity.DEADLOCK
    assert watched(seen=seen, cpu=1.0).kind == activity.SPIN


def test_a_counter_that_falls_because_a_child_is_gone_says_nothing():
    seen = watched(cpu=1.0)
    reading = Process(state="running", cpu=1.0, io=0, minor_faults=0, census=CALM)

    assert activity.read_process(seen, reading, 6.25, 6.25, stepping=False, limits=LIMITS).crowding >= 1.0


def test_threads_that_wait_for_a_neighbour_show_as_ill_health_but_their_own_crowd_does_not():
    usual = Activity(own_timers=2, level=0.8, usual_crowding=2.5)

    assert activity.machine_slowdown(watched(60, seen=usual, cpu=0.8, run_queue=1.2), LIMITS) == 1.0
    assert activity.machine_slowdown(watched(60, seen=usual, cpu=0.2, run_queue=1.8), LIMITS) == pytest.approx(
        4.0, rel=0.1
    )


def test_the_readings_kept_are_those_of_the_window():
    seen = watched(600, cpu=1.0)

    assert len(seen.points) <= 17
    assert seen.points[-1].now - seen.points[0].now == pytest.approx(LIMITS.window)


@pytest.mark.parametrize(
    ("counts", "own"),
    [
        ({}, 0), ({2: 5}, 2), ({1: 1, 2: 8}, 2), ({1: 2, 2: 8}, 1), ({1: 2, 2: 98}, 2), ({1: 60, 2: 40}, 1),
        ({2: 3, 3: 130}, 3),
    ],
)  # fmt: skip
def test_the_runtimes_own_timers_are_nearly_the_fewest_seen(counts, own):
    assert own_timers(counts) == own


def test_a_timer_that_is_awake_at_one_sight_is_still_one_of_the_runtimes_own():
    """A census right after a batch once showed 4 of 5, the fifth just running: a deadlock was not one any more."""
    seen = Activity(level=1.0)
    censuses = [{"sleep": 3, "timed": 2, "futex": 12}] * 4 + [{"sleep": 2, "timed": 2, "futex": 12, "run": 1}]
    for number, census in enumerate(censuses * 2):
        if number == 9:
            break
        reading = Process(cpu=float(number), io=0, minor_faults=0, state="running", census=census)
        seen = activity.read_process(seen, reading, float(number), 0.1, stepping=True, limits=LIMITS)

    assert seen.own_timers == 5
