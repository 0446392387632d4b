"""Records when the script writes or reads checkpoints by any library, and how many were written."""

from __future__ import annotations

from ..beats import CHECKPOINT
from .wrap import around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ..context import Context, Targets

METHODS = {  # module: class, methods that write, methods that read
    "keras.src.models.model": ("Model", ("save", "save_weights", "export"), ("load_weights",)),
    "keras.src.engine.training": ("Model", ("save", "save_weights", "export"), ("load_weights",)),
    "tf_keras.src.engine.training": ("Model", ("save", "save_weights", "export"), ("load_weights",)),
    "keras.engine.training": ("Model", ("save", "save_weights"), ("load_weights",)),
    "tensorflow.python.checkpoint.checkpoint": ("Checkpoint", ("save", "write"), ("restore", "read")),
    "tensorflow.python.training.tracking.util": ("Checkpoint", ("save", "write"), ("restore", "read")),
    "tensorflow.python.checkpoint.checkpoint_management": ("CheckpointManager", ("save",), ()),
    "tensorflow.python.training.checkpoint_management": ("CheckpointManager", ("save",), ()),
    "tensorflow.python.training.saver": ("Saver", ("save",), ("restore",)),
}
FUNCTIONS = {  # module: functions that write, functions that read
    "keras.src.saving.saving_api": (("save_model", "save_weights"), ("load_model", "load_weights")),
    "tf_keras.src.saving.saving_api": (("save_model", "save_weights"), ("load_model", "load_weights")),
    "tensorflow.python.saved_model.save": (("save",), ()),
    "torch.serialization": (("save",), ("load",)),
}


def targets(context: Context) -> Targets:
    """Return every module that writes or reads checkpoints."""
    hooks = SaveHooks(context)
    return dict.fromkeys([*METHODS, *FUNCTIONS], hooks.patch)


class SaveHooks:
    """The wrappers of the functions that write and read checkpoints."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats

    def patch(self, module: Any) -> None:
        """Wrap the functions in `module` that the tables above name."""
        kind, writes, reads = METHODS.get(module.__name__, ("", (), ()))
        owner = vars(module).get(kind, None)
        if owner is not None and owner.__module__ == module.__name__:
            self._wrap(owner, writes, reads)
        self._wrap(module, *FUNCTIONS.get(module.__name__, ((), ())))

    def _wrap(self, owner: Any, writes: tuple[str, ...], reads: tuple[str, ...]) -> None:
        context = self.context
        taken = [
            context.wrap(owner, n, around(context, self.opens, self.written, self.failed)) for n in writes
        ]
        for name in reads:
            context.wrap(owner, name, around(context, self.opens, self.read, self.failed))
        if any(taken):
            context.hook_installed("save")

    def opens(self, *args: Any, **kwargs: Any) -> Optional[int]:
        """Begin a checkpoint; nested calls are part of it."""
        beats = self.beats
        if beats.saving or not beats.mine():
            return None
        beats.saving = True
        return beats.enter(CHECKPOINT)

    def written(self, before: int, result: Any) -> None:
        """Count a written checkpoint."""
        self.failed(before)
        self.context.add("saves")

    def read(self, before: int, result: Any) -> None:
        """End the reading of a checkpoint."""
        self.failed(before)

    def failed(self, before: int) -> None:
        """End the call, with or without a checkpoint; the optimizer's counter can have jumped."""
        self.beats.saving = False
        self.beats.restores += 1
        self.beats.leave(before)
