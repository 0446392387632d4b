"""What follows from each cause, through the whole core: from the first event to the next attempt or the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from stallguard.core import fold
from stallguard.core.actions import Action, Collect, Conclude, Launch, Signal
from stallguard.core.diagnosis import causes
from stallguard.core.events import Collected, Event, Exited, Sampled, Ticked
from stallguard.core.limits import Limits
from stallguard.core.readings import Device
from tests.core.scenarios import darwin, linux
from tests.core.scenarios.story import Story

PATIENCE, QUIET = (
    2400,
    250,
)  # seconds that a story goes on until something follows, or until nothing is sure to


class World:
    """Performs the actions of the core upon a story: the child ends when it is told to."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.stacks = story.history.collected.stacks if story.history.collected else ()
        self.ended = False  # by us
        self.launches: list[float] = []  # when attempts after the first were to begin
        self.run, self.actions = fold.begin(Limits(), story.events[0].at)

    def feed(self, event: Event) -> None:
        if self.ended and isinstance(event, Sampled) and isinstance(event.reading, Device):
            event = replace(event, reading=replace(event.reading, utilisation=0.0))  # its work ended with it
        self.run, actions = fold.advance(self.run, event, Limits())
        self.actions += actions
        for action in actions:
            self.answer(action, event.at)

    def answer(self, action: Action, at: float) -> None:
        match action:
            case Collect(incident=incident):
                self.feed(Collected(at=at, incident=incident, seconds=1.0, stacks=self.stacks))
            case Launch(attempt=number) if number > 1:
                self.launches.append(at)
            case Signal(name="TERM"):
                self.ended = True
                self.feed(Exited(at=at, attempt=1, code=-15))

    def follow(self, patience: float) -> str:
        """Tell what follows: a second attempt and how, an end and its code, or nothing."""
        for event in self.story.events:
            if not isinstance(event, Collected):
                self.feed(event)
        end = self.story.now + patience
        while not self.outcome() and self.story.now < end:
            self.go_on()
        return self.outcome() or "nothing"

    def go_on(self) -> None:
        begun = len(self.story.events)
        if self.story.ended is not None:
            self.story.now += 10.0
        elif self.story.judge.judgement.gap > 1:
            self.story.silent(10)
        else:
            self.story.train(10)
        for event in self.story.events[begun:]:
            self.feed(event)
        self.feed(Ticked(at=self.story.now))

    def outcome(self) -> str:
        for action in self.actions:
            if isinstance(action, Launch) and action.attempt > 1:
                return f"again on the {action.device} device in {action.factor} part(s)"
            if isinstance(action, Conclude):
                return f"ends with {action.code}"
        return ""


SAME, HALF = "again on the default device in 1 part(s)", "again on the default device in 2 part(s)"

# What is slow, or was reported while batches go on, is told and left alone; what answers SIGTERM was not stuck.
FOLLOWS: dict[str, list[str]] = {
    SAME: [
        "darwin: F1 lost completion",
        "darwin: F1 stack in Metal",
        "darwin: F1 outside of a step",
        "darwin: F1 sensor blocked",
        "darwin: killed without need",
        "linux: shuffle buffer",
        "linux: interpreter's lock, with stacks",
        "darwin: F1 Metal holds the lock",
        "darwin: F1 one kernel for ever",
        "darwin: F1 batches queue up",
        "darwin: F4 ignored",
        "darwin: F5 timeout",
        "darwin: F5 victim",
        "darwin: F5 interactivity",
        "darwin: F7 assertion",
        "darwin: F7 recursive mutex",
        "darwin: F8 host deadlock",
        "darwin: F8 busy",
        "darwin: F10 busy after the kill",
        "darwin: asleep",
        "linux: blocked op",
        "linux: blocked op, with stacks",
        "linux: blocked generator",
        "linux: blocked fetch",
        "linux: busy generator",
        "linux: lock in a callback",
        "linux: lock in a callback, with stacks",
        "linux: lock inside the step",
        "linux: Python function inside the step",
        "linux: acquire in a callback",
        "linux: socket in a callback",
        "linux: dead workers",
        "linux: interpreter's lock in native code",
        "linux: interpreter's lock in a busy native call",
        "linux: endless Python loop",
        "linux: endless step",
        "linux: stuck on a dead disk",
        "linux: kill -9",
        "linux: kill -9, in a launcher",
        "linux: SIGSEGV",
        "linux: SIGSEGV, in a launcher",
        "linux: SIGSEGV, told by a shell",
        "linux: exit code without a word",
    ],
    HALF: [
        "darwin: F2 swap crawl",
        "darwin: F2 pressure only",
        "darwin: F5 memory",
        "darwin: F6 jetsam",
        "darwin: F6 killed with a word",
        "linux: limit reached silently",
        "linux: limit reached, in a launcher",
        "darwin: F6 clean exception",
        "darwin: F7 size",
        "linux: waits for memory",
        "linux: killed for memory",
        "linux: killed for memory, counted",
        "linux: limit reached",
    ],
    "ends with 0": [
        "darwin: exit hang",
        "linux: exit 0 in the middle",
        "linux: finished",
    ],
    "ends with 1": [
        "darwin: F12 library",
        "linux: exception",
    ],
    "ends with 124": [
        "darwin: F10 exiting for ever",
        "darwin: F10 survives SIGKILL",
        "darwin: F8 mutex",
    ],
    "ends with 143": [
        "linux: SIGTERM",
    ],
    "nothing": [
        "darwin: F2 leak",
        "darwin: F3 pause",
        "darwin: F3 heat",
        "darwin: F3 battery",
        "linux: long save of a growing file",
        "linux: long compile, with stacks",
        "darwin: F4 error and on",
        "darwin: F4 header alone",
        "darwin: F4 reset without words",
        "darwin: F4 memory",
        "darwin: F4 interactivity",
        "darwin: F9 panic",
        "darwin: F11 CPU training",
        "darwin: F11 no GPU found",
        "darwin: F11 slow optimizer",
        "darwin: F11 rebuilt each batch",
        "darwin: F11 Rosetta",
        "darwin: F13 loss",
        "darwin: stopped",
        "linux: SIGSTOP",
        "linux: retraced",
        "linux: starved batches",
        "linux: neighbours",
        "linux: long save",
        "linux: long compile",
        "linux: data ended",
    ],
}

STORIES: dict[str, Callable[[], Story]] = {
    f"darwin: {name}": story for name, (_, _, story) in darwin.MANY.items()
}
STORIES |= {f"linux: {name}": story for name, (_, story) in linux.MANY.items()}
EXPECTED = {name: follows for follows, names in FOLLOWS.items() for name in names}


def test_the_table_tells_of_every_story() -> None:
    assert set(EXPECTED) == set(STORIES)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_follows_is_what_the_cause_asks_for(name: str) -> None:
    patience = QUIET if EXPECTED[name] == "nothing" else PATIENCE
    assert World(STORIES[name]()).follow(patience) == EXPECTED[name]


def test_every_remedy_was_met() -> None:
    met = {cause for cause, _, _ in darwin.MANY.values()} | {cause for cause, _ in linux.MANY.values()}
    assert met == set(causes.CAUSES) - {causes.UNKNOWN}
