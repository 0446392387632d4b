"""What follows from each cause, through the whole core: from the first event to the next attempt or the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stallguard.core import messages
from stallguard.core.actions import Announce
from stallguard.core.diagnosis import causes
from tests.core.scenarios import darwin, linux
from tests.simulation.followed import Followed
from tests.simulation.simulation import Simulation

# Seconds that a test waits until an action follows, and until it is certain that none follows.
PATIENCE, QUIET = 2400, 250


SAME, HALF = "again on the default device in 1 slice(s)", "again on the default device in 2 slice(s)"

# What is slow, or was reported while batches go on, is told and left alone; what answers SIGTERM was not stuck.
FOLLOWS: dict[str, list[str]] = {
    SAME: [
        "darwin: F1 lost completion", "darwin: F1 stack in Metal", "darwin: F1 outside of a step",
        "darwin: F1 sensor blocked", "darwin: killed without need", "linux: shuffle buffer",
        "linux: interpreter's lock, with stacks", "darwin: F1 Metal holds the lock", "darwin: F1 one kernel for ever",
        "darwin: F1 batches queue up", "darwin: F4 ignored", "darwin: F5 timeout", "darwin: F5 victim",
        "darwin: F5 interactivity", "darwin: F7 assertion", "darwin: F7 recursive mutex", "darwin: F8 host deadlock",
        "darwin: F8 busy", "darwin: F10 busy after the kill", "darwin: asleep", "linux: blocked op",
        "linux: blocked op, with stacks", "linux: blocked generator", "linux: blocked fetch", "linux: busy generator",
        "linux: lock in a callback", "linux: lock in a callback, with stacks", "linux: lock inside the step",
        "linux: Python function inside the step", "linux: Python function inside the step, new timers",
        "linux: socket inside the step", "darwin: F1 busy without end", "darwin: F1 busy in the first batch",
        "darwin: F8 lock in the step", "darwin: F8 socket in the step", "linux: acquire in a callback",
        "linux: socket in a callback", "linux: dead workers", "linux: interpreter's lock in native code",
        "linux: interpreter's lock in a busy native call", "linux: endless Python loop", "linux: endless step",
        "linux: stuck on a dead disk", "linux: list that grew, killed", "linux: list that grew, an allocation fails",
        "linux: list that grew, in a launcher", "linux: kill -9", "linux: kill -9, in a launcher", "linux: SIGSEGV",
        "linux: SIGSEGV, in a launcher", "linux: SIGSEGV at a known line, in a launcher",
        "linux: SIGSEGV, told by a shell", "linux: exit code without a word", "linux: kernel without end",
        "linux: GPU reports an error",
        "linux: CUDA: illegal address",
        "linux: CUDA: illegal address, in a thread of the library", "linux: CUDA: illegal address, caught",
        "linux: CUDA: illegal address, caught and counted", "linux: CUDA: illegal address, caught and printed",
        "linux: CUDA: illegal address, and a hang", "linux: CUDA: ECC", "linux: CUDA: ECC, caught", "linux: CUDA: NCCL",
        "linux: CUDA: NCCL, waiting", "linux: CUDA: lost, says the output of a stall",
        "linux: CUDA: ECC, counted by the driver", "linux: CUDA: ECC, counted, and a fault",
        "linux: host callback without end", "darwin: F8 two OpenMP", "darwin: F8 lost peer",
        "linux: peer awaited",
    ],
    HALF: [
        "darwin: F2 swap crawl", "darwin: F2 pressure only", "darwin: F5 memory", "darwin: F6 jetsam",
        "darwin: F6 killed with a word", "linux: limit reached silently", "linux: limit reached, in a launcher",
        "darwin: F6 clean exception", "darwin: F7 size", "linux: waits for memory", "linux: killed for memory",
        "linux: killed for memory, counted", "linux: limit reached", "linux: CUDA: out of memory",
    ],
    "ends with 0": [
        "darwin: exit hang",
        "darwin: exit behind a dead worker",
        "linux: exit 0 in the middle",
        "linux: finished",
    ],
    "ends with 1": [
        "darwin: F12 library",
        "linux: exception", "linux: CUDA: assert", "linux: CUDA: lost", "linux: CUDA: no device any more",
        "linux: CUDA: lost after a fault",
    ],
    "ends with 124": [
        "darwin: F10 exiting for ever",
        "darwin: F10 survives SIGKILL",
        "darwin: F8 mutex", "linux: CUDA: assert, caught and counted",
        "linux: CUDA: lost, says the driver", "linux: GPU lost",
    ],
    "ends with 143": [
        "linux: SIGTERM",
    ],
    "nothing": [
        "linux: list that grows", "darwin: F2 leak", "darwin: F3 pause", "darwin: F3 heat", "darwin: F3 battery",
        "linux: long save of a growing file", "linux: long compile, with stacks", "darwin: F4 error and on",
        "darwin: F4 header alone", "darwin: F4 reset without words", "darwin: F4 memory", "darwin: F4 interactivity",
        "darwin: F9 panic", "darwin: F11 CPU training", "darwin: F11 no GPU found", "darwin: F11 slow optimizer",
        "darwin: F11 rebuilt each batch", "darwin: F11 Rosetta", "darwin: F13 loss", "darwin: stopped",
        "linux: SIGSTOP", "linux: retraced", "linux: starved batches", "linux: neighbours", "linux: long save",
        "linux: long compile", "linux: data ended", "linux: CUDA: out of memory, handled by the script",
        "linux: GPU kept cool", "linux: GPU shared",
    ],
}  # fmt: skip

STORIES: dict[str, Callable[[], Simulation]] = {f"darwin: {name}": story for name, (_, _, story) in darwin.MANY.items()}
STORIES |= {f"linux: {name}": story for name, (_, story) in linux.MANY.items()}
EXPECTED = {name: follows for follows, names in FOLLOWS.items() for name in names}
CAUSES = {f"darwin: {name}": cause for name, (cause, _, _) in darwin.MANY.items()}
CAUSES |= {f"linux: {name}": cause for name, (cause, _) in linux.MANY.items()}
FIRST = {(EXPECTED[name], cause): name for name, cause in reversed(CAUSES.items())}.values()  # of each cause


def test_the_table_tells_of_every_story() -> None:
    assert set(EXPECTED) == set(STORIES)


@pytest.mark.costly
@pytest.mark.parametrize(
    "name", [name if name in FIRST else pytest.param(name, marks=pytest.mark.whole) for name in EXPECTED]
)
def test_what_follows_is_what_the_cause_asks_for(name: str) -> None:
    patience = QUIET if EXPECTED[name] == "nothing" else PATIENCE
    assert Followed(STORIES[name]()).follow(patience) == EXPECTED[name]


def test_batches_that_are_counted_while_each_call_fails_are_not_called_healthy() -> None:
    story = Followed(STORIES["linux: CUDA: illegal address, caught and counted"]()).replay()
    [said] = [one for _, one in story.done if isinstance(one, Announce) and one.message == "training.stalled"]
    assert said.facts["silence"] == messages.REFUSED
    assert story.restarts


def test_every_remedy_was_met() -> None:
    forecast = {causes.MEMORY_RUNS_OUT, causes.STEPS_NEED_MORE}  # tests/core/test_memory_ahead.py
    assert set(CAUSES.values()) == set(causes.CAUSES) - {causes.UNKNOWN} - forecast
