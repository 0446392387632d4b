"""Lightning goes on exactly, with the script unchanged, from checkpoints of ours inside and between epochs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from stallguard.probe.checkpoint import lightning
from tests.probe.receiver import Receiver

SCRIPT = Path(__file__).parents[2] / "guarded" / "scripts" / "lightning_resumed.py"
OFTEN = {"checkpoint_every": 0.0, "checkpoint_cost": 1.0}  # after every step
NEVER = {"checkpoint_every": 1e6, "checkpoint_cost": 1e-6}


class Run:
    """The attempts of one run, each a process with the probe."""

    def __init__(self, folder: Path, python: str, *words: str) -> None:
        """Nothing is started yet."""
        self.folder, self._command = folder, [python, str(SCRIPT), "pause=0", *words]
        self.attempts = 0

    def attempt(self, **settings):
        """Run the script once; return its notes by kind, the lines that it printed, and how it ended."""
        self.attempts += 1
        settings = {**NEVER, **settings, "checkpoints": str(self.folder / "checkpoints"), "token": self.attempts}
        with Receiver() as receiver:
            temporary = {"TMPDIR": str(receiver.folder)}  # worker processes leave sockets there
            resume = self.attempts > 1
            heard = receiver.run(self._command, 240, cwd=self.folder, resume=resume, **temporary, **settings)
        assert not [note for note in heard.notes if note["kind"] in ("aside", "trouble", "hooks")]

        notes = [(note["kind"], note.get("text", "")) for note in heard.notes]
        said = [one for one in notes if one[0] in ("resume", "inexact") and one[1]]
        lines = [json.loads(line) for line in heard.out.splitlines() if line.startswith('{"')]
        return SimpleNamespace(code=heard.code, lines=lines, notes=said, every=notes, err=heard.err, heard=heard)

    def killed(self, file: str, number: int, **settings):
        """Run the script until it kills itself (see its docstring)."""
        (self.folder / file).write_text(str(number))
        found = self.attempt(**settings)
        assert found.code == -9, found.err[-3000:]
        return found

    def ends_like(self, other, **settings):
        """Run the script to its end, which must be that of another run; return what it said."""
        found = self.attempt(**settings)
        assert found.code == 0, found.err[-3000:]
        assert "Traceback" not in found.err, found.err[-3000:]
        assert found.lines[-1] == other, (found.notes, found.err[-3000:])
        assert "is not resumable" not in found.err
        return found


@pytest.fixture(scope="module")
def undisturbed(other_python, tmp_path_factory):
    """Return a function from words of the script to what it prints at its end without the probe."""
    known = {}

    def run(*words):
        if words not in known:
            folder = tmp_path_factory.mktemp("plain")
            quiet = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder)}
            command = [other_python("hf"), SCRIPT, "pause=0", *words]
            done = subprocess.run(command, cwd=folder, env=quiet, capture_output=True, check=True)
            known[words] = json.loads(done.stdout.splitlines()[-1])
        return known[words]

    return run


STEP = "Lightning goes on from step %d, with stallguard's checkpoint"


@pytest.mark.parametrize(
    ("words", "file", "number", "first"),
    [
        ((), "die", 3, 2),
        (("workers=2", "accumulation=2", "validate=0.25"), "die-in-validation", 6, 5),
        (("workers=2", "manual=yes"), "die", 14, 3),
        (("workers=2", "steps=20", "epochs=-1", "rows=28"), "die", 8, 7),
        (("saves=yes", "patience=1"), "die-between", 1, 15),
        ((), "cut", 11, 10),
    ],
)
def test_a_killed_fit_ends_as_the_undisturbed_one(undisturbed, other_python, tmp_path, words, file, number, first):
    run = Run(tmp_path, other_python("hf"), *words)
    run.killed(file, number, **OFTEN)
    found = run.ends_like(undisturbed(*words), **OFTEN)
    assert found.lines[0] == {"first": first}
    assert found.notes == [("resume", STEP % first)]


def test_a_resumed_fit_that_is_killed_after_an_epoch_resumes_without_the_check_of_the_validation(
    undisturbed, other_python, tmp_path
):
    """What that check leaves behind, and the end of an epoch removes, is not there again."""
    run = Run(tmp_path, other_python("hf"))
    run.killed("die", 3, **OFTEN)
    run.killed("die", 9, **OFTEN)
    found = run.ends_like(undisturbed(), **OFTEN)
    assert found.lines[0] == {"first": 8}


@pytest.mark.parametrize(("file", "first"), [("term", 5), ("hang", 0)])
def test_sigterm_ends_a_fit_after_its_batch_or_in_one_that_hangs(undisturbed, other_python, tmp_path, file, first):
    """Not by Lightning's own handler, which waits for the end of the batch."""
    run = Run(tmp_path, other_python("hf"), "epochs=1")
    (tmp_path / file).write_text("5")
    assert run.attempt().code == -15
    found = run.ends_like(undisturbed("epochs=1"))
    assert found.lines[0] == {"first": first}


def test_of_two_fits_each_goes_on_from_its_own(undisturbed, other_python, tmp_path):
    """The first had ended: it trains no batch; of the damaged newest one of the second the one before is used."""
    run = Run(tmp_path, other_python("hf"), "fits=2", "epochs=1", "rows=24")
    run.killed("cut", 10, **OFTEN)
    kept = sorted((tmp_path / "checkpoints").glob("*/lightning-0002/g*"))
    os.truncate(kept[-1] / "tensors.bin", 500)
    found = run.ends_like(undisturbed("fits=2", "epochs=1", "rows=24"), **OFTEN)
    assert found.lines[0] == {"first": 2}
    assert found.notes[0] == ("resume", STEP % 6)
    assert found.notes[1][1].startswith(STEP % 2 + f"; checkpoint {kept[-1].name} is damaged (")


def test_a_path_that_the_script_passes_is_used(other_python, tmp_path):
    run = Run(tmp_path, other_python("hf"), "saves=yes", "epochs=1")
    assert run.attempt(**OFTEN).code == 0
    (tmp_path / "kept" / "last.ckpt").rename(tmp_path / "mine.ckpt")
    own = Run(tmp_path, other_python("hf"), "epochs=2", "path=mine.ckpt")
    own.killed("die", 12, **OFTEN)
    found = own.attempt(**OFTEN)
    assert found.lines[0] == {"first": 8}
    assert found.notes == []
    assert any("gets a checkpoint by ckpt_path" in text for kind, text in found.every if kind == "unsaved")


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("pieces=2", "it trains on 2 DataLoaders together"),
        ("stream=yes", "the order of an IterableDataset cannot be repeated"),
    ],
)
def test_data_that_cannot_be_drawn_again_are_said_as_the_fit_begins(other_python, tmp_path, word, why):
    run = Run(tmp_path, other_python("hf"), word, "epochs=1")
    found = run.attempt(**OFTEN)
    assert found.code == 0, found.err
    said = next(text for kind, text in found.every if kind == "unsaved")
    assert said.startswith(f"no checkpoint can be written ({why})")
    assert not list((tmp_path / "checkpoints").glob("*/*/g*"))


def test_a_checkpoint_of_another_model_is_not_used(other_python, tmp_path):
    run = Run(tmp_path, other_python("hf"), "epochs=1")
    run.killed("die", 5, **OFTEN)
    (tmp_path / "width").write_text("16")
    found = run.attempt(**OFTEN)
    assert found.code == 0, found.err
    assert found.lines[0] == {"first": 0}
    assert found.notes[0] == ("inexact", lightning._OTHER_MODEL)


def test_workers_that_live_on_are_named(other_python, tmp_path):
    run = Run(tmp_path, other_python("hf"), "workers=2", "persistent=yes", "epochs=2")
    run.killed("die", 5, **OFTEN)
    found = run.attempt(**OFTEN)
    assert found.code == 0, found.err
    assert found.lines[0] == {"first": 4}
    assert found.notes[0][0] == "inexact"
    assert "persistent_workers=True" in found.notes[0][1]
