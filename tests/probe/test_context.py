"""What the parts of the probe read of the settings: in how many slices, from which rows."""

from __future__ import annotations

import pytest

from stallguard.probe import outbox, settings, wire
from stallguard.probe.beats import Beats
from stallguard.probe.context import Context
from stallguard.probe.outbox import Outbox
from stallguard.probe.patches import Patches
from stallguard.probe.settings import ProbeSettings


def context(**wish: object) -> Context:
    slots = outbox.begin(outbox.private(), token=7, pid=1, now=1)
    environment = {settings.VARIABLE: settings.encode(ProbeSettings().replace(**wish))}
    return Context(Beats(slots), Outbox(7, 1), Patches(lambda why: None), environment)


@pytest.mark.parametrize(
    ("wish", "smaller", "slices", "asked", "divided"),
    [
        pytest.param({}, False, 1, 1, 1, id="whole batches"),
        pytest.param({"slices": 4}, False, 4, 4, 1, id="slices"),
        pytest.param({"slices": 4, "fewer_rows": "linear"}, True, 1, 4, 4, id="fit gets fewer rows"),
        pytest.param({"slices": 4, "rows": 16}, False, 1, 1, 4, id="the script is started with fewer rows"),
    ],
)
def test_a_batch_is_made_smaller_in_one_way(
    wish: dict[str, object], smaller: bool, slices: int, asked: int, divided: int
) -> None:
    one = context(**wish)
    one.smaller = smaller

    assert (one.slices, one.asked, one.divided) == (slices, asked, divided)
    assert one.announced == ("rows" in wish)


def test_a_phase_ends_with_the_phase_before_it() -> None:
    one = context()
    with one.phase("step"):
        with one.phase("checkpoint"):
            assert wire.PHASES[one.get("phase")] == "checkpoint"
        assert wire.PHASES[one.get("phase")] == "step"


def test_the_place_is_found_once_and_again_after_a_fork() -> None:
    one, found = context(), iter(["a-1", "a-2"])
    one.find_place = lambda: next(found)

    assert (one.place, one.place) == ("a-1", "a-1")
    one.forget_place()
    assert one.place == "a-2"
