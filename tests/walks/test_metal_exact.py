"""Exactness on Metal: the verdicts on what does not hold, and the same fits on this machine's processor."""

from __future__ import annotations

import math
import os
import sys
from array import array
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HELD, FAILED, UNASKED = "held", "did not hold", "not asked"


def floats(*values: float) -> bytes:
    return array("f", values).tobytes()


def near(absolute: float, relative: float | None = None):
    from mac.verdicts_metal import Apart

    return Apart(bool(absolute), 10, absolute, absolute if relative is None else relative)


def resumed(absolute: float | None = 0.0, starts=(0, 28), code: int | None = 0):
    from mac.verdicts_metal import Resumed

    return Resumed(30, starts, code, None if absolute is None else near(absolute))


def test_the_distance_of_two_fits_is_that_of_their_weights():
    from mac.verdicts_metal import apart

    assert apart(floats(1.0, -4.0), floats(1.0, -4.0)) == (0, 2, 0.0, 0.0)
    assert apart(floats(1.0, -4.0), floats(1.5, -4.0)) == (1, 2, 0.5, 0.125)
    assert apart(floats(0.0, 1.0), floats(-0.0, 1.0)) == (1, 2, 0.0, 0.0), "bits differ, not numbers"
    assert apart(floats(1.0, 2.0), floats(math.nan, 2.0)).absolute == math.inf
    assert apart(floats(1.0, 2.0), floats(1.0)) == (2, 2, math.inf, math.inf)
    assert str(apart(floats(1.0, -4.0), floats(1.5, -4.0))) == "1 of 2 weights differ, by 5.0e-01 at most (1.2e-01)"


def test_a_resume_is_judged_by_what_undisturbed_fits_do():
    from mac import verdicts_metal as say

    equal, noisy = [near(0.0)] * 2, [near(1e-6), near(2e-6)]
    row = say.resume("main", equal, [resumed()] * 5)
    assert (row.verdict, row.figure) == (HELD, "killed after batch 30, 30, 30, 30, 30: 5 of 5 bit-equal")
    assert say.resume("main", equal, [resumed()] * 4 + [resumed(1e-9)]).verdict == FAILED, "Metal repeats itself"
    assert say.resume("main", noisy, [resumed(5e-6), resumed()]).verdict == HELD
    assert say.resume("main", noisy, [resumed(9e-6), resumed()]).verdict == FAILED
    assert say.resume("main", noisy, [resumed(math.inf)]).verdict == FAILED


@pytest.mark.parametrize(
    "seen",
    [(None, (0, 28), 1), (0.0, (0, 28), None), (0.0, (0, 0)), (0.0, (0,)), (0.0, (0, 40)), (0.0, (0, -1)),
     (0.0, (0, 28, 29))],
    ids=["failed", "no end", "from the start", "not killed", "batches left out", "no batch", "killed twice"],
)  # fmt: skip
def test_a_fit_that_was_not_resumed_once_does_not_pass_for_one(seen):
    from mac import verdicts_metal as say

    assert say.resume("main", [near(0.0)], [resumed(), resumed(*seen)]).verdict == FAILED
    assert say.resume("main", [near(0.0)], []).verdict == FAILED


def test_fits_that_differ_leave_the_question_open():
    from mac import verdicts_metal as say

    assert say.repeats("main", [near(0.0), near(0.0)]).verdict == HELD
    assert say.repeats("main", [near(0.0), near(1e-7)]).verdict == UNASKED
    assert say.repeats("main", [near(0.0), None]).verdict == FAILED
    assert say.repeats("main", []).verdict == FAILED


def test_slices_are_judged_by_rounding_and_by_memory():
    from mac.verdicts_metal import Sliced, slices

    def verdicts(*, again: float = 0.0, four: float = 3e-7, peaks: tuple[int | None, ...] = (9, 9, 7, 5)) -> list[str]:
        differences = (0.0, again, 2e-7, four)
        return [row.verdict for row in slices("main", [
            Sliced(factor, near(one), peak) for factor, one, peak in zip((1, 1, 2, 4), differences, peaks, strict=True)
        ])]  # fmt: skip

    assert verdicts() == [HELD, HELD]
    assert verdicts(four=2e-4) == [FAILED, HELD]
    assert verdicts(again=1e-4, four=2e-4) == [HELD, HELD], "whole batches differ as much"
    assert verdicts(four=math.inf) == [FAILED, HELD]
    assert verdicts(peaks=(9, 9, 9, 9)) == [HELD, FAILED]
    assert verdicts(peaks=(9, None, 7, 5)) == [HELD, UNASKED]
    [row] = slices("main", [Sliced(1, near(0.0), 9), Sliced(4, None, 9)])
    assert (row.verdict, row.figure) == (FAILED, "did not end: 4 slices")


def test_attempts_are_told_apart_by_what_they_print():
    from mac.metal_exact import starts

    assert starts("note\ngpus 1\nbatch 0\nbatch 1\ngpus 1\nbatch 2\nbatch 3\n") == [0, 2]
    assert starts("gpus 1\nbatch 0\ngpus 1\n") == [0, -1]
    assert starts("Traceback") == []


def scene(folder: Path):
    from mac.scene import Scene

    env = {**os.environ, "STALLGUARD_HOME": str(folder / "kept"), "PYTHONPATH": str(ROOT)}
    made = Scene(folder, env, lambda _line: None)
    made.metal_pythons = {"main": sys.executable}
    return made


def test_without_a_gpu_no_fit_is_judged(tmp_path, monkeypatch):
    from mac import metal_exact
    from mac.metal_exact import Fit

    seen = {"both": Fit(0, 0, [0], b"", None, ""), "pinned": Fit(1, None, [], None, None, "no tensorflow")}
    made = scene(tmp_path)
    made.metal_pythons = {"both": "both", "pinned": "pinned"}
    monkeypatch.setattr(metal_exact, "fit", lambda _scene, python, *_: seen[python])
    for check in (metal_exact.resume, metal_exact.slices):
        rows = list(check(made))
        assert [(row.check, row.verdict) for row in rows] == [
            ("fit on Metal (both)", UNASKED), ("fit on Metal (pinned)", FAILED),
        ]  # fmt: skip
        assert "no tensorflow" in rows[1].means


@pytest.mark.tf
@pytest.mark.live
def test_fits_are_killed_resumed_and_sliced_on_the_processor(tmp_path, monkeypatch):
    from mac import metal_exact

    monkeypatch.setattr(metal_exact, "REPETITIONS", 1)
    monkeypatch.setattr(metal_exact, "UNDISTURBED", 2)
    monkeypatch.setattr(metal_exact, "SIDE", 24)
    monkeypatch.setattr(metal_exact, "FACTORS", (1, 4))
    rows = list(metal_exact.resume(scene(tmp_path), "cpu")) + list(metal_exact.slices(scene(tmp_path), "cpu"))

    assert [(row.check, row.verdict) for row in rows][:3] == [
        ("fits on Metal repeat themselves (main)", HELD), ("resume on Metal (main)", HELD),
        ("slices on Metal (main)", HELD),
    ], rows  # fmt: skip
    assert rows[1].figure.endswith("1 of 1 bit-equal")
    assert "4 slices: " in rows[2].figure
    assert "bit-equal" not in rows[2].figure, "slices are added in another order"
    assert rows[3].figure.startswith("1: ")
    assert list(tmp_path.glob("fit-*")) == []
