"""What is reported of the rows of a fit's batches: a size that is not known is said to be unknown."""

from __future__ import annotations

import numpy as np
import pytest

from stallguard.probe.microbatch import fit_sizes
from stallguard.probe.microbatch.fit_sizes import FitReporter

ARRAYS = np.zeros((10, 2))


class Model:
    layers = ()


class Context:
    """What a reporter uses of the probe's context; `divided` is given if the supervisor gave the script its size."""

    def __init__(self, divided=None):
        self.announced, self.divided = divided is not None, divided or 1
        self.rows = []

    def note(self, _kind, _text, **facts):
        self.rows += [facts["rows"]] if "rows" in facts else []

    def beyond(self, _text):
        """Take a limitation."""


def reported(context, *fits):
    reporter = FitReporter(context)
    reporter._unreached.add(Model)
    for x, size in fits:
        reporter.fit(None, Model(), x, None, size)
    return context.rows


def test_a_fit_of_unknown_rows_is_not_taken_for_one_of_the_fit_before_it():
    sequence = object()
    assert reported(Context(), (ARRAYS, 4), (ARRAYS, 4), (sequence, None), (ARRAYS, 4)) == [4, 0, 4]
    assert reported(Context(), (sequence, None)) == []


def test_what_the_supervisor_gave_is_not_computed_back():
    """100 rows in 8 parts are 12, and 12 x 8 is not 100."""
    assert reported(Context(divided=8), (ARRAYS, 12)) == []


@pytest.mark.parametrize(
    ("size", "rows"), [(None, 32), (512, 512), (np.int64(512), 512), (np.uint8(7), 7), ("many", 0), (12.5, 0), (-1, 0)]
)
def test_a_size_is_what_python_takes_for_a_whole_number(size, rows):
    assert fit_sizes.rows(ARRAYS, size) == rows
