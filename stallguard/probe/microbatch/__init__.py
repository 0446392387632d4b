"""Trains every batch in slices, without editing the script.

Loaded only if the attempt has a factor above 1.  For each framework a module patches Keras in the same way: the
framework's own `train_step` runs once for each slice with the optimizer's update deferred, and one update follows with
the mean gradient of the whole batch.  Steps, schedules and callbacks do not change.  compare.py first checks for which
models the result is the same; the others keep their batch.  Standard library only; the frameworks are those that the
user's process has imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ..context import Context

Patch = Callable[[Any], None]


def targets(context: Context) -> dict[str, Patch]:
    """Return {module name: patch(module)} for every Keras that can be imported in this process."""
    # Imported here, because a training in whole batches uses `fit_arguments` and `batch_structure` only.
    from . import announcements, compare, reductions, slices_jax, slices_tf, slices_torch

    announcer = announcements.Announcer(context)
    slices = compare.Slices(context, announcer)
    found = reductions.targets(context)
    for module in (slices_tf, slices_torch, slices_jax):
        found.update(module.targets(context, announcer, slices))
    return found
