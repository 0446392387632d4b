"""What a run says is what happened: who did what, and that nothing is to be done only if that is so."""

from __future__ import annotations

import pytest

from stallguard.core import messages
from stallguard.core.diagnosis import causes
from stallguard.core.verdicts import Finding
from stallguard.report.narrative import sentence
from tests.simulation.simulation import Simulation

CURED = "nothing to do: stallguard restarted it"


def ended(world: Simulation, message: str = "run.finished") -> str:
    [facts] = world.facts_of(message)
    return sentence(message, facts)


def test_a_run_that_finished_after_a_restart_says_that_nothing_is_to_be_done() -> None:
    world = Simulation().train(60).exit(-11).train(60).exit(0)

    assert "1 crash, started twice" in ended(world)
    assert ended(world).endswith(CURED)


def test_a_run_without_trouble_and_one_that_was_stopped_do_not_say_that_it_was_restarted() -> None:
    assert CURED not in ended(Simulation().train(60).exit(0))
    stopped = Simulation().train(60).exit(-11).train(60).ask("stop").exit(-15)
    assert all(CURED not in sentence("run.failed", facts) for facts in stopped.facts_of("run.failed"))
    assert stopped.facts_of("run.finished") == []


def test_an_error_of_the_script_is_the_reason_with_its_line_and_its_exit_code() -> None:
    world = Simulation().train(60)
    world.line("python_traceback", "KeyError: 71, at train.py:10").exit(1)

    assert ended(world, "run.failed").startswith(
        "your script failed: KeyError: 71, at train.py:10 (exit code 1, after "
    )


@pytest.mark.parametrize(
    ("versions", "library"),
    [
        ({"tensorflow": "2.16.2", "keras": "3.4"}, "TensorFlow"),
        ({"torch": "2.3", "numpy": "2"}, "PyTorch"),
        ({"jax": "0.4"}, "JAX"),
        ({"tensorflow": "2.16.2", "torch": "2.3"}, "the training library"),
        ({}, "the training library"),
    ],
)
def test_a_library_is_named_if_only_one_is_loaded(versions: dict[str, str], library: str) -> None:
    title = causes.title(causes.DEVICE_WAIT, causes.library(versions), "step")

    assert title == f"{library} never returned from a step"


def test_a_step_is_named_only_inside_of_one() -> None:
    for phase in ("checkpoint", "between", ""):
        assert causes.title(causes.DEVICE_WAIT, "JAX", phase) == "JAX never returned from a call"
    [said] = messages.diagnosis([Finding(causes.DEVICE_WAIT, 0.9)], "JAX", "validation")
    assert said.facts["cause"] == "JAX never returned from a step"


def test_no_title_of_a_cause_has_a_hole() -> None:
    assert [one for one in causes.CAUSES if "{" in causes.title(one)] == []
