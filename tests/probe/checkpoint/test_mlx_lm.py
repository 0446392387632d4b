"""mlx-lm's trainer goes on from stallguard's checkpoints, the script unchanged; what does not fit is not used."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import mlx_kernels
from tests.probe.receiver import Receiver

SCRIPT = Path(__file__).parents[2] / "guarded" / "scripts" / "language.py"
OFTEN = {"checkpoint_every": 0.0, "checkpoint_cost": 1.0}  # after every iteration


class Run:
    """The attempts of one run, each a process with the probe."""

    def __init__(self, folder: Path, python: str) -> None:
        """Nothing is started yet."""
        self.folder, self._python, self.attempts = folder, python, 0
        self.checkpoints = folder / "checkpoints"

    def attempt(self, *words: str, program: tuple[str, ...] = (str(SCRIPT),), **settings):
        """Run the script once; return its notes, the lines that it printed, and how it ended."""
        if not self.attempts:
            (self.folder / "reports.txt").unlink(missing_ok=True)
        self.attempts += 1
        (self.folder / "also").write_text(" ".join(words))
        settings = {**OFTEN, **settings, "checkpoints": str(self.checkpoints), "token": self.attempts}
        with Receiver() as receiver:
            heard = receiver.run(
                [self._python, *program, "pause=0"], 400, cwd=self.folder, resume=self.attempts > 1,
                TMPDIR=mlx_kernels.share(self.folder), **settings,
            )  # fmt: skip
        assert not [note for note in heard.notes if note["kind"] in ("aside", "trouble", "hooks")]
        lines = [json.loads(line) for line in heard.out.splitlines() if line.startswith('{"')]
        said = [note["text"] for note in heard.notes if note["kind"] in ("resume", "inexact", "unsaved")]
        return SimpleNamespace(code=heard.code, lines=lines, said=said, err=heard.err, last=heard.last())

    def generations(self) -> list[Path]:
        """Return the checkpoints, newest first."""
        return sorted(self.checkpoints.glob("*/mlx-lm-*/g*"), key=lambda one: int(one.name[1:]), reverse=True)


@pytest.fixture
def run(other_python, tmp_path):
    """Return a run in a directory of its own."""
    return Run(tmp_path, other_python("mlx"))


def test_a_training_goes_on_in_mid_report_and_mid_accumulation_to_the_same_end(run):
    expected = run.attempt("accumulation=4", "iters=30", checkpoint_every=1e6, checkpoint_cost=1e-6)
    run.attempts = 0
    assert run.attempt("accumulation=4", "iters=30", "die=18").code == -9
    found = run.attempt("accumulation=4", "iters=30")

    assert found.lines[-1] == expected.lines[-1]
    assert found.lines[0] == {"first": 18}
    later = [one for one in expected.lines if one.get("trained", 0) > 14 or one.get("validated", 0) > 17]
    assert found.lines[1:-1] == later
    [said] = found.said
    assert "goes on after iteration 17" in said
    assert (found.last["batch"], found.last["beats"], found.last["skipped"]) == (7, 3, 17)
    again = run.attempt("accumulation=4", "iters=30")  # it was over
    assert again.lines == [expected.lines[-1]]


def test_a_damaged_checkpoint_is_passed_over_and_said(run):
    expected = run.attempt("iters=20", checkpoint_every=1e6, checkpoint_cost=1e-6)
    run.attempts = 0
    run.attempt("iters=20", "die=12")
    newest = run.generations()[0] / "tensors.bin"
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    found = run.attempt("iters=20")

    assert found.lines[-1] == expected.lines[-1]
    assert found.lines[0] == {"first": 11}
    assert "is damaged" in found.said[0]


def test_each_call_of_a_process_goes_on_by_itself(run):
    expected = run.attempt("iters=12", "calls=2", checkpoint_every=1e6, checkpoint_cost=1e-6)
    run.attempts = 0
    run.attempt("iters=12", "calls=2", "saving=12")
    found = run.attempt("iters=12", "calls=2")

    assert found.lines[-1] == expected.lines[-1]
    assert "goes on after iteration 11" in found.said[0] or "goes on after iteration 12" in found.said[0]


@pytest.mark.parametrize("word", ["accumulation=2", "tune=full", "iters=9"])
def test_another_training_does_not_use_a_checkpoint(run, word):
    run.attempt("iters=20", "die=12")
    found = run.attempt("iters=20", word)

    assert "begins at iteration 1: its model, optimizer" in found.said[0]
    assert next(one for one in found.lines if "first" in one) == {"first": 1}


TOGETHER = """
import runpy, sys
import mlx.core as mx
hooks = sys.modules[type(sys.modules["_stallguard_probe"].probe).__module__.rpartition(".")[0] + ".frameworks.mlx"]
hooks._largest[0] = 2
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_several_ranks_are_left_to_the_script_in_words(run):
    program = run.folder / "together.py"
    program.write_text(TOGETHER)
    found = run.attempt("iters=5", program=(str(program), str(SCRIPT)))

    assert found.code == 0, found.err
    assert "several processes train together" in found.said[0]
    assert run.generations() == []
    assert [one["trained"] for one in found.lines if "trained" in one] == [5]


def test_a_version_whose_loop_is_another_is_left_to_the_script_in_words(run, other_python):
    place = "import importlib.util as found; print(found.find_spec('mlx_lm').submodule_search_locations[0])"
    installed = subprocess.run([other_python("mlx"), "-c", place], capture_output=True, text=True, check=True).stdout
    shutil.copytree(installed.strip(), run.folder / "mlx_lm")
    trainer = run.folder / "mlx_lm" / "tuner" / "trainer.py"
    trainer.write_text(trainer.read_text().replace("loop=", "endless=").replace("if not loop", "if not endless"))
    program = shutil.copy(SCRIPT, run.folder / "language.py")
    found = run.attempt("iters=5", program=(str(program),))

    assert found.code == 0, found.err
    assert "the loop of this version of mlx-lm is not known" in found.said[0]
    assert run.generations() == []
