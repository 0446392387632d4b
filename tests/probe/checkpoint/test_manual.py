"""Checkpoints of a loop of the script's own: saved when due, verified, and given back to load()."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from stallguard.probe.checkpoint import identity
from stallguard.probe.checkpoint.manual import Manual
from stallguard.probe.checkpoint.schedule import CheckpointSchedule
from stallguard.probe.settings import ProbeSettings


class Told:
    """As much of the probe's context as a checkpoint by hand uses."""

    resuming = True
    checkpoint_directory = ""
    settings = ProbeSettings()

    def __init__(self, place="a1-1"):
        self.notes, self.saves, self.place = [], 0, place
        self.losses = SimpleNamespace(known=False, broken=False)

    def note(self, kind, text, **facts):
        self.notes.append((kind, text))

    def saved(self):
        self.saves += 1

    def own_work(self):
        return nullcontext()

    def phase(self, name):
        assert name == "checkpoint"
        return nullcontext()


def manual(folder, save, announced=None, name="state"):
    return Manual(announced or Told(), str(folder), CheckpointSchedule(0.0, 1.0, 0.0), save, name)


def writing(text):
    return lambda path: Path(path).write_text(text)


def test_what_was_saved_is_given_to_load(tmp_path):
    manual(tmp_path, writing("seven")).tick()
    found = []
    assert manual(tmp_path, writing("")).load(lambda path: found.append(Path(path).read_text()))
    assert found == ["seven"]


def test_the_name_that_a_format_wants_is_used(tmp_path):
    manual(tmp_path, writing("x"), name="a.weights.h5").save(0.0)
    assert (tmp_path / "g1" / "a.weights.h5").exists()


def test_a_save_may_write_a_folder(tmp_path):
    def save(path):
        Path(path).mkdir()
        (Path(path) / "part").write_text("1")

    manual(tmp_path, save).save(0.0)
    found = []
    assert manual(tmp_path, save).load(lambda path: found.append((Path(path) / "part").read_text()))
    assert found == ["1"]


def test_nothing_saved_means_load_is_not_called(tmp_path):
    assert not manual(tmp_path, writing("")).load(lambda path: pytest.fail("called"))


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path):
    announced = Told()
    for text in ("one", "two"):
        manual(tmp_path, writing(text)).save(0.0)
    (tmp_path / "g2" / "state").write_text("tw")
    found = []
    assert manual(tmp_path, writing(""), announced).load(lambda path: found.append(Path(path).read_text()))
    assert found == ["one"]
    ((kind, text),) = announced.notes
    assert kind == "resume"
    assert text.startswith("the script's own load() reads its checkpoint; checkpoint g2 is damaged")
    assert text.endswith("the previous one is used")


def test_a_loop_whose_only_checkpoint_is_damaged_starts_over_and_that_is_said(tmp_path):
    announced = Told()
    manual(tmp_path, writing("one")).save(0.0)
    (tmp_path / "g1" / "state").write_text("on")

    assert not manual(tmp_path, writing(""), announced).load(lambda path: pytest.fail("called"))
    ((_, text),) = announced.notes
    assert text.startswith("the script's loop starts over: checkpoint g1 is damaged")
    assert "previous" not in text


def test_a_save_that_raises_is_a_note_and_the_one_before_stays(tmp_path):
    announced = Told()
    manual(tmp_path, writing("one")).save(0.0)

    def failing(path):
        Path(path).write_text("half")
        raise RuntimeError("no luck")

    manual(tmp_path, failing, announced).save(0.0)
    ((kind, text),) = announced.notes
    assert kind == "unsaved"
    assert "RuntimeError: no luck" in text
    assert "the checkpoint before" in text
    assert announced.saves == 0
    found = []
    manual(tmp_path, writing("")).load(lambda path: found.append(Path(path).read_text()))
    assert found == ["one"]


def test_what_load_raises_reaches_the_script(tmp_path):
    manual(tmp_path, writing("one")).save(0.0)
    with pytest.raises(ZeroDivisionError):
        manual(tmp_path, writing("")).load(lambda path: 1 // 0)


@pytest.mark.parametrize("other", ["place", "function"])
def test_a_checkpoint_of_another_process_or_function_is_refused_and_that_is_said(tmp_path, other):
    manual(tmp_path, writing("one")).save(0.0)

    def another(path):
        Path(path).write_text("another")

    announced = Told("a1-2" if other == "place" else "a1-1")
    save = writing("") if other == "place" else another
    assert not manual(tmp_path, save, announced).load(lambda path: pytest.fail("called"))
    assert [kind for kind, _ in announced.notes] == ["inexact"]


@pytest.mark.parametrize("other", [True, False])
def test_a_loop_that_begins_at_its_beginning_although_another_process_saved_is_said(tmp_path, other):
    manual(tmp_path / "checkpoints" / f"{'a' * 16}-1" / "manual-1", writing("theirs")).tick()
    (tmp_path / "places").mkdir()
    if not other:  # it is there too
        (tmp_path / "places" / f"{'a' * 16}-7").touch()
    announced = Told(f"{'b' * 16}-1")
    announced.checkpoint_directory = str(tmp_path / "checkpoints")
    announced.settings = ProbeSettings(pages=str(tmp_path), token=7)
    folder = tmp_path / "checkpoints" / announced.place / "manual-1"
    assert not manual(folder, writing(""), announced).load(None)
    assert [kind for kind, text in announced.notes if "with other arguments" in text] == ["inexact"] * other


def test_a_first_attempt_loads_nothing(tmp_path):
    manual(tmp_path, writing("one")).save(0.0)
    announced = Told()
    announced.resuming = False
    assert not manual(tmp_path, writing(""), announced).load(lambda path: pytest.fail("called"))


def test_an_edited_script_is_said_to_make_the_resume_inexact(tmp_path, monkeypatch):
    announced = Told()
    monkeypatch.setattr(identity, "script", lambda: {"/project/train.py": 1})
    manual(tmp_path, writing("one")).save(0.0)
    monkeypatch.setattr(identity, "script", lambda: {"/project/train.py": 2})
    assert manual(tmp_path, writing(""), announced).load(lambda path: None)
    assert announced.notes[0] == (
        "inexact",
        "the script has changed since the checkpoint was made (train.py); the script's own load() reads its checkpoint",
    )
