"""Backup: checkpoint generations of every fit, and exact resume, without editing the script.

Loaded only where the supervisor names a folder for them (STALLGUARD_BACKUP).  This module costs nothing until
Keras is imported.  Standard library only, Python 3.9 grammar; numpy and the framework are those that the
user's process has imported.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..context import Context

    Patch = Callable[[Any], None]


def targets(context: Context) -> dict[str, Patch]:
    """Return {module name: patch(module)} for every Keras that may be imported in this process."""
    found: list[Any] = []

    def session() -> Any:
        if not found:
            from .session import Session

            found.append(Session(context))
        return found[0]

    def keras3(name: str, *more: str) -> Patch:
        def patch(module: Any) -> None:
            from . import keras3 as hooks

            getattr(hooks, name)(session(), *more, module)

        return patch

    return {
        "keras.src.callbacks.callback_list": keras3("patch_callbacks"),
        "keras.src.trainers.epoch_iterator": keras3("patch_iterator"),
        "keras.src.trainers.trainer": keras3("patch_base_trainer"),
        "keras.src.backend.tensorflow.trainer": keras3("patch_trainer", "TensorFlowTrainer"),
        "keras.src.backend.torch.trainer": keras3("patch_trainer", "TorchTrainer"),
        "keras.src.backend.jax.trainer": keras3("patch_trainer", "JAXTrainer"),
    }
