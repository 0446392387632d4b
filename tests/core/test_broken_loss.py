"""A loss that stops being finite: it is said once, and the run ends if the settings ask for that."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core import ledger
from stallguard.core.actions import Announce, Ask, Conclude, Diagnosed, Signal
from stallguard.core.diagnosis import causes
from stallguard.errors import NOT_FINITE
from tests.simulation.simulation import LIMITS, Simulation

PLACE = {"value": "nan", "where": "epoch 1, batch 3", "last": "0.5000 in epoch 1, batch 2"}
TEXT = "the loss is nan from epoch 1, batch 3 on"


def limits(order: str, *, observe: bool = False):
    policy = msgspec.structs.replace(LIMITS.policy, on_nonfinite=order)
    return msgspec.structs.replace(LIMITS, policy=policy, observe=observe)


def broken(order: str = "notify", *, observe: bool = False, ends: str = "", **fields) -> Simulation:
    """Return a training whose loss is not finite any more."""
    world = Simulation(limits(order, observe=observe))
    world.train(20, fits=1, loss=0.5)
    world.note("nonfinite", TEXT, **PLACE, checkpoint="epoch 1, batch 1, made at 09:00", ends=ends)
    return world.train(20, loss=None, loss_not_finite="nan", **fields) if world.alive else world


def code_of(world: Simulation) -> int | None:
    return next((action.code for action in world.actions(Conclude)), None)


def test_by_default_it_is_announced_once_with_its_cause_and_nothing_is_done() -> None:
    world = broken().train(200)

    [said] = [action.facts["text"] for action in world.actions(Announce) if action.message == "loss.broken"]
    assert TEXT in said
    assert "last finite one was 0.5000 in epoch 1, batch 2" in said
    assert "finite values is that of epoch 1, batch 1, made at 09:00" in said
    found = [finding.cause for action in world.actions(Diagnosed) for finding in action.findings]
    assert found == [causes.WRONG_NUMBERS]
    assert "training.degraded" not in world.announced()
    assert world.actions(Ask) == world.actions(Signal) == []
    world.exit(0)
    assert code_of(world) == 0
    [last] = [action.facts for action in world.actions(Announce) if action.message == "run.finished"]
    assert TEXT in last["trouble"]


def test_no_checkpoint_is_promised_that_is_not_there() -> None:
    world = Simulation()
    world.train(20, fits=1)
    world.note("nonfinite", TEXT, **PLACE, checkpoint="")
    [said] = [action.facts["text"] for action in world.actions(Announce) if action.message == "loss.broken"]
    assert said.endswith("stallguard has no checkpoint with finite values")


@pytest.mark.parametrize("order", ["stop", "rollback"])
def test_a_run_that_must_end_ends_after_its_batch_with_a_code_of_its_own(order: str) -> None:
    world = broken(order)

    assert [action.command for action in world.actions(Ask)] == ["stop"]
    assert code_of(world) == NOT_FINITE
    assert world.announced().count("run.diverged") == 1


@pytest.mark.parametrize("record", [{"fits": 0}, {"fits": 1, "source": "torch"}], ids=["a loop", "Lightning"])
def test_a_loop_that_the_probe_cannot_end_gets_a_signal_at_once(record) -> None:
    world = Simulation(limits("stop"))
    world.train(20, **record)
    world.note("nonfinite", TEXT, **PLACE)

    assert [action.name for action in world.actions(Signal)] == ["TERM"]
    assert code_of(world) == NOT_FINITE


def test_observing_and_a_pause_of_stall_handling_end_nothing() -> None:
    assert broken("stop", observe=True).actions(Ask) == []

    paused = Simulation(limits("stop"))
    paused.train(20, fits=1)
    paused.ask("mute", "30")
    paused.note("nonfinite", TEXT, **PLACE).train(20, loss_not_finite="nan")
    assert paused.actions(Ask) == []
    paused.train(30)
    assert [action.command for action in paused.actions(Ask)] == ["stop"]


def test_a_script_that_ends_its_fit_itself_is_left_to_do_so_and_the_code_is_the_same() -> None:
    world = broken("stop", ends="TerminateOnNaN")
    assert world.actions(Ask) == []
    world.exit(0)
    assert code_of(world) == NOT_FINITE


def test_a_script_that_fails_by_itself_keeps_its_own_code() -> None:
    world = broken("stop", ends="TerminateOnNaN")
    world.exit(3)
    assert code_of(world) == 3


def test_a_loss_that_is_finite_again_ends_nothing_and_is_not_in_the_last_line() -> None:
    world = broken("notify").train(20, loss=0.25, loss_not_finite="")
    world.exit(0)
    [last] = [action.facts for action in world.actions(Announce) if action.message == "run.finished"]
    assert "nan" not in last["trouble"]


def test_the_time_since_is_not_effective() -> None:
    world = broken().train(100)
    times = ledger.spent(world.run.ledger, world.now)
    assert times.loss_not_finite == pytest.approx(120.0, abs=3.0)
    assert times.training == pytest.approx(20.0, abs=3.0)
