"""The whole core takes the events of a simulation that feeds one training alone, and what it wants done is done."""

from __future__ import annotations

from typing import Self

from msgspec.structs import replace

from stallguard.core.actions import Action, Collect, Conclude, Launch
from stallguard.core.events import Collected, Event, Sampled, Ticked
from stallguard.core.limits import Limits
from stallguard.core.readings import Device
from tests.simulation.simulation import Simulation


class Followed(Simulation):
    """Feeds the events of `story`, and lets it go on until something follows from them."""

    def __init__(self, story: Simulation) -> None:
        self.story = story
        super().__init__(Limits(), now=story.events[0].at, several=True)
        self.stacks_found = story.stacks_found

    def feed(self, event: Event) -> None:
        self.now = event.at
        if self.ended and isinstance(event, Sampled) and isinstance(event.reading, Device):
            event = replace(event, reading=replace(event.reading, utilisation=0.0))  # its work ended with it
        super().feed(event)

    def answer(self, action: Action) -> None:
        if isinstance(action, Collect):
            self.tell(Collected, incident=action.incident, seconds=1.0, stacks=self.stacks_found)
        else:
            super().answer(action)

    def launch(self, action: Launch) -> None:
        """The story has the first attempt's own events, and none of a second attempt."""
        self.alive = action.attempt == 1

    @property
    def restarts(self) -> list[float]:
        """When attempts after the first were to begin."""
        return self.when(Launch)[1:]

    def replay(self) -> Self:
        """Feed the events of the story so far; evidence is collected when the core wants it."""
        for event in self.story.events:
            if not isinstance(event, Collected):
                self.feed(event)
        return self

    def follow(self, patience: float) -> str:
        """Return what follows: a second attempt and how, an end and its code, or nothing."""
        self.replay()
        end = self.story.now + patience
        while not self.outcome() and self.story.now < end:
            self._let_it_go_on()
        return self.outcome() or "nothing"

    def _let_it_go_on(self) -> None:
        begun = len(self.story.events)
        if self.story.ended is not None:
            self.story.now += 10.0
        elif self.story.detector_state.judgement.gap > 1:
            self.story.silent(10)
        else:
            self.story.train(10)
        for event in self.story.events[begun:]:
            self.feed(event)
        self.feed(Ticked(at=self.story.now))

    def outcome(self) -> str:
        """Return the first thing that followed, or nothing yet."""
        for _, action in self.done:
            if isinstance(action, Launch) and action.attempt > 1:
                return f"again on the {action.device} device in {action.slices} slice(s)"
            if isinstance(action, Conclude):
                return f"ends with {action.code}"
        return ""
