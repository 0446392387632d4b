"""Ends of a run after which another machine continues its job, told by whole simulated runs."""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core import shutdown
from stallguard.core.diagnosis import causes
from stallguard.core.policy import AttemptHistory
from tests.core.scenarios import darwin
from tests.simulation.followed import Followed
from tests.simulation.simulation import Simulation

HEALTHY = 600.0


def test_a_process_that_cannot_be_ended_is_the_machines_fault() -> None:
    world = Simulation(ends_on_term=False, ends_on_kill=False)
    world.train(60)
    world.silent(200)

    assert shutdown.machine_at_fault(world.run, HEALTHY) == shutdown.UNKILLABLE


def test_a_gpu_that_stays_busy_without_its_process_is_the_machines_fault() -> None:
    story = darwin.mac().train(60).exit(-11)
    world = Followed(story.be(device_utilisation=1.0, device_used_by_run=False, device_moved=None).silent(90)).replay()

    assert shutdown.machine_at_fault(world.run, HEALTHY) == causes.title(causes.GPU_BUSY_AFTER_KILL)
    # An attempt that ends to grow its batch again is in no history.
    arranged = replace(world.run, past=AttemptHistory())
    assert shutdown.machine_at_fault(arranged, HEALTHY) == causes.title(causes.GPU_BUSY_AFTER_KILL)


def test_a_script_that_fails_or_finishes_is_not() -> None:
    failed, finished = Simulation(), Simulation()
    failed.train(60).exit(1)
    finished.train(60).exit(0)

    assert [shutdown.machine_at_fault(one.run, HEALTHY) for one in (failed, finished)] == ["", ""]
