"""Trains every batch in slices, without editing the script.

Loaded only if the attempt has a factor above 1.  For each framework a module patches Keras in the same way: the
framework's own `train_step` runs once for each slice with the optimizer's update deferred, and one update follows with
the mean gradient of the whole batch.  Steps, schedules and callbacks do not change.  compare.py first checks for which
models the result is the same; the others keep their batch.  Standard library only; the frameworks are those that the
user's process has imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..context import Context
    from .compare import Slices


def begin(context: Context) -> Slices:
    """Return what the patches of the frameworks get."""
    # Imported here, because a training in whole batches uses `fit_sizes` and `batch_structure` only.
    from . import announcements, compare

    return compare.Slices(context, announcements.Announcer(context))
