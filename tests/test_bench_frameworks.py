"""The bench `frameworks` counts what is not as promised, says what it leaves out, and runs."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import frameworks
import numpy as np
import pytest
from frameworks import Asked, Killed, Kind

BENCH = Path(__file__).parents[1] / "scripts/benches/frameworks.py"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Every kind is here, but nothing is run for real."""
    monkeypatch.setattr(frameworks, "lacking", lambda _: "")
    monkeypatch.setattr(frameworks, "plain", lambda *_: {"weights": "a", "optimizer": "b"})
    return Asked(10, "^(torch|track-torch)$", 1, 1, tmp_path, out=tmp_path)


def missed(goals: Sequence[Any]) -> dict[str, float]:
    return {goal.name: goal.value for goal in goals if not goal.holds}


def hangs(*seen: tuple[float, str]) -> list[dict[str, Any]]:
    return [
        {"part": "hangs", "kind": "torch", "says": "loop", "how": "lock", "took": took, "cause": cause}
        for took, cause in seen
    ]


def test_a_training_that_is_judged_late_or_wrongly_or_never_misses_a_goal(capsys: pytest.CaptureFixture[str]) -> None:
    assert missed(frameworks.shown_hangs(hangs(*[(10.5, "host-deadlock")] * 10))) == {}

    seen = [(10.5, "host-deadlock")] * 8 + [(10.5, "unknown"), (frameworks.LONGEST, "none")]
    failed = {"part": "hangs", "kind": "torch", "says": "loop", "failed": "ended without a hang"}
    assert missed(frameworks.shown_hangs([*hangs(*seen), failed])) == {
        "p99 s of loop, lock": frameworks.LONGEST, "wrong causes of loop, lock": 2,
        "trainings that could not be played": 1,
    }  # fmt: skip
    assert "none, unknown" in capsys.readouterr().out


def test_the_median_and_a_loop_that_counts_itself_have_goals_of_their_own() -> None:
    late = hangs(*[(11.5, "host-deadlock")] * 10)
    assert missed(frameworks.shown_hangs(late)) == {"p50 s of loop, lock": 11.5, "p99 s of loop, lock": 11.5}

    def by_hand(*seen: tuple[float, str]) -> list[dict[str, Any]]:
        return [one | {"kind": "jax", "how": "early"} for one in hangs(*seen)]

    late = by_hand(*[(21.5, "host-deadlock")] * 10)
    assert missed(frameworks.shown_hangs(late)) == {"p50 s of loop, early": 21.5}
    late = by_hand(*[(20.5, "host-deadlock")] * 9, (120.0, "x"))
    assert missed(frameworks.shown_hangs(late)) == {"p99 s of loop, early": 120.0, "wrong causes of loop, early": 1}


def test_half_of_the_locks_come_in_the_first_seconds(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def hung(*asked_for: Any) -> dict[str, Any]:
        return {"how": asked_for[3], "when": asked_for[4], "took": 10.0, "cause": "host-deadlock"}

    monkeypatch.setattr(frameworks, "hung", hung)
    found = [(one["how"], one["when"]) for one in frameworks.hangs(asked) if "how" in one]
    early = [when for how, when in found if how == "early"]
    assert (len(early), len(found)) == (5, 10)
    assert all(2 <= when <= 10 for when in early)
    assert all(when % 40 for how, when in found if how == "lock")


@pytest.mark.parametrize(
    ("one", "names"),
    [
        (Killed(5, in_save=2, resumed=3, trainings=1), set()),
        (Killed(5, trainings=1), {"kills outside of saves"}),
        (Killed(5, in_save=2, over=1, trainings=1), {"begun anew although saved"}),
        (Killed(5, in_save=2, trainings=1, other="exit code 1"), {"trainings with other bytes"}),
    ],
)
def test_a_killed_training_that_ends_otherwise_misses_a_goal(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, one: Killed, names: set[str]
) -> None:
    monkeypatch.setattr(frameworks, "killed", lambda *_: asdict(one))
    assert set(missed(frameworks.shown_kills(frameworks.kills(asked)))) == {f"tracked torch: {name}" for name in names}


def test_what_is_kept_inside_of_a_checkpoint_that_is_being_written_is_no_whole_one(tmp_path: Path) -> None:
    assert frameworks.is_whole(tmp_path / "trainer-0001/g1")
    assert not frameworks.is_whole(tmp_path / "trainer-0001/tmp-g1-77/script/g1")


@pytest.mark.parametrize(
    ("shares", "apart", "orders", "names"),
    [
        ([0.6, 0.4, 0.3], [1e-6, 3e-6, 9e-6], [0.0], set()),
        ([0.6, 0.4, 0.3], [1e-4, 2e-4, 3e-4], [9e-5, 1e-4], set()),
        ([0.9, 0.7, 0.3], [1e-6, 3e-6, 9e-6], [1e-6], {"memory of MLX, Adam, in 4 slices"}),
        ([0.6, 0.4, 0.3], [1e-4, 4e-4, 3e-4], [9e-5, 1e-4], {"weights of MLX, Adam, apart"}),
    ],
)
def test_slices_may_change_weights_no_more_than_another_order_of_the_same_rows(
    shares: list[float], apart: list[float], orders: list[float], names: set[str]
) -> None:
    one = {"part": "smaller", "kind": "track-mlx", "says": "MLX", "optimizer": "Adam", "mib": 300.0}
    one |= {"shares": shares, "apart": apart, "orders": orders}
    assert set(missed(frameworks.shown_smaller([one]))) == names


def test_slices_are_compared_with_the_whole_batch_and_with_its_rows_in_other_orders(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(_: Asked, __: Kind, place: Path, order: str, *___: str, under: Sequence[str] = ()) -> dict[str, Any]:
        place.mkdir()
        count = int(under[-1]) if under else 1
        np.save(place / "weights.npy", np.array([8.0, 1.0 + count / 8 + 2.0 * int(order[-1])]))
        return {"bytes": 80 / count}

    monkeypatch.setattr(frameworks, "plain", plain)
    (found,) = [one for one in frameworks.smaller(asked._replace(each=1)) if one["optimizer"] == "SGD"]
    assert found["shares"] == [1 / 2, 1 / 4, 1 / 8]
    assert found["apart"] == [1 / 64, 3 / 64, 7 / 64]
    assert found["orders"] == [1 / 4]


def test_each_result_is_kept_as_it_comes_and_such_files_are_shown_together(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hung(asked: Asked, *_: Any) -> dict[str, Any] | None:
        count = len((asked.place / "results.jsonl").read_text().splitlines()) - 1  # one is of the undisturbed training
        if count == 2:
            raise frameworks.FailedError("it does not train")
        return {"how": "lock", "took": float(count), "cause": "host-deadlock"} if count < 5 else None

    monkeypatch.setattr(frameworks, "hung", hung)
    frameworks.hangs(asked)
    monkeypatch.setattr(sys, "argv", ["frameworks", "--results", *[str(asked.place / "results.jsonl")] * 2])

    assert frameworks.main() == 1
    shown = capsys.readouterr().out
    assert re.search(r"torch loop, lock \| +8 \|", shown), shown
    assert "1 of 4 goals missed: trainings that could not be played 2 > 0" in shown


def test_nothing_is_begun_that_cannot_end_in_time(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "hung", lambda *_: {"how": "lock", "took": 10.0, "cause": "host-deadlock"})
    assert len(frameworks.hangs(asked)) == 11
    assert frameworks.hangs(asked._replace(ends_at=time.monotonic() + 30)) == []


def test_kinds_of_torch_and_jax_train_on_the_device_that_is_asked_for(asked: Asked) -> None:
    kinds = asked._replace(only="", device="cuda").kinds("trainer", "jax", "mlx")
    assert [(one.device, one.says) for one in kinds] == [
        ("cuda", "Trainer on cuda"), ("cuda", "JAX, beat() on cuda"), ("cpu", "MLX"),
    ]  # fmt: skip


def test_a_kind_whose_library_is_not_here_is_skipped_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STALLGUARD_PYTHON_HERE", sys.executable)
    kinds = (
        Kind("a", "here", "json", "A"), Kind("b", "here", "no_such", "B"), Kind("c", "nowhere", "no_such", "C"),
        Kind("d", "nowhere", "json", "D"),
    )  # fmt: skip
    monkeypatch.setattr(frameworks, "KINDS", kinds)

    assert Asked(0, "", 1, 1, tmp_path).kinds("a", "b", "c", "d") == [kinds[0], kinds[3]]
    assert capsys.readouterr().out.splitlines() == [
        "B: skipped: not installed: no_such",
        "C: skipped: there is no environment nowhere: scripts/setup nowhere makes it",
    ]


@pytest.mark.live
@pytest.mark.parametrize(
    ("library", "kind"), [("mlx", "track-mlx"), ("mlx", "mlx-lm"), ("jax", "jax"), ("hf", "track-accelerate")]
)
def test_it_kills_a_training_and_finds_that_its_bytes_are_the_same(
    other_python: Callable[[str], str], library: str, kind: str
) -> None:
    other_python(library)
    command = [sys.executable, BENCH, "--part", "kills", "--only", f"^{kind}$", "--each", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    row = next(line for line in done.stdout.splitlines() if re.match(r"\| (tracked|JAX|mlx-lm)", line))
    counts = [int(cell) for cell in row.split("|")[2:-1]]
    assert counts[0] > 0, done.stdout
    assert counts[-2:] == [0, 0], done.stdout


@pytest.mark.live
def test_it_measures_what_the_hooks_add_to_a_step(other_python: Callable[[str], str], tmp_path: Path) -> None:
    other_python("mlx")
    kind = next(kind for kind in frameworks.KINDS if kind.word == "mlx")
    found = frameworks.plain(Asked(0, "", 1, 1, tmp_path), kind, tmp_path / "cost", "steps=600", "cost=1")
    assert found["pairs"] > 10
    assert found["plain_us"] > found["added_us"]
