"""What is known of a batch and of a model without computing anything."""

from __future__ import annotations

import types

import pytest

from stallguard.probe.microbatch import batch_structure


def test_each_part_of_a_batch_has_a_name_that_a_user_knows():
    batch = ({"image": 1, "age": [2, 3]}, 4, None)
    assert batch_structure.leaves(batch) == [("image", 1), ("age 1", 2), ("age 2", 3), ("target", 4)]
    assert batch_structure.leaves([7]) == [("input", 7)]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([("input", 16), ("target", 16)], ""),
        ([("input", "unknown"), ("target", 16)], ""),
        ([], "they contain no arrays"),
        ([("input", 16), ("temperature", None)], "'temperature' is a single number"),
        ([("input", 16), ("anchors", 100), ("target", 16)], "'anchors' has 100 rows, the batch 16"),
    ],
)
def test_a_batch_whose_parts_differ_in_rows_is_not_sliced_and_the_part_is_named(rows, why):
    assert batch_structure.obstacle(rows) == why


def test_a_recurrent_layer_that_keeps_its_state_is_found():
    keeps = types.SimpleNamespace(name="lstm", cell=None, stateful=True)
    other = types.SimpleNamespace(name="mine", stateful=True)  # of another kind: it has no state of a sequence
    model = types.SimpleNamespace(_flatten_layers=lambda include_self: [other, keeps])
    assert batch_structure.stateful(model) == "lstm"
