"""A restarted attempt goes on where people already look: in the W&B and MLflow runs of the attempt before.

Loaded only if the supervisor names a directory (STALLGUARD_TRACKERS).  Until one of the libraries is imported, nothing
but this module is loaded, and in a first attempt nothing changes: what a library chose is only recorded, by the place
of the process (process_key.py) and the number of the call in it.  So several trainings of a run keep what is theirs.
The same call of the next attempt gets it back.  What a script chooses itself is left alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..context import Context, Targets

PATCHES = {  # module that a script imports: module of this package
    "wandb": "wandb_runs",
    "mlflow.tracking.fluent": "mlflow_runs",
    "mlflow.tracking._tracking_service.client": "mlflow_parameters",
}


def targets(context: Context) -> Targets:
    """Return {module name: patch(module)}."""
    found: list[Any] = []

    def lazily(part: str) -> Callable[[Any], None]:
        def patch(module: Any) -> None:
            from importlib import import_module

            if not found:
                from .earlier_choices import EarlierChoices

                found.append(EarlierChoices(context))
            import_module("." + part, __name__).patch(found[0], module)

        return patch

    return {name: lazily(part) for name, part in PATCHES.items()}
