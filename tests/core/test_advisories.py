"""A training that goes on: what slows it or will end it is told, once, and nothing is done about it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from stallguard.core.actions import Action, Announce, Diagnosed, Launch, Signal
from stallguard.core.events import Event
from tests.core.scenarios import darwin, linux
from tests.simulation.followed import Followed
from tests.simulation.simulation import Simulation

TOLD: dict[str, Callable[[], Simulation]] = {
    "memory-growth": darwin.MANY["F2 leak"][2],
    "throttled": darwin.MANY["F3 heat"][2],
    "cpu-fallback": darwin.MANY["F11 CPU training"][2],
    "rosetta": darwin.MANY["F11 Rosetta"][2],
    "wrong-numbers": darwin.MANY["F13 loss"][2],
    "retracing": linux.MANY["retraced"][1],
}


def actions_of(story: Simulation, more: float = 300.0) -> list[Action]:
    return Followed(story.train(more)).replay().actions(Action)


def causes_of(actions: list[Action]) -> list[str]:
    found = [action for action in actions if isinstance(action, Diagnosed) and action.incident == 0]
    return [finding.cause for action in found for finding in action.findings]


@pytest.mark.costly
@pytest.mark.parametrize("cause", TOLD)
def test_the_cause_is_reported_once_and_nothing_is_done(cause: str) -> None:
    actions = actions_of(TOLD[cause]())

    assert causes_of(actions).count(cause) == 1
    said = "loss.broken" if cause == "wrong-numbers" else "training.degraded"
    assert [action.message for action in actions if isinstance(action, Announce)].count(said) == 1
    assert not [action for action in actions if isinstance(action, Signal)]
    assert len([action for action in actions if isinstance(action, Launch)]) == 1


@pytest.mark.costly
@pytest.mark.parametrize("begun", [darwin.mac, linux.box])
def test_nothing_is_reported_of_a_training_that_is_well(begun: Callable[[], Simulation]) -> None:
    assert causes_of(actions_of(begun(), 1200.0)) == []


def test_a_slow_down_is_reported_with_its_factor_when_it_begins() -> None:
    actions = actions_of(darwin.MANY["F3 heat"][2]())
    slow = [action.facts for action in actions if isinstance(action, Announce) and action.message == "training.slow"]

    assert len(slow) == 1
    assert float(slow[0]["factor"]) > 1.2


def test_the_next_attempt_is_reported_anew() -> None:
    story = TOLD["wrong-numbers"]()
    followed = Followed(story.train(120)).replay()
    shift = story.now - story.events[0].at + 1000.0
    again = [_later(event, shift) for event in story.events]
    for event in (story.exit(-11).events[-1], *again):
        followed.feed(event)

    assert causes_of(followed.actions(Action)).count("wrong-numbers") == 2


def _later(event: Event, shift: float) -> Event:
    """Return the event as one of a second attempt."""
    times = [name for name in event.__struct_fields__ if name == "at" or name.endswith("_at")]
    moved = {name: getattr(event, name) + shift for name in times}
    return replace(event, **moved, **({"attempt": 2} if hasattr(event, "attempt") else {}))


def test_a_note_without_words_is_no_sentence() -> None:
    """The results of an epoch are facts; an announcement of nothing is an empty line of the log."""
    story = Simulation().train(30)
    before = len(story.actions(Announce))
    story.note("epoch", epoch="1", values="loss=2.3").note("size", "each batch is given in parts")

    assert [one.facts["text"] for one in story.actions(Announce)[before:]] == ["each batch is given in parts"]
