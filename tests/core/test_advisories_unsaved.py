"""A training whose checkpoints cannot be written: what the run says of it, and for how long."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core import advisories
from stallguard.core.actions import Announce
from stallguard.core.limits import Limits
from stallguard.report.status_rows import rows
from stallguard.supervisor.live_status import snapshot
from tests.simulation.simulation import Simulation

WHY = "no room for a checkpoint"
BY_HAND = {"source": "hand", "fits": 0, "trains": True, "saves": 0}


def refused(kept: str = "0") -> Simulation:
    world = Simulation(checkpoints=False)
    world.train(60)
    return world.note("unsaved", "no checkpoint can be written", world.training.pid, why=WHY, seconds="40", kept=kept)


def shown(world: Simulation) -> str:
    status = msgspec.to_builtins(snapshot("a-run", world.run, world.run.now))
    return dict(rows(status)).get("checkpoints", "")


def test_it_is_announced_and_the_status_counts_what_a_kill_costs():
    world = refused()
    assert "checkpoint.failed" in world.announced()
    assert "a kill now costs 40 s of training: there is none" in shown(world)

    world.train(20)
    assert "a kill now costs 1 min" in shown(world)


def test_what_is_written_again_is_no_trouble_any_more():
    world = refused(kept="1")
    assert "there is none" not in shown(world)
    world.note("saved", "checkpoints are written again", world.training.pid)

    assert "checkpoint.again" in world.announced()
    assert shown(world) == ""


def test_a_start_from_scratch_has_its_reason():
    world = refused()
    world.exit(-9)
    world.silent(5)

    assert "attempt.from_scratch" not in world.announced()
    (said,) = [one for one in world.actions(Announce) if one.message == "attempt.not_resumed"]
    assert WHY in said.facts["why"]
    assert world.run.current.unsaved == ()


@pytest.mark.parametrize("record", [BY_HAND, {**BY_HAND, "fits": 1, "source": "torch"}], ids=["by hand", "Lightning"])
def test_a_loop_that_is_never_saved_is_told_so_in_its_first_minute(record):
    world = Simulation(checkpoints=False)
    world.train(35, **record)
    assert "checkpoint.failed" not in world.announced()
    world.train(20, **record)

    (said,) = [one for one in world.actions(Announce) if one.message == "checkpoint.failed"]
    assert "calls stallguard.track(...) or stallguard.checkpoint(save, load)" in said.facts["text"]
    assert "two lines" not in said.facts["text"]
    assert "a kill now costs" in shown(world)


def test_a_loop_that_sends_nothing_more_before_that_is_told_so_too():
    world = Simulation(Limits(observe=True), checkpoints=False)
    world.train(10, **BY_HAND)
    world.silent(60, pulses=False)
    assert world.announced().count("checkpoint.failed") == 1


def test_the_sentence_has_the_lines_that_resume_the_loop_with_its_own_names():
    world = Simulation(checkpoints=False)
    world.train(10, **BY_HAND)
    lines = "for epoch, batches in stallguard.track(net, adam, train, epochs=EPOCHS): | for step, batch in batches:"
    world.note("loop", "", world.training.pid, lines=lines)
    world.train(45, **BY_HAND)
    (said,) = [one for one in world.actions(Announce) if one.message == "checkpoint.failed"]
    assert said.facts["text"].endswith(f"; these two lines resume it: {lines}")


def test_a_loop_that_is_saved_or_is_not_to_be_is_told_nothing():
    for world, saves in ((Simulation(), 1), (Simulation(Limits(saves=False)), 0)):
        world.train(90, **{**BY_HAND, "saves": saves})
        assert "checkpoint.failed" not in world.announced()


def test_a_loop_that_stands_still_before_its_first_checkpoint_is_not_called_one_that_is_never_saved():
    world = Simulation(several=True)
    world.start(7, hello={"hooks": ("checkpoint",)})
    world.train(90, **BY_HAND)
    assert "checkpoint.failed" not in world.announced()


def test_a_script_with_its_own_backup_does_not_start_from_scratch():
    world = Simulation(checkpoints=False)
    world.train(60)
    world.note("resume", "the script's own BackupAndRestore resumes this fit", world.training.pid, backup="1")
    world.exit(-9)
    world.silent(5)

    assert not {"attempt.from_scratch", "attempt.not_resumed"} & set(world.announced())


def test_a_damaged_fact_is_no_reason_to_fail():
    world = Simulation()
    world.train(5)
    world.note("unsaved", "", world.training.pid, seconds="many")

    assert advisories.unsaved_reason(world.run) == ""
    assert "0 s of training" in shown(world)
