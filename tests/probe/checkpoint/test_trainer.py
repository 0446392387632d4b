"""Hugging Face's Trainer goes on exactly, with the script unchanged: from its own checkpoints, and from ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stallguard.probe.checkpoint import trainer
from stallguard.probe.checkpoint.generations import Generations
from tests.probe.receiver import Receiver

SCRIPT = Path(__file__).parents[2] / "guarded" / "scripts" / "trainer.py"
OFTEN = {"checkpoint_every": 0.0, "checkpoint_cost": 1.0}  # after every step
NEVER = {"checkpoint_every": 1e6, "checkpoint_cost": 1e-6}
SAME = ("step", "weights", "optimizer", "random", "steps", "evaluated")


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
            heard = receiver.run(self._command, 120, cwd=self.folder, resume=self.attempts > 1, **settings)
        assert not [note for note in heard.notes if note["kind"] in ("aside", "trouble", "hooks")]
        notes = [(note["kind"], note["text"]) for note in heard.notes if note["kind"] in ("resume", "inexact")]
        lines = [json.loads(line) for line in heard.out.splitlines() if line.startswith('{"')]
        return SimpleNamespace(code=heard.code, lines=lines, notes=[one for one in notes if one[1]], err=heard.err)

    def killed(self, file: str, step: int, **settings) -> None:
        """Run the script until it kills itself (see its docstring)."""
        (self.folder / file).write_text(str(step))
        assert self.attempt(**settings).code == -9

    def ends_like(self, other, **settings):
        """Run the script to its end, which must be that of another run; return what it said."""
        found = self.attempt(**settings)
        assert found.code == 0, found.err[-3000:]
        assert {name: found.lines[-1][name] for name in SAME} == {name: other[name] for name in SAME}
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


@pytest.fixture(scope="module")
def checkpoint(undisturbed, other_python, tmp_path_factory):
    """Return a checkpoint that Trainer wrote after step 20."""
    folder = tmp_path_factory.mktemp("checkpoint")
    quiet = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    command = [other_python("hf"), SCRIPT, "pause=0", "save=20", "steps=20"]
    subprocess.run(command, cwd=folder, env=quiet, capture_output=True, check=True)
    return folder / "out" / "checkpoint-20"


def test_a_checkpoint_that_lacks_a_part_of_any_file_is_not_whole(checkpoint, tmp_path):
    """The training_args.bin too: who cut one file can have cut others."""
    trainer.check(str(checkpoint), 20, {"layers.0.weight": [32, 8]})
    files = sorted(one.name for one in checkpoint.iterdir())
    assert {"model.safetensors", *trainer.NEEDED} <= set(files)
    cut = 0
    for name in files:
        size = (checkpoint / name).stat().st_size
        for left in (0, 7, size // 3, size // 2, size - 2):
            copy = tmp_path / "copy"
            shutil.copytree(checkpoint, copy)
            os.truncate(copy / name, left)
            with pytest.raises(trainer.DAMAGED):
                trainer.check(str(copy), 20, {})
            shutil.rmtree(copy)
            cut += 1
    assert cut >= 20


def test_one_without_a_file_that_a_resume_needs_or_of_another_model_is_not_used(checkpoint, tmp_path):
    for name in ("model.safetensors", *trainer.NEEDED):
        copy = tmp_path / name
        shutil.copytree(checkpoint, copy)
        (copy / name).unlink()
        with pytest.raises(trainer.DamagedGeneration, match="it lacks"):
            trainer.check(str(copy), 20, {})
    with pytest.raises(trainer.DamagedGeneration, match="it is of step 20"):
        trainer.check(str(checkpoint), 30, {})
    with pytest.raises(trainer.DamagedGeneration, match=r"layers\.0\.weight has another shape"):
        trainer.check(str(checkpoint), 20, {"layers.0.weight": [64, 8]})


def test_what_lay_there_before_the_call_or_came_after_its_end_is_anothers(tmp_path):
    def write(name, text):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / trainer.STATE).write_text(text)

    write("checkpoint-10", "older")
    write("checkpoint-20", "older, and written anew")
    (tmp_path / "checkpoint-40").mkdir()
    record = {"before": trainer.listing(str(tmp_path)), "end": None}
    write("checkpoint-20", "new")
    write("checkpoint-30", "new")
    write("checkpoint-40", "new")
    store = Generations(str(tmp_path / "none"))
    found = trainer.candidates(store, str(tmp_path), record)
    assert [one.step for one in found] == [40, 30, 20]

    record["end"] = {"step": 40, "there": trainer.listing(str(tmp_path))}
    write("checkpoint-30", "of the next call")
    write("checkpoint-50", "of the next call")
    found = trainer.candidates(store, str(tmp_path), record)
    assert [one.step for one in found] == [40, 20]


def test_its_own_newest_whole_checkpoint_is_used_and_one_cut_by_a_kill_is_not(undisturbed, other_python, tmp_path):
    words = ("accumulation=2", "save=10")
    run = Run(tmp_path, other_python("hf"), *words)
    run.killed("cut", 30)
    assert (tmp_path / "out" / "checkpoint-30" / "optimizer.pt").exists()
    run.killed("die", 47)
    os.truncate(tmp_path / "out" / "checkpoint-40" / "model.safetensors", 1000)
    found = run.ends_like(undisturbed(*words))
    assert found.lines[0] == {"first": 30}
    assert found.lines[-1]["files"] == undisturbed(*words)["files"]
    assert len(found.notes) == 1
    assert found.notes[0][0] == "resume"
    assert found.notes[0][1].startswith(
        "Trainer goes on from step 30, with its own checkpoint checkpoint-30; "
        "checkpoint checkpoint-40 is damaged (model.safetensors has "
    )


@pytest.mark.parametrize("words", [(), ("workers=2", "accumulation=4", "rows=72")])
def test_a_training_that_saves_nothing_goes_on_from_our_checkpoints(words, undisturbed, other_python, tmp_path):
    run = Run(tmp_path, other_python("hf"), *words)
    run.killed("die", 23, **OFTEN)
    kept = list((tmp_path / "checkpoints").glob("*/trainer-0001/g*"))
    assert sorted(one.name for one in kept) == ["g21", "g22"], "of the steps 21 and 22; an epoch of 20 has ended"
    os.truncate(next(one for one in kept if one.name == "g22") / "optimizer.pt", 500)
    found = run.ends_like(undisturbed(*words), **OFTEN)
    assert found.lines[0]["first"] in (20, 21)
    assert found.lines[-1]["files"] == []
    assert "with stallguard's checkpoint g21; checkpoint g22 is damaged" in found.notes[0][1]


@pytest.mark.parametrize("step", [3, 21])
def test_an_evaluation_before_the_first_step_is_made_once(undisturbed, other_python, tmp_path, step):
    """What its callbacks noted is kept, and not noted again with the weights of the checkpoint."""
    run = Run(tmp_path, other_python("hf"), "eval=first")
    run.killed("die", step, **OFTEN)
    run.killed("die", step + 20, **OFTEN)
    found = run.ends_like(undisturbed("eval=first"), **OFTEN)
    assert found.lines[0]["first"] == step + 19


def test_checkpoints_of_an_earlier_training_are_not_used(undisturbed, other_python, tmp_path, checkpoint):
    run = Run(tmp_path, other_python("hf"), "save=500")
    shutil.copytree(checkpoint, tmp_path / "out" / "checkpoint-20")
    run.killed("die", 5)
    found = run.ends_like(undisturbed("save=500"))
    assert found.lines[0] == {"first": 0}
    assert found.notes == [("inexact", "Trainer begins at step 0: no checkpoint of this run is there")]


def test_a_training_that_had_ended_is_not_trained_again(undisturbed, other_python, tmp_path):
    words = ("save=20", "steps=50")
    run = Run(tmp_path, other_python("hf"), *words)
    run.ends_like(undisturbed(*words))
    found = run.ends_like(undisturbed(*words))
    assert "first" not in found.lines[0], "no step was begun"
    assert found.notes == [("resume", "Trainer goes on from step 50, with its own checkpoint checkpoint-50")]


def test_the_generator_of_a_device_that_trainer_leaves_out_is_kept(tmp_path, monkeypatch):
    device = SimpleNamespace(state=b"seven")
    device.get_rng_state = lambda: SimpleNamespace(numpy=lambda: np.frombuffer(device.state, np.uint8))
    device.set_rng_state = lambda state: setattr(device, "state", state.tobytes())
    torch = SimpleNamespace(mps=device, frombuffer=np.frombuffer, uint8=np.uint8)
    monkeypatch.setitem(sys.modules, "torch", torch)
    said = []
    kept = trainer.TrainerCheckpoints.__new__(trainer.TrainerCheckpoints)
    kept._context = SimpleNamespace(say=lambda kind, text: said.append((kind, text)))
    on_metal = SimpleNamespace(args=SimpleNamespace(device=SimpleNamespace(type="mps")))
    store = tmp_path / "trainer-0001"
    (store / "g4").mkdir(parents=True)
    kept._call = trainer.TrainingCall(on_metal, Generations(str(store)), {}, 0.0, None, None)
    for folder in (store / "g4", tmp_path / "out" / "checkpoint-20"):
        device.state = f"of {folder}".encode()
        kept.random_written(kept.random_opens(on_metal, str(folder)), None)
        device.state = b"another"
        kept.random_read(kept.random_opens(on_metal, str(folder)), None)
        assert device.state == f"of {folder}".encode()
    assert sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.is_file()) == [
        "trainer-0001/device_rng-checkpoint-20", "trainer-0001/g4/device_rng",
    ], "nothing in the script's own directory"  # fmt: skip
    assert not said
    kept.random_read(kept.random_opens(on_metal, str(tmp_path / "out" / "checkpoint-30")), None)
    assert said == [("inexact", trainer.OTHER_DRAWS % "mps")]
    on_metal.args.device.type = "cuda"
    assert kept.random_opens(on_metal, str(store / "g4")) is None


def test_a_training_in_several_processes_is_left_to_itself():
    arguments = SimpleNamespace(world_size=2)
    assert trainer.obstacle(SimpleNamespace(args=arguments)) == "Trainer trains in several processes"
    alone = SimpleNamespace(args=SimpleNamespace(world_size=1))
    assert not trainer.obstacle(alone)
    assert trainer.obstacle(SimpleNamespace(**vars(alone), is_fsdp_enabled=True))
