"""Trainer's batches in slices come to the same weights, steps and schedule, or stay whole, and it is said why."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from stallguard.probe.microbatch import announcements, slices_trainer
from tests.probe.checkpoint.test_trainer import NEVER
from tests.probe.receiver import Receiver

SCRIPT = Path(__file__).parent / "children" / "trainer_cases.py"
SAME = 4e-6  # a difference of a weight that is rounding
SLICED = (
    "numbers", "numbers,rows=45,accumulation=2", "numbers,rows=45,drop", "numbers,workers=2,epochs=1", "sum", "tokens",
    "shifted", "gpt2,accumulation=2,rows=45", "gpt2,smoothing=0.1", "attention,epochs=1",
    "wide,rows=1024,batch=512,epochs=1",
)  # fmt: skip
WHOLE = {
    "pairs": "its loss is no sum and no mean over rows or targets",
    "normalised": "'layers.2.running_mean' changes with each call",
    "counting": "'calls' changes with each call",
    "numbers,own": "its training_step does not call Trainer's",
    "numbers,batch=1,rows=8": "a batch has a single row",
}
DRAWN = "attention,epochs=1"  # its dropout draws other numbers
RESUMED = "numbers,rows=45,accumulation=2,epochs=6"

# glibc gives freed memory back at once: else what it keeps counts as the memory of a step.
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}


def run(python, folder, *cases, **settings):
    """Return what was heard of a process that trains the cases, and what they came to."""
    folder.mkdir(exist_ok=True)
    with Receiver() as receiver:
        heard = receiver.run(
            [python, str(SCRIPT), *cases], 300, cwd=folder, TMPDIR=str(receiver.folder), **GIVES_BACK, **settings
        )
    assert not [note for note in heard.notes if note["kind"] in ("aside", "trouble", "hooks")]
    lines = (folder / "trained").read_text().splitlines() if (folder / "trained").exists() else []
    return heard, {one["case"]: one for one in map(json.loads, lines)}


@pytest.fixture(scope="module")
def plain(other_python, tmp_path_factory):
    """Return what the cases come to in whole batches."""
    heard, found = run(other_python("hf"), tmp_path_factory.mktemp("plain"), *SLICED, *WHOLE, RESUMED)
    assert heard.code == 0, heard.err[-3000:]
    assert heard.last()["slices"] == 1
    assert [note["facts"]["rows"] for note in heard.notes if note["kind"] == "batch"][:2] == ["8", "512"]
    return found


def apart(one, other):
    return max((abs(a - b) for a, b in zip(one["weights"], other["weights"], strict=True)), default=0.0)


@pytest.mark.parametrize("slices", [2, 4, 8])
def test_slices_train_the_same(plain, other_python, tmp_path, slices):
    heard, found = run(other_python("hf"), tmp_path / "sliced", *SLICED, slices=slices)
    assert heard.code == 0, heard.err[-3000:]
    assert heard.last()["slices"] == slices
    said = [note["text"] for note in heard.notes if note["kind"] == "micro"]
    assert len(said) == len(SLICED)
    assert not [note for note in heard.notes if note["kind"] == "whole"]
    assert [text.partition("; ")[2] != "" for text in said] == [case == DRAWN for case in SLICED]
    for case, one in plain.items():
        if case not in SLICED:
            continue
        other = found[case]
        assert (other["steps"], other["seen"]) == (one["steps"], one["steps"]), case
        assert [line[:3] for line in other["logged"]] == [line[:3] for line in one["logged"]], case
        if case != DRAWN:
            assert apart(one, other) <= SAME, case
            assert [line[3] for line in other["logged"]] == pytest.approx([line[3] for line in one["logged"]], rel=1e-5)
            assert other["random"] == one["random"], case
    if slices >= 4:
        whole, parts = (one[SLICED[-1]]["rise"] for one in (plain, found))
        assert parts <= 0.5 * whole


def test_batches_stay_whole_where_slices_would_train_something_else(plain, other_python, tmp_path):
    heard, found = run(other_python("hf"), tmp_path / "whole", *WHOLE, slices=4)
    assert heard.code == 0, heard.err[-3000:]
    assert heard.last()["slices"] == 1
    said = [note["text"] for note in heard.notes if note["kind"] == "whole"]
    for text, (case, reason) in zip(said, WHOLE.items(), strict=True):
        assert reason in text, case
        assert apart(plain[case], found[case]) == 0.0
        assert found[case]["logged"] == plain[case]["logged"]


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (2, 8)])
def test_a_training_goes_on_with_other_slices(plain, other_python, tmp_path, before, after):
    kept = {"checkpoints": str(tmp_path / "checkpoints"), **NEVER, "checkpoint_every": 0.0, "checkpoint_cost": 1.0}
    first, _ = run(other_python("hf"), tmp_path / "out", RESUMED + ",die=8", slices=before, token=1, **kept)
    assert first.code == -9
    heard, found = run(
        other_python("hf"), tmp_path / "out", RESUMED + ",die=8", slices=after, token=2, resume=True, **kept
    )
    assert heard.code == 0, heard.err[-3000:]
    one, other = plain[RESUMED], found[RESUMED + ",die=8"]
    assert json.loads(heard.out.splitlines()[0]) == {"first": 7}
    assert (other["steps"], other["seen"]) == (one["steps"], one["seen"])  # the callback's own count goes on
    assert apart(one, other) <= SAME
    assert [line[:3] for line in other["logged"]] == [line[:3] for line in one["logged"]]


@pytest.mark.parametrize(
    ("arguments", "trainer", "model", "reason"),
    [
        ({"world_size": 2}, {}, {}, announcements.SEVERAL), ({"n_gpu": 2}, {}, {}, announcements.SEVERAL),
        ({}, {"is_fsdp_enabled": True}, {}, slices_trainer.ELSEWHERE),
        ({"torch_compile": True}, {}, {}, "torch.compile traces the step"),
        ({}, {}, {"_orig_mod": None}, "torch.compile traces the step"),
        ({"optim": "adalomo"}, {}, {}, announcements.AT_ONCE), ({}, {}, {}, ""),
    ],
)  # fmt: skip
def test_what_divides_or_updates_gradients_itself_is_left_alone(arguments, trainer, model, reason):
    usual = {"world_size": 1, "n_gpu": 0, "torch_compile": False, "optim": "adamw_torch"}
    args = SimpleNamespace(**{**usual, **arguments})
    made = SimpleNamespace(parameters=list, **model)
    assert slices_trainer.obstacle(SimpleNamespace(args=args, **trainer), made, {}) == reason
    if not reason:
        assert slices_trainer.obstacle(SimpleNamespace(args=args), made, []) == slices_trainer.NO_TENSORS
        early = SimpleNamespace(parameters=lambda: [SimpleNamespace(_post_accumulate_grad_hooks={1: print})])
        assert slices_trainer.obstacle(SimpleNamespace(args=args), early, {}) == announcements.AT_ONCE
