"""Between two attempts on a Mac: the next one waits for the GPU, and does not begin where only a reboot helps."""

from __future__ import annotations

from stallguard.core.actions import Conclude, Launch
from tests.core.scenarios import darwin, linux
from tests.simulation.followed import Followed
from tests.simulation.simulation import Simulation


def crashed(begun: Simulation) -> Simulation:
    return begun.train(60).exit(-11)


def launched_after(world: Followed) -> list[float]:
    assert world.story.ended is not None
    return [at - world.story.ended.at for at in world.restarts]


def test_the_next_attempt_begins_when_the_gpu_has_come_to_rest() -> None:
    story = crashed(darwin.mac()).be(device_utilisation=1.0, device_used_by_run=False, device_moved=None).silent(20)
    world = Followed(story.be(device_utilisation=0.0).silent(20)).replay()

    assert [20 <= after <= 26 for after in launched_after(world)] == [True]


def test_a_gpu_that_stays_busy_without_us_ends_the_run_with_a_word() -> None:
    story = crashed(darwin.mac()).be(device_utilisation=1.0, device_used_by_run=False, device_moved=None)
    world = Followed(story.silent(90)).replay()

    assert world.restarts == []
    assert [action.code for action in world.actions(Conclude)] == [124]
    assert "busy" in next(action.why for action in world.actions(Conclude))


def test_elsewhere_a_busy_gpu_belongs_to_another_process_and_nothing_waits() -> None:
    story = crashed(linux.box())
    world = Followed(story.silent(20)).replay()

    assert [after < 3 for after in launched_after(world)] == [True]
    assert world.actions(Launch) != []
