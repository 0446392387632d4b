"""Trainer under `stallguard run`, killed at random instants, comes to the same weights as undisturbed.

With more kills: .venv/bin/python -m tests.guarded.test_trainer SEED KILLS [WORDS OF THE SCRIPT]
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

from .runs import RUN, SCRIPTS

SCRIPT = SCRIPTS / "trainer.py"
EVERY = (
    "--set", "checkpoint.every=0.3s", "--set", "checkpoint.cost=0.5", "--cool-down", "0.3s",
    "--set", "policy.no_progress_limit=9",  # on a busy machine a kill can come before the first checkpoint
)  # fmt: skip
SPAN = 2.0  # seconds after its first step, at most, until a process is killed; its steps take about that


def printed(text: str) -> list[dict[str, Any]]:
    """Return the lines of JSON that the script printed."""
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"')]


def undisturbed(python: str, folder: Path, *words: str, script: Path = SCRIPT) -> dict[str, Any]:
    """Return what the script comes to without a guard."""
    folder.mkdir()
    quiet = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    done = subprocess.run([python, script, *words], cwd=folder, env=quiet, capture_output=True, text=True, check=True)
    return printed(done.stdout)[-1]


def killed(
    python: str, folder: Path, kills: int, seed: int, *words: str, script: Path = SCRIPT
) -> tuple[list[dict[str, Any]], str, int]:
    """Guard the script, and kill its process so often; return its lines, what stallguard said, and the kills made."""
    folder.mkdir()
    instants, made = random.Random(seed), 0
    environment = {
        **os.environ, "STALLGUARD_HOME": str(folder / "home"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }  # fmt: skip
    command = [*RUN, *EVERY, "--python", python, str(script), *words]
    with (
        tempfile.TemporaryDirectory(prefix="t-") as short,  # worker processes leave sockets there, by a short path
        (folder / "printed").open("w+") as out, (folder / "said").open("w+") as err,
        subprocess.Popen(command, cwd=folder, env={**environment, "TMPDIR": short}, stdout=out, stderr=err) as run,
    ):  # fmt: skip
        try:
            while run.poll() is None:
                lines = (folder / "printed").read_text().count('"first"')
                if made < kills and lines == made + 1:
                    time.sleep(instants.uniform(0, SPAN))
                    made += ends(run.pid, script)
                time.sleep(0.02)
        finally:
            run.kill()
    return printed((folder / "printed").read_text()), (folder / "said").read_text(), made


def ends(guard: int, script: Path) -> int:
    """End the training of a guard by SIGKILL; return 0 if it has ended by itself."""
    for child in psutil.Process(guard).children():
        try:
            if str(script) in child.cmdline():
                child.kill()
                return 1
        except psutil.Error:
            continue
    return 0


def test_a_training_that_is_killed_three_times_comes_to_the_same(
    other_python: Callable[[str], str], tmp_path: Path
) -> None:
    words = ("pause=0.05", "accumulation=2", "save=25")
    expected = undisturbed(other_python("hf"), tmp_path / "plain", *words)
    lines, said, made = killed(other_python("hf"), tmp_path / "guarded", 3, 40, *words)

    assert made == 3
    assert {name: lines[-1].get(name) for name in expected} == expected, said
    firsts = [one["first"] for one in lines if "first" in one]
    assert firsts[0] == 0
    assert firsts == sorted(firsts)
    assert firsts[-1] > 0
    assert said.count("Trainer goes on from step") == sum(first > 0 for first in firsts)
    assert "starts from the beginning" not in said


def main(script: Path = SCRIPT) -> None:
    """Kill so many times; print a line for each run, and how many came to something else."""
    seed, kills, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    python = os.environ.get("STALLGUARD_PYTHON_HF", str(Path(__file__).parents[2] / ".venvs/hf/bin/python"))
    with tempfile.TemporaryDirectory() as place:
        expected, done, others = undisturbed(python, Path(place) / "plain", *words, script=script), 0, 0
        while done < kills:
            seed += 1
            lines, said, made = killed(
                python, Path(place) / str(seed), min(3, kills - done), seed, *words, script=script
            )
            same = bool(lines) and {name: lines[-1].get(name) for name in expected} == expected
            done, others = done + made, others + (not same)
            print(seed, made, [one["first"] for one in lines if "first" in one], "same" if same else said, flush=True)
        print(f"{done} kills, {others} runs came to something else")


if __name__ == "__main__":
    main()
