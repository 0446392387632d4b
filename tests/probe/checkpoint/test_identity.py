"""A checkpoint is used for what it belongs to and for nothing else."""

from __future__ import annotations

import pytest

from stallguard.probe.checkpoint.identity import compare

SAVED = {
    "place": "a1-1", "arguments": ["train.py", "1"], "folder": "/home", "versions": {"keras": "3.15"},
    "site": "train.py:main", "model": "keras:Model", "config": 1, "variables": 2, "optimizer": "keras:SGD",
    "settings": {"momentum": 0.9}, "loss": 3, "data": {"adapter": "Array", "stages": [], "element": ""},
    "rate": 0.1, "schedule": None, "script": {"/home/train.py": 7, "/home/tools.py": 8}, "start": "",
}  # fmt: skip


FOREIGN = ("place", "site", "model", "variables", "optimizer")


def test_the_same_is_the_same():
    assert compare(SAVED, dict(SAVED)) == ("", [], False)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("place", "a1-2", "another process"),
        ("arguments", ["train.py", "2"], "the arguments"),
        ("folder", "/other", "the directory"),
        ("versions", {"keras": "3.16"}, "keras 3.16, was 3.15"),
        ("site", "train.py:other", "the call of fit"),
        ("model", "script:Mine", "the class of the model is Mine now and was Model"),
        ("config", 9, "the configuration of the model differs"),
        ("variables", 9, "the variables of the model differ"),
        ("optimizer", "keras:RMSprop", "the optimizer is RMSprop now and was SGD"),
        ("settings", {"momentum": 0.5}, "momentum 0.5, was 0.9"),
        ("loss", 9, "what the model is compiled with differs"),
        ("data", {"adapter": "TFDataset", "stages": [], "element": ""}, "adapter TFDataset, was Array"),
    ],
)
def test_what_differs_is_refused_with_the_reason(field, value, said):
    refusal, notices, foreign = compare(SAVED, {**SAVED, field: value})
    assert said in refusal
    assert notices == []
    assert foreign == (field in FOREIGN)  # no setting allows those


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("script", {"/home/train.py": 6, "/home/tools.py": 8}, "(train.py)"),
        ("rate", 0.01, "the script sets a learning rate of 0.01 now; it was 0.1"),
        ("schedule", 5, "another schedule of the learning rate"),
    ],
)
def test_an_edit_that_a_resume_survives_is_said(field, value, said):
    refusal, (notice,), _ = compare(SAVED, {**SAVED, field: value})
    assert refusal == ""
    assert said in notice
