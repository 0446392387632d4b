"""A restarted attempt goes on where people already look: in W&B, MLflow and TensorBoard as the attempt before.

Loaded only if the supervisor names a directory (settings.trackers).  Until one of the libraries is imported, nothing
but this module is loaded, and in a first attempt nothing changes: what a library chose is only recorded, by the place
of the process (process_key.py) and the number of the call in it.  So several trainings of a run keep what is theirs.
The same call of the next attempt gets it back.  What a script chooses itself is left alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..context import Context, Targets

PATCHES = {  # module that a script imports: module of this package, and its function
    "wandb": ("wandb_runs", "patch"),
    "mlflow.tracking.fluent": ("mlflow_runs", "patch"),
    "mlflow.tracking._tracking_service.client": ("mlflow_parameters", "patch"),
    "tensorflow.python.ops.summary_ops_v2": ("log_directories", "patch_writer"),
    "keras.src.callbacks.tensorboard": ("log_directories", "patch_callback"),
    # Keras 2; Keras 3 has a package of the last name, whose callback is in the module above.
    "tf_keras.src.callbacks": ("log_directories", "patch_callback"),
    "keras.src.callbacks": ("log_directories", "patch_callback"),
}


def targets(context: Context) -> Targets:
    """Return {module name: patch(module)}."""
    found: list[Any] = []

    def lazily(part: str, name: str) -> Callable[[Any], None]:
        def patch(module: Any) -> None:
            from importlib import import_module

            if not found:
                from .earlier_choices import EarlierChoices

                found.append(EarlierChoices(context))
            getattr(import_module("." + part, __name__), name)(found[0], module)

        return patch

    return {module: lazily(*where) for module, where in PATCHES.items()}
