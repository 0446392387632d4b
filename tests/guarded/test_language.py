"""mlx-lm's trainer under `stallguard run`, killed at any instant, comes to the same weights and reports as undisturbed.

With more kills: .venv/bin/python -m tests.guarded.test_language SEED KILLS [WORDS OF THE SCRIPT]
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import mlx_kernels

from .runs import RUN, SCRIPTS, stallguard

SCRIPT = SCRIPTS / "language.py"
EVERY = ("--set", "checkpoint.every=0s", "--set", "checkpoint.cost=1", "--cool-down", "0s",
         "--set", "policy.no_progress_limit=9")  # fmt: skip
SPAN = 1.5  # seconds after its first iteration, at most, until a process is killed


def printed(text: str) -> list[dict[str, Any]]:
    """Return the lines of JSON that the script printed."""
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"')]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "STALLGUARD_HOME": str(folder / "home"), "TMPDIR": mlx_kernels.share(folder)}


def undisturbed(python: str, folder: Path, *words: str) -> list[dict[str, Any]]:
    """Return what the script prints without a guard."""
    folder.mkdir()
    done = subprocess.run([python, SCRIPT, "pause=0", *words], cwd=folder, env=environment(folder),
                          capture_output=True, text=True, check=True)  # fmt: skip
    return printed(done.stdout)


def guarded(python: str, folder: Path, *words: str, kills: int = 0, seed: int = 0) -> tuple[list[Any], str, int]:
    """Guard the script, and kill its process so often; return its lines, what stallguard said, and the kills made."""
    folder.mkdir()
    instants, made = random.Random(seed), 0
    command = [*RUN, *EVERY, "--python", python, str(SCRIPT), *words]
    with (
        (folder / "printed").open("w+") as out, (folder / "said").open("w+") as err,
        subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=out, stderr=err) as run,
    ):  # fmt: skip
        try:
            while run.poll() is None:
                if made < kills and (folder / "printed").read_text().count('"first"') == made + 1:
                    time.sleep(instants.uniform(0, SPAN))
                    made += ends(run.pid)
                time.sleep(0.02)
        finally:
            run.kill()
    return printed((folder / "printed").read_text()), (folder / "said").read_text(), made


def ends(guard: int) -> int:
    """End the training of a guard by SIGKILL; return 0 if it has ended by itself."""
    for child in psutil.Process(guard).children():
        try:
            if str(SCRIPT) in child.cmdline():
                child.kill()
                return 1
        except psutil.Error:
            continue
    return 0


def same(lines: list[Any], expected: list[Any]) -> bool:
    """Return whether the ends are equal, and so is each report, which can come twice."""
    reports, wanted = ([one for one in some if "loss" in one] for some in (lines, expected))
    return bool(lines) and lines[-1] == expected[-1] and all(one in wanted for one in reports) and all(
        one in reports for one in wanted
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ("report=1", "die=3", "validation=26", "saving=30", "cut=41"),
        ("tune=full", "accumulation=2", "die=16", "validation=39", "saving=50", "cut=57"),
    ],
)
def test_a_killed_training_comes_to_the_same_as_the_undisturbed_one(
    other_python: Callable[[str], str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    expected = undisturbed(other_python("mlx"), tmp_path / "plain", *words[:-4])
    lines, said, _ = guarded(other_python("mlx"), tmp_path / "guarded", *words)

    assert same(lines, expected), said
    firsts = [one["first"] for one in lines if "first" in one]
    assert len(firsts) == 5
    assert said.count("mlx-lm's trainer goes on after iteration") == 4
    assert all(
        0 <= int(word.rpartition("=")[2]) - first <= 2 for word, first in zip(words[-4:], firsts[1:], strict=True)
    )


def test_what_the_watchdog_of_the_display_ended_is_named_and_goes_on(
    other_python: Callable[[str], str], tmp_path: Path
) -> None:
    python, environment = other_python("mlx"), {"TMPDIR": str(tmp_path), "MLX_DISABLE_COMPILE": "1"}
    given = str(SCRIPT), "iters=40"
    whole = subprocess.run([python, *given, "pause=0"], cwd=tmp_path, env={**os.environ, **environment},
                           capture_output=True, text=True, check=True)  # fmt: skip
    words = ("run", *EVERY, "--display-sleep", "--python", python, *given, "watchdog=20")
    (tmp_path / "guarded").mkdir()
    run = stallguard(tmp_path / "home", *words, env=environment, cwd=tmp_path / "guarded")

    assert run.code == 0, run.err
    assert run.actions("incident.diagnosed")[0]["findings"][0]["cause"] == "gpu-interactivity"
    assert "let the display sleep while it trains (--display-sleep)" in run.err
    assert "mlx-lm's trainer goes on after iteration 19" in run.err
    assert same(printed(run.out.decode()), printed(whole.stdout))


def main() -> None:
    """Kill so many times; print a line for each run, and how many came to something else."""
    seed, kills, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    python = os.environ.get("STALLGUARD_PYTHON_MLX", str(Path(__file__).parents[2] / ".venvs/mlx/bin/python"))
    with tempfile.TemporaryDirectory() as place:
        expected, done, others = undisturbed(python, Path(place) / "plain", *words), 0, 0
        while done < kills:
            seed += 1
            most = min(4, kills - done)
            lines, said, made = guarded(python, Path(place) / str(seed), *words, kills=most, seed=seed)
            is_same, done = same(lines, expected), done + made
            others += not is_same
            firsts = [one["first"] for one in lines if "first" in one]
            print(seed, made, firsts, "same" if is_same else said, flush=True)
        print(f"{done} kills, {others} runs came to something else")


if __name__ == "__main__":
    main()
