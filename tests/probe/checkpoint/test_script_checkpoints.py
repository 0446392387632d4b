"""What a process knows of the checkpoints that its script writes, and what it has accelerate read."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from stallguard.probe.checkpoint.script_checkpoints import ScriptCheckpoints
from stallguard.probe.written_checkpoints import read
from tests.probe.attempts import Attempts, printed
from tests.probe.receiver import Receiver

TURNS = 20
LOOP = f"""
import json, os, pathlib, random, shutil, time, torch
from accelerate import Accelerator
torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
net = torch.nn.Linear(8, 1)
net, optimizer = accelerator.prepare(net, torch.optim.Adam(net.parameters()))
class Position:
    step = 0
    def state_dict(self):
        return {{"step": self.step}}
    def load_state_dict(self, state):
        self.step = state["step"]
position, found = Position(), []
accelerator.register_for_checkpointing(position)
def train():
    accelerator.backward(net(torch.randn(4, 8)).mean())
    optimizer.step()
    position.step += 1
if not os.path.exists("first"):
    torch.save(torch.zeros(3), "data.pt")
    for name in ("first", "second"):
        train()
        accelerator.save_state(name)
    time.sleep(1.1)
    torch.save({{"net": net.state_dict(), "optimizer": optimizer.state_dict()}}, "last.tmp")
    os.replace("last.tmp", "last.pt")
    time.sleep(1.1)
    for name in ("predictions.pt", "more.pt"):  # the second one at once
        torch.save(torch.zeros(3), name)
else:
    shutil.copytree("second", "kept")
    chance = random.Random(7)
    for turn in range({TURNS}):
        path = chance.choice(sorted(pathlib.Path("second").iterdir()))
        os.truncate(path, chance.randrange(path.stat().st_size))
        accelerator.load_state("second")
        found.append(position.step)
        shutil.rmtree("second")
        shutil.copytree("kept", "second")
    accelerator.load_state("second")
    found.append(position.step)
    train()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def attempts(other_python, tmp_path_factory):
    """Return the folder of two attempts, and what the second one said."""
    folder = tmp_path_factory.mktemp("accelerate")
    with Receiver() as receiver:
        tried = Attempts(receiver, folder, LOOP, other_python("hf"))
        tried.run(checkpoints=str(folder / "checkpoints"))
        return folder, tried.run(checkpoints=str(folder / "checkpoints"), resume=True)


def test_a_state_with_a_truncated_file_is_replaced_by_the_one_before(attempts):
    folder, second = attempts
    assert printed(second) == [1] * TURNS + [2]
    said = [note["text"] for note in second.notes if note["kind"] == "inexact"]
    assert said
    assert all(f"reads {folder / 'first'}, the newest whole" in text for text in said)
    assert all(f"in place of {folder / 'second'} (" in text for text in said)


def test_the_list_has_what_was_saved_in_the_training_under_its_last_name(attempts):
    folder, _ = attempts
    (process,) = (folder / "checkpoints").glob("*/written.json")
    records = {record["path"]: record["full"] for record in read(str(process.parent))}
    assert records == {
        str(folder / "first"): 2, str(folder / "second"): 2, str(folder / "last.pt"): 1,
        str(folder / "predictions.pt"): 0,
    }  # fmt: skip


class Told(SimpleNamespace):
    """A context in which the script has trained `trained` batches, and which keeps the notes that it gets."""

    def __init__(self, folder, trained=5, resuming=False):
        """`folder`: of the checkpoints."""
        super().__init__(
            checkpoint_directory=str(folder), place="here", resuming=resuming, said_resume=False, notes=[],
            beats=SimpleNamespace(own_work=0), get=lambda _: trained, own_work=nullcontext,
        )  # fmt: skip

    def note(self, kind, text):
        """Keep a note."""
        self.notes.append((kind, text))


def save(known, path):
    known.begins(str(path), "save_state", ())
    path.write_text("values")
    known.wrote(str(path))


def test_a_checkpoint_that_is_not_read_is_named_once_the_script_trains(tmp_path):
    save(ScriptCheckpoints(Told(tmp_path / "c")), tmp_path / "last")
    early, later = (Told(tmp_path / "c", trained, resuming=True) for trained in (2, 3))
    for context, answer in ((early, None), (later, True)):
        known = ScriptCheckpoints(context)
        known.records()
        assert known.unread() is answer
    assert not early.notes
    ((kind, text),) = later.notes
    assert kind == "inexact"
    assert str(tmp_path / "last") in text


def test_a_list_that_cannot_be_written_is_said_once(tmp_path):
    (tmp_path / "c").write_text("a file in the place of the folder")
    context = Told(tmp_path / "c")
    known = ScriptCheckpoints(context)
    for name in ("first", "second"):
        save(known, tmp_path / name)
    ((kind, text),) = context.notes
    assert kind == "unlisted"
    assert "(Not a directory, in " in text
    assert "--resume-with" in text


def test_reading_a_file_of_it_is_enough(tmp_path):
    save(ScriptCheckpoints(Told(tmp_path / "c")), tmp_path / "last")
    context = Told(tmp_path / "c", resuming=True)
    known = ScriptCheckpoints(context)
    known.records()
    known.opened(str(tmp_path / "last-but-one"))
    assert not known.is_read
    known.opened(str(tmp_path / "last"))
    assert known.unread() is False
    assert not context.notes


def test_what_is_saved_before_the_first_batch_is_no_checkpoint(tmp_path):
    known = ScriptCheckpoints(Told(tmp_path / "c", trained=0))
    save(known, tmp_path / "data")
    assert known.records() == []


def test_a_list_that_cannot_be_written_stops_nothing(tmp_path):
    (tmp_path / "c").write_text("a file")
    known = ScriptCheckpoints(Told(tmp_path / "c"))
    save(known, tmp_path / "last")
    assert known.records()[0]["files"]
