"""Lightning's batches in slices come to the same weights, steps, schedule and logs, or stay whole and it is said."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from stallguard.probe.microbatch import announcements, slices_lightning
from tests.probe.receiver import Receiver

SCRIPT = Path(__file__).parent / "children" / "lightning_cases.py"
SAME = 4e-6  # a difference of a weight that is rounding
SLICED = (
    "numbers", "numbers,rows=45,accumulation=2,clip", "numbers,rows=45,drop", "numbers,workers=2,epochs=1",
    "wide,rows=1024,batch=512,epochs=1",
)  # fmt: skip
WHOLE = {
    "pairs": "its loss is no sum and no mean over rows or targets",
    "normalised": "'layers.2.running_mean' changes with each call",
    "returning": "its training_step returns more than a loss",
    "clipping": "its on_after_backward would run for each slice",
    "manual": "its training_step optimizes by itself",
}

# glibc gives freed memory back at once: else what it keeps counts as the memory of a step.
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}


def run(python, folder, *cases, **settings):
    """Return what was heard of a process that trains the cases, and what they came to."""
    folder.mkdir(exist_ok=True)
    with Receiver() as receiver:
        heard = receiver.run(
            [python, str(SCRIPT), *cases], 300, cwd=folder, TMPDIR=str(receiver.folder), **GIVES_BACK, **settings
        )
    assert heard.code == 0, heard.err[-3000:]
    assert not [note for note in heard.notes if note["kind"] in ("aside", "trouble", "hooks")]
    lines = (folder / "trained").read_text().splitlines() if (folder / "trained").exists() else []
    return heard, {one["case"]: one for one in map(json.loads, lines)}


@pytest.fixture(scope="module")
def plain(other_python, tmp_path_factory):
    """Return what the cases come to in whole batches."""
    heard, found = run(other_python("hf"), tmp_path_factory.mktemp("plain"), *SLICED, *WHOLE)
    assert heard.last()["slices"] == 1
    assert [note["facts"]["rows"] for note in heard.notes if note["kind"] == "batch"] == ["8", "512", "8"]
    return found


def agree(one, other):
    """Check that a training came to the same as in whole batches; its logs hold what each step and epoch logged."""
    names = ("steps", "seen", "random")
    assert {name: other[name] for name in names} == {name: one[name] for name in names}
    assert [line[:3] for line in other["logged"]] == [line[:3] for line in one["logged"]]
    for line, expected in zip(other["logged"], one["logged"], strict=True):
        assert line[3:] == pytest.approx(expected[3:], rel=1e-5)
    assert max((abs(a - b) for a, b in zip(one["weights"], other["weights"], strict=True)), default=0.0) <= SAME


@pytest.mark.parametrize("words", [(2,), (4,), (8,), (4, "former")], ids=str)
def test_slices_train_the_same(plain, other_python, tmp_path, words):
    slices, *name = words
    cases = SLICED if not name else SLICED[:1]
    heard, found = run(other_python("hf"), tmp_path / "sliced", *name, *cases, slices=slices)
    assert heard.last()["slices"] == slices
    assert [note["kind"] for note in heard.notes if note["kind"] in ("micro", "whole")] == ["micro"] * len(cases)
    for case in cases:
        agree(plain[case], found[case])
    if slices == 8:
        assert found[SLICED[-1]]["rise"] <= 0.5 * plain[SLICED[-1]]["rise"]


def test_batches_stay_whole_where_slices_would_train_something_else(plain, other_python, tmp_path):
    heard, found = run(other_python("hf"), tmp_path / "whole", *WHOLE, slices=4)
    assert heard.last()["slices"] == 1
    said = [note["text"] for note in heard.notes if note["kind"] == "whole"]
    for text, (case, reason) in zip(said, WHOLE.items(), strict=True):
        assert reason in text, case
        assert found[case]["weights"] == plain[case]["weights"]
        assert found[case]["logged"] == plain[case]["logged"]


@pytest.mark.parametrize(
    ("trainer", "model", "arguments", "reason"),
    [
        ({}, {}, {"batch": 1}, ""), ({}, {}, {"any": 1}, slices_lightning.ITERATOR),
        ({"world_size": 2}, {}, {"batch": 1}, announcements.SEVERAL),
        ({}, {"_compiler_ctx": {}}, {"batch": 1}, "torch.compile traces the step"),
        ({"strategy": SimpleNamespace(handles_gradient_accumulation=True)}, {}, {"batch": 1},
         "the strategy SimpleNamespace computes their gradients"),
        ({}, {"parameters": lambda: [SimpleNamespace(_post_accumulate_grad_hooks={1: 1})]}, {"batch": 1},
         announcements.AT_ONCE),
    ],
)  # fmt: skip
def test_what_divides_or_updates_gradients_itself_is_left_alone(trainer, model, arguments, reason):
    usual = {"world_size": 1, "strategy": SimpleNamespace(handles_gradient_accumulation=False), "callbacks": []}
    made = SimpleNamespace(**{**usual, **trainer})
    assert slices_lightning.obstacle(made, SimpleNamespace(**{"parameters": list, **model}), arguments) == reason
