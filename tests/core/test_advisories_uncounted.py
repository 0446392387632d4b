"""A loop in which no hook sees a batch: the run says so within a minute, with the line that the script lacks."""

from __future__ import annotations

import pytest

from stallguard.core.actions import Announce
from tests.simulation.program import Rates
from tests.simulation.simulation import Simulation

PYTHON = {"python": "3.12.3"}


def computing(seconds: int, cores: float = 1.0, **versions: str) -> Simulation:
    """A process that imported these libraries, computes, and has no batch."""
    world = Simulation(several=True)
    record = {"trains": False, "source": "none", "phase": "importing"}
    world.start(7, hello={"versions": PYTHON | versions}, record=record, rates=Rates(cores=cores), stuck_rates=None)
    return world.silent(seconds)


def said(world: Simulation) -> list[dict[str, str]]:
    return [one.facts for one in world.actions(Announce) if one.message == "training.uncounted"]


@pytest.mark.parametrize(("library", "word", "line"), [("jax", "JAX", "step(state, batch)"), ("mlx", "MLX", "mx.eval")])
def test_it_is_said_once_with_a_line_for_that_library(library: str, word: str, line: str) -> None:
    [facts] = said(computing(150, **{library: "0.4"}))
    assert facts["library"] == word
    assert line in facts["code"]
    assert facts["code"].endswith("stallguard.beat()")
    assert said(computing(40, **{library: "0.4"})) == []


@pytest.mark.parametrize(
    ("python", "when"),
    [
        ("3.11.7", "by itself with Python 3.12 or later (this is 3.11.7)"),
        ("3.12.0", "if it updates by optax, Flax, Equinox or Keras"),
        ("", "if it updates by optax, Flax, Equinox or Keras"),
    ],
)
def test_what_is_counted_depends_on_the_python_of_a_loop_of_jax(python: str, when: str) -> None:
    [facts] = said(computing(150, jax="0.4", python=python))
    assert facts["when"] == when


@pytest.mark.parametrize("versions", [{"jax": "0.4", "keras": "3.15"}, {"torch": "2.11"}, {"tensorflow": "2.18"}])
def test_what_is_counted_by_itself_is_not_told_so(versions: dict[str, str]) -> None:
    assert said(computing(300, **versions)) == []


def test_beside_another_library_that_can_train_it_waits_longer() -> None:
    assert said(computing(120, jax="0.4", tensorflow="2.18")) == []
    assert len(said(computing(240, jax="0.4", tensorflow="2.18"))) == 1


def test_a_process_that_waits_is_not_told_so() -> None:
    assert said(computing(150, cores=0.02, jax="0.4")) == []


def test_a_loop_that_counts_is_not_told_so() -> None:
    world = computing(30, jax="0.4")
    world.train(60, source="hand", trains=True)
    assert said(world) == []


def test_the_end_of_a_run_without_a_batch_names_no_number() -> None:
    world = computing(150, jax="0.4").exit(0)
    [end] = [one.facts for one in world.actions(Announce) if one.message == "run.finished"]
    assert end["batches"] == "no counted"
