"""Checkpoint generations of every fit, and exact resume, without editing the script.

Loaded only if the supervisor names a folder for them (settings.checkpoints).  Until Keras is imported, nothing but
this module is loaded.  Standard library only, Python 3.9 grammar; numpy and the framework are those that the user's
process has imported.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..context import Context

    Patch = Callable[[Any], None]


def targets(context: Context) -> dict[str, Patch]:
    """Return {module name: patch(module)} for every Keras that can be imported in this process."""
    found: list[Any] = []

    def session() -> Any:
        if not found:
            from .fit_session import CheckpointSession

            found.append(CheckpointSession(context))
        return found[0]

    def lazily(part: str, name: str, *more: str) -> Patch:
        def patch(module: Any) -> None:
            from importlib import import_module

            hooks = import_module("." + part, __name__)
            getattr(hooks, name)(session(), *more, module)

        return patch

    def openings(module: Any) -> None:
        session().openings.patch(module)

    patches = {
        "keras.src.callbacks.callback_list": lazily("keras3", "patch_callbacks"),
        "keras.src.trainers.epoch_iterator": lazily("keras3", "patch_iterator"),
        "keras.src.trainers.trainer": lazily("keras3", "patch_base_trainer"),
        "keras.src.backend.tensorflow.trainer": lazily("keras3", "patch_trainer", "TensorFlowTrainer"),
        "keras.src.backend.torch.trainer": lazily("keras3", "patch_trainer", "TorchTrainer"),
        "keras.src.backend.jax.trainer": lazily("keras3", "patch_trainer", "JAXTrainer"),
    }
    for package in ("keras.src", "tf_keras.src"):
        patches[package + ".engine.training"] = lazily("keras2", "patch_model")
        patches[package + ".engine.data_adapter"] = lazily("keras2", "patch_data")
        patches[package + ".utils.tf_utils"] = lazily("keras2", "patch_logs")
    patches["tensorflow.python.data.ops.dataset_ops"] = openings
    patches["tensorflow.python.data.ops.shuffle_op"] = lazily("data_order", "patch_shuffle")
    patches["keras.src.trainers.data_adapters.array_data_adapter"] = lazily("data_order", "patch_arrays")
    # Keras 3 has a package of this name, whose list is in a module of its own.
    patches["tf_keras.src.callbacks"] = lazily("keras2", "patch_callbacks")
    patches["keras.src.callbacks"] = lazily("keras2", "patch_callbacks_if_there")
    return patches
