"""A GPU that its dead process still keeps busy is not given to the next one."""

from __future__ import annotations

from stallguard.core.diagnosis import causes
from stallguard.core.diagnosis.gpu_idle import gpu_wait
from stallguard.core.limits import PolicyLimits
from stallguard.core.policy.attempts import AttemptHistory, add_attempt
from stallguard.core.policy.decide import decide
from tests.core.scenarios import darwin, linux
from tests.simulation.simulation import Simulation


def past_of(story: Simulation) -> AttemptHistory:
    return add_attempt(AttemptHistory(), story.history, story.diagnosed(), 1, "default", 0.0, story.now)


def ended() -> Simulation:
    return darwin.quiet(darwin.mac().enter("step"), 20).exit(-9)


def test_without_a_gpu_nothing_waits_for_it() -> None:
    story = linux.box().exit(-9)
    assert gpu_wait(story.history, story.now) == 0.0


def test_a_gpu_that_rests_is_free_with_its_next_reading() -> None:
    story = ended()
    assert gpu_wait(story.history, story.now) > 0
    story.be(device_utilisation=0.0, device_mine=False).silent(4)
    assert gpu_wait(story.history, story.now) == 0.0


def test_a_gpu_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    story = ended()
    story.system.device = None
    story.silent(13)
    assert gpu_wait(story.history, story.now) == 0.0


def test_a_gpu_that_stays_busy_ends_the_run() -> None:
    story = ended().be(device_utilisation=1.0, device_mine=False, device_moved=None)
    while gpu_wait(story.history, story.now) > 0:
        story.silent(2)
    assert 55 < story.now - story.history.exited.at < 70
    found = story.silent(2).diagnosed()
    assert found[0].cause == causes.GPU_BUSY_AFTER_KILL
    assert decide(found, past_of(story), PolicyLimits()).action == "give_up"
