"""The sentences on checkpoints: positions are counted from 1, costs are in units that are read at once."""

from __future__ import annotations

import time

import pytest

from stallguard.probe.checkpoint import announcements


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"finished": True}, "the end of fit 2, made at"),
        ({"finished": False, "batches": 0, "epoch": 3}, "fit 2, the beginning of epoch 4, made at"),
        ({"finished": False, "batches": 7, "epoch": 3}, "fit 2, epoch 4, batch 7, made at"),
    ],
)
def test_a_generation_is_named_by_its_place(facts, sentence):
    made = time.mktime((2026, 3, 4, 13, 5, 0, 0, 0, -1))
    assert announcements.finite(2, facts, made) == sentence + " 04 Mar 13:05"


@pytest.mark.parametrize(
    ("seconds", "is_kept", "cost"),
    [
        (0.2, False, "a kill costs all that is trained from now on: there is none"),
        (30, True, "a kill now costs the last 30 s of training: the checkpoint before them is kept"),
        (600, False, "a kill now costs all that was trained so far (10 min): there is none"),
    ],
)
def test_what_a_kill_would_cost_is_said(seconds, is_kept, cost):
    assert announcements.not_saved("no checkpoint", seconds, is_kept) == "no checkpoint; " + cost


def test_of_many_names_the_first_are_listed_and_the_others_counted():
    assert announcements.listed(list("abcdef")) == "a, b, c, d and 2 more"
    assert announcements.described({"a": "a file"}) == "a (a file)"


@pytest.mark.parametrize(("size", "text"), [(3 << 30, "3 GB"), (5 << 20, "5 MB"), (2048, "2 kB")])
def test_an_amount_is_in_the_unit_in_which_it_is_read_best(size, text):
    assert announcements.amount(size) == text
