"""A step that lacks memory is trained again in slices inside the process, or left to the restart with the reason."""

from __future__ import annotations

import json

import pytest

from tests.probe.checkpoint.test_trainer import NEVER

from . import test_slices_lightning, test_slices_trainer

SAME = 4e-6  # a difference of a weight that is rounding
RUN = {"trainer": test_slices_trainer.run, "lightning": test_slices_lightning.run}
# What a training without any lack comes to in slices, and the words with which it lacks memory in its first step.
CURED = {
    ("trainer", "dropping,epochs=1", 2): "limit=4",
    ("trainer", "dropping,accumulation=2,rows=45", 4): "limit=2,backward",
    ("trainer", "numbers,epochs=1,workers=2,batch=16", 8): "limit=2",
    ("lightning", "unmetered,epochs=1", 2): "limit=4,logged",
    ("lightning", "unmetered,accumulation=2,rows=45,clip", 4): "limit=2,backward",
    ("lightning", "numbers,epochs=1,workers=2,batch=16", 8): "limit=2",
}  # fmt: skip
LATER = {"trainer": "numbers,rows=45,accumulation=2,workers=2", "lightning": "numbers,rows=45,workers=2"}
REFUSED = {
    "trainer": {
        "numbers,accumulation=2,from=1": "gradients of the same update", "remembering": "Remembering.seen",
        "choosing": "draws random numbers (python)", "scaling": "changes its batch", "counting": "changes calls",
        "normalised": "running_mean", "pairs": "no mean over rows or targets", "numbers,batch=1,limit=0": "fewer rows",
    },
    "lightning": {
        "numbers,accumulation=2,from=1": "gradients of the same update", "remembering": "Remembering.losses",
        "zeroing": "on_before_zero_grad would run", "normalised": "running_mean", "pairs": "no mean over rows",
        "returning": "returns more than a loss", "numbers,backward": "a metric has counted the batch",
    },
}  # fmt: skip


def said(heard, kind):
    return [note["text"] for note in heard.notes if note["kind"] == kind]


@pytest.mark.parametrize(("library", "case", "slices"), CURED)
def test_the_first_step_comes_to_the_same_as_in_slices_from_its_start(other_python, tmp_path, library, case, slices):
    run, python = RUN[library], other_python("hf")
    _, plain = run(python, tmp_path / "plain", case, slices=slices)
    lacking = case + "," + CURED[library, case, slices]
    heard, found = run(python, tmp_path / "lacking", lacking, inside=8)
    assert heard.code == 0, heard.err[-3000:]
    (text,) = said(heard, "micro")
    assert text.startswith(f"out of memory in step 1: trained in {slices} slices inside the process, caches emptied")
    assert (heard.last()["slices"], [note["facts"]["factor"] for note in heard.notes if note["kind"] == "micro"]) == (
        slices, [str(slices)],
    )  # fmt: skip
    one, other = plain[case], found[lacking]
    assert {**other, "case": 0, "rise": 0} == {**one, "case": 0, "rise": 0}


@pytest.mark.parametrize("library", LATER)
def test_a_later_step_comes_to_the_weights_of_whole_batches(other_python, tmp_path, library):
    run, python, case = RUN[library], other_python("hf"), LATER[library]
    _, plain = run(python, tmp_path / "plain", case)
    lacking = case + ",limit=2,from=4"
    heard, found = run(python, tmp_path / "lacking", lacking, inside=8)
    assert heard.code == 0, heard.err[-3000:]
    assert "trained in 4 slices inside the process" in said(heard, "micro")[0]
    one, other = plain[case], found[lacking]
    assert [other[name] for name in ("steps", "seen", "random")] == [one[name] for name in ("steps", "seen", "random")]
    assert max(abs(a - b) for a, b in zip(one["weights"], other["weights"], strict=True)) <= SAME
    for line, expected in zip(other["logged"], one["logged"], strict=True):
        assert line == pytest.approx(expected, rel=1e-5)


def test_a_later_step_that_draws_comes_to_the_same_as_in_slices_from_its_start(other_python, tmp_path):
    """The other training is killed after step 3, and goes on in slices.

    On the CPU the random numbers of a later step are given back if the process may have only so much memory: else
    nothing is raised there.
    """
    python, case, run = other_python("hf"), "dropping,rows=45,die=3", RUN["trainer"]
    kept = {"checkpoints": str(tmp_path / "checkpoints"), **NEVER, "checkpoint_every": 0.0, "checkpoint_cost": 1.0}
    run(python, tmp_path / "plain", case, token=1, **kept)
    first, plain = run(python, tmp_path / "plain", case, slices=2, token=2, resume=True, **kept)
    begins = json.loads(first.out.splitlines()[0])["first"]
    lacking = f"dropping,rows=45,limited,limit=4,from={begins}"
    heard, found = run(python, tmp_path / "lacking", lacking, inside=8)
    assert f"out of memory in step {begins + 1}" in said(heard, "micro")[0]
    assert found[lacking]["weights"] == plain[case]["weights"]
    assert found[lacking]["random"] == plain[case]["random"]


@pytest.mark.parametrize(("library", "case"), [("trainer", "dropping"), ("lightning", "unmetered")])
def test_a_later_step_on_the_cpu_that_draws_is_left_to_the_restart_if_memory_has_no_limit(
    other_python, tmp_path, library, case
):
    """Reading the state of its generator before each step would cost 6 microseconds."""
    heard, found = RUN[library](other_python("hf"), tmp_path, f"{case},limit=4,from=3,caught", inside=8)
    assert not found
    (text,) = said(heard, "memory")
    assert text.startswith("out of memory in step 4: not trained again inside the process, because its step draws")
    assert text.endswith("random numbers (torch), whose state before it is not known")


@pytest.mark.parametrize("library", REFUSED)
def test_what_a_second_run_could_change_is_left_to_the_restart(other_python, tmp_path, library):
    cases = {
        case + (",caught" if "limit" in case else ",limit=4,caught"): why for case, why in REFUSED[library].items()
    }
    heard, found = RUN[library](other_python("hf"), tmp_path / "out", *cases, inside=8)
    assert heard.code == 0, heard.err[-3000:]
    assert not found
    for text, (case, reason) in zip(said(heard, "memory"), cases.items(), strict=True):
        assert text.startswith("out of memory in step 1: not trained again inside the process, because "), case
        assert reason in text, case
    assert not said(heard, "micro")
    assert not said(heard, "whole")
    assert heard.last()["slices"] == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({}, ""), ({"inside": 8, "policy_min_batch": 5}, "one of 2 slices would have fewer rows than 5"),
     ({"inside": 2}, "2 slices did not fit either")],
)  # fmt: skip
@pytest.mark.parametrize("library", RUN)
def test_settings_decide_how_far_it_goes(other_python, tmp_path, library, settings, reason):
    heard, found = RUN[library](other_python("hf"), tmp_path / "out", "numbers,limit=2,caught", **settings)
    assert not found
    assert [one.rpartition("because ")[2] for one in said(heard, "memory")] == ([reason] if reason else [])


def test_an_error_that_is_left_has_the_traceback_that_it_has_without_the_probe(other_python, tmp_path):
    found = [
        RUN["trainer"](other_python("hf"), tmp_path / str(inside), "remembering,limit=4", inside=inside)[0]
        for inside in (1, 8)
    ]
    assert [heard.code for heard in found] == [1, 1]
    assert "MPS backend out of memory" in found[0].err
    assert found[1].err == found[0].err
