"""One line says what a run changed for the mathematics of the training: nothing, or exactly what, and from when on."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import msgspec
import pytest

from stallguard.core.actions import Announce
from stallguard.core.limits import Limits, PolicyLimits
from stallguard.core.policy import mathematics
from stallguard.report import document
from stallguard.storage.paths import RunDir
from tests.report.nights import journal
from tests.simulation.simulation import LIMITS, Simulation

NOTHING = "neither the batch nor the device changes"
HALVING: Limits = msgspec.structs.replace(LIMITS, policy=PolicyLimits(on_stall="halve", no_progress_limit=9))


def said(world: Simulation) -> list[str]:
    return [one.facts["text"] for one in world.actions(Announce) if one.message == "training.changed"]


def test_a_run_that_changed_nothing_says_so_once() -> None:
    world = Simulation()
    world.train(60)
    world.silent(120)
    world.train(60)
    assert said(world) == [NOTHING]


def test_each_change_is_said_with_its_attempt_and_the_last_line_has_them_all() -> None:
    world = Simulation(HALVING)
    world.train(60)
    for attempt in (1, 2):
        while world.run is not None and world.run.current.number == attempt:
            world.silent(1)

    assert len(said(world)) == 3
    assert said(world)[-1].startswith(f"at first {NOTHING}; in attempt 2 each batch is computed in 2 slices")
    assert "; in attempt 3 each batch is computed in 4 slices" in said(world)[-1]


def test_the_report_tells_the_last_of_it(tmp_path: Path) -> None:
    announcements = [
        (float(at), Announce("training.changed", {"text": text})) for at, text in enumerate(["first", "all of it"])
    ]
    journal(tmp_path / "journal.jsonl", *announcements)
    story = document.make(RunDir(tmp_path), {}, dt.UTC).story
    assert "All of it." in story
    assert "First." not in story


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (PolicyLimits(), ["applied once", "the optimizer sees the same batch", "BatchNormalization"]),
        (PolicyLimits(batch_flag="-b"), ["4 times smaller", "4 times as many updates", "the script sets"]),
        (PolicyLimits(batch=64), ["4 times smaller"]),
        (PolicyLimits(really_smaller_batch=True), ["4 times smaller", "the learning rate as it was", "otherwise"]),
        (PolicyLimits(really_smaller_batch=True, scale_lr="linear"), ["divided by 4"]),
        (PolicyLimits(really_smaller_batch=True, scale_lr="sqrt"), ["divided by 2"]),
    ],
)
def test_exactly_what_a_smaller_batch_changes_depends_on_how_it_is_made(limits: PolicyLimits, words: list[str]) -> None:
    assert [word for word in words if word not in mathematics(4, "default", limits)] == []
    assert mathematics(1, "default", limits) == NOTHING
