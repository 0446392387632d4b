"""The bench `frameworks` counts what is not as promised, says what it leaves out, and runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import frameworks
import pytest
from frameworks import Asked, Killed, Kind

BENCH = Path(__file__).parents[1] / "scripts/benches/frameworks.py"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Every kind is here, but nothing is run for real."""
    monkeypatch.setattr(frameworks, "lacking", lambda _: "")
    monkeypatch.setattr(frameworks, "plain", lambda *_: {"weights": "a", "optimizer": "b"})
    return Asked(10, "^(torch|track-torch)$", 1, 1, tmp_path)


def missed(goals: Sequence[Any]) -> dict[str, float]:
    return {goal.name: goal.value for goal in goals if not goal.holds}


def test_a_training_that_is_judged_late_or_wrongly_or_never_misses_a_goal(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = iter([(10.5, "host-deadlock")] * 10)
    monkeypatch.setattr(frameworks, "hung", lambda *_: next(seen))
    assert missed(frameworks.hangs(asked)) == {}

    seen = iter([(10.5, "host-deadlock")] * 8 + [(10.5, "unknown"), (None, "none")])
    assert missed(frameworks.hangs(asked)) == {
        "p99 s of torch loop, lock": frameworks.LONGEST, "wrong causes of torch loop, lock": 2,
    }  # fmt: skip
    assert "none, unknown" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("one", "names"),
    [
        (Killed(5, in_save=2, resumed=3, trainings=1), set()),
        (Killed(5, trainings=1), {"kills outside of saves"}),
        (Killed(5, in_save=2, over=1, trainings=1), {"begun anew although saved"}),
        (Killed(5, in_save=2, trainings=1, other=["exit code 1"]), {"trainings with other bytes"}),
    ],
)
def test_a_killed_training_that_ends_otherwise_misses_a_goal(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, one: Killed, names: set[str]
) -> None:
    monkeypatch.setattr(frameworks, "killed", lambda *_: one)
    assert set(missed(frameworks.kills(asked))) == {f"tracked torch: {name}" for name in names}


def test_a_kind_whose_library_is_not_here_is_skipped_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STALLGUARD_PYTHON_HERE", sys.executable)
    kinds = (Kind("a", "here", "json", "A"), Kind("b", "here", "no_such", "B"), Kind("c", "nowhere", "json", "C"))
    monkeypatch.setattr(frameworks, "KINDS", kinds)

    assert Asked(0, "", 1, 1, tmp_path).kinds("a", "b", "c") == [kinds[0]]
    assert capsys.readouterr().out.splitlines() == [
        "B: skipped: not installed: no_such",
        "C: skipped: there is no environment nowhere: scripts/setup nowhere makes it",
    ]


@pytest.mark.live
@pytest.mark.parametrize(("library", "kind"), [("mlx", "track-mlx"), ("hf", "track-accelerate")])
def test_it_kills_a_training_and_finds_that_its_bytes_are_the_same(
    other_python: Callable[[str], str], library: str, kind: str
) -> None:
    other_python(library)
    command = [sys.executable, BENCH, "--part", "kills", "--only", f"^{kind}$", "--each", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    row = next(line for line in done.stdout.splitlines() if line.startswith("| tracked"))
    counts = [int(cell) for cell in row.split("|")[2:-1]]
    assert counts[0] > 0, done.stdout
    assert counts[-2:] == [0, 0], done.stdout


@pytest.mark.live
def test_it_measures_what_the_hooks_add_to_a_step(other_python: Callable[[str], str], tmp_path: Path) -> None:
    other_python("mlx")
    kind = next(kind for kind in frameworks.KINDS if kind.word == "mlx")
    found = frameworks.plain(kind, tmp_path / "cost", "steps=600", "cost=1")
    assert found["pairs"] > 10
    assert found["plain_us"] > found["added_us"]
