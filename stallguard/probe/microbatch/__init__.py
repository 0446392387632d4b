"""Batch levers: train every batch in slices, without editing the script.

Loaded only where the attempt asks for a factor above 1.  Each framework module names the Keras modules that
it patches; the idea is the same in all: run the framework's own `train_step` once a slice with the optimizer's
update held back, then update once with the mean gradient of the whole batch.  Steps, schedules and callbacks
do not change.  Which models that holds for is found out before (compare.py); the others keep their batch.
Standard library only; the frameworks are those that the user's process has imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ..context import Context

Patch = Callable[[Any], None]


def targets(context: Context) -> dict[str, Patch]:
    """Return {module name: patch(module)} for every Keras that may be imported in this process."""
    # Here, because a training in whole batches asks `offered` and `reach` alone.
    from . import announcements, compare, keras_jax, keras_tf, keras_torch, reductions

    announcer = announcements.Announcer(context)
    slices = compare.Slices(context, announcer)
    found = reductions.targets(context)
    for lever in (keras_tf, keras_torch, keras_jax):
        found.update(lever.targets(context, announcer, slices))
    return found
