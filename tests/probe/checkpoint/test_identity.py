"""A checkpoint is used for what it belongs to and for nothing else; a fingerprint tells one batch from another."""

from __future__ import annotations

import numpy as np
import pytest

from stallguard.probe.checkpoint import tensors
from stallguard.probe.checkpoint.identity import compare
from stallguard.probe.checkpoint.saved_generation import AttemptRecords

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


def test_the_records_of_one_process_are_not_anothers(tmp_path):
    one, other = (AttemptRecords(str(tmp_path), place, resuming=True) for place in ("a1-1", "a1-2"))
    one.store(1).write({"format": 0}, [])
    assert one.later(0)
    assert not other.later(0)


def test_what_follows_from_another_past_is_dropped(tmp_path):
    records = AttemptRecords(str(tmp_path), "a1-1", resuming=True)
    for ordinal in (1, 2, 3):
        records.store(ordinal).write({}, [])
    assert records.forget_from(2) == 2
    assert records.store(1).exists()
    assert not records.later(1)


BATCH = {"x": np.arange(60.0).reshape(6, 10), "y": (np.ones(6), np.array([b"a", "b"], object))}


def test_equal_batches_have_equal_fingerprints():
    copy = {"x": BATCH["x"].copy(), "y": (np.ones(6), np.array([b"a", "b"], object))}
    assert tensors.fingerprint_of(copy) == tensors.fingerprint_of(BATCH)


@pytest.mark.parametrize(
    "other",
    [
        {**BATCH, "x": BATCH["x"][::-1]},
        {**BATCH, "x": BATCH["x"].astype("float32")},
        {**BATCH, "x": BATCH["x"][:5]},
        {**BATCH, "y": (np.ones(6), np.array([b"a", "c"], object))},
        {**BATCH, "z": np.ones(1)},
    ],
    ids=["order", "type", "rows", "text", "one more"],
)
def test_others_have_others(other):
    assert tensors.fingerprints_differ(
        tensors.fingerprint_of(BATCH), tensors.fingerprint_of(other), drawn=False
    )


def test_an_augmentation_that_nothing_can_repeat_is_distinguished_from_another_order():
    one = tensors.fingerprint_of((np.array([1.0, 2.0]), np.array([3, 4])))
    augmented = tensors.fingerprint_of((np.array([1.5, 2.5]), np.array([3, 4])))
    reordered = tensors.fingerprint_of((np.array([2.5, 1.5]), np.array([4, 3])))
    assert tensors.fingerprints_differ(one, augmented, drawn=False)
    assert not tensors.fingerprints_differ(one, augmented, drawn=True)
    assert tensors.fingerprints_differ(one, reordered, drawn=True)
    assert tensors.fingerprints_differ(one, tensors.END, drawn=True)
