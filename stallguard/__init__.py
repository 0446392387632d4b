"""What a training script may say to stallguard.  Without stallguard around it, every call is a harmless no-op.

    import stallguard

    stallguard.beat()                         # a batch ended, in a loop that no library shows
    with stallguard.phase("evaluation"): ...  # name what goes on
    with stallguard.expect("export", 600): ...  # ... and say that it may take ten minutes
    batch = stallguard.batch_size(512)        # 512, or less in an attempt that shall need less memory
    for epoch, batches in stallguard.track(model, optimizer, loader, epochs=10):  # a loop that resumes exactly
        for step, (x, y) in batches: ...
    stallguard.checkpoint(save, load)         # how any other loop of the script's own is saved and resumed

Also loaded in training environments that have nothing of ours: standard library only, Python 3.9 grammar.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Any, Callable, Optional

__version__ = "0.1.0"
__all__ = [
    "StallguardCallback",
    "batch_size",
    "beat",
    "checkpoint",
    "expect",
    "guarded",
    "microbatches",
    "phase",
    "track",
]


def _script() -> Any:
    """Return the part of the probe that serves this API, None if the process has no probe."""
    return getattr(sys.modules.get("_stallguard_probe"), "voice", None)


def guarded() -> bool:
    """Whether stallguard watches this process."""
    return _script() is not None


def beat(n: int = 1) -> None:
    """Say that `n` batches ended.  Inside Keras' fit, whose batches count by themselves, only a sign of life."""
    script = _script()
    if script is not None:
        script.beat(n)


class phase:  # noqa: N801  reads as a function in a with statement
    """Context manager: what the script does now has the name `name`."""

    def __init__(self, name: str) -> None:
        self._name = str(name)
        self._seconds = 0.0
        self._state: Any = None

    def __enter__(self) -> None:
        script = _script()
        if script is not None:
            self._state = script.enter(self._name, self._seconds)

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        script = _script()
        if script is not None and self._state is not None:
            script.leave(self._state)


class expect(phase):  # noqa: N801
    """Context manager: a phase that may take `seconds` without being taken for a stall."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name)
        self._seconds = float(seconds)


def batch_size(n: int) -> int:
    """Return the batch size for this attempt: `n`, divided by its factor where less memory shall be needed."""
    script = _script()
    return int(script.batch_size(n)) if script is not None else n


def microbatches(x: Any, y: Any = None) -> Iterator[Any]:
    """Yield one batch in the pieces that this attempt asks for: (x, y) pairs, or x alone without `y`.

    For loops of the script's own that add up gradients.  `x` and `y` are cut along their first axis.
    """
    script, size = _script(), len(x)
    step = max(1, -(-size // (int(script.cut()) if script is not None else 1)))
    for start in range(0, size, step):
        part = slice(start, start + step)
        yield x[part] if y is None else (x[part], y[part])


def checkpoint(save: Callable[[str], Any], load: Callable[[str], Any], name: str = "state") -> bool:
    """Hand over how the script's own state is saved and loaded; return whether it was loaded just now.

    `save(path)` writes a file or folder named `name` at `path`, called from `beat()` when a checkpoint is due;
    `load(path)` reads it back, called here where an earlier attempt of this run left one.  What `load` raises
    reaches the script: half a state must not train on.
    """
    script = _script()
    return bool(script.checkpoint(save, load, name)) if script is not None else False


def track(*objects: Any, epochs: Any = None, loss: str = "") -> Iterator[Any]:
    """Yield (epoch, batches) of each epoch, where `batches` yields (step, batch): a loop that resumes exactly.

    The last of `objects` is the data of one epoch: a DataLoader, another iterable, or a function without arguments that
    returns one.  The others are kept in checkpoints and get their values back in the next attempt: what has
    `state_dict` and `load_state_dict`, modules and optimizers of MLX, generators, arrays, tensors, dicts and lists; for
    JAX a dict or list that holds its arrays and trees, and gets the new ones.
    Python's, numpy's and the libraries' own random generators are kept as well.  `epochs`: a number, or what yields the
    epochs; without it (step, batch) are yielded, of the data once.  Raises TypeError for what cannot be kept.

    `loss`: what the loss is over the rows of a batch (the first axis of each tensor in it), "mean" or "sum".  With this
    word an attempt that shall need less memory trains each batch in parts, with one update: the loop's body then runs
    once for each part, with the same `step`.
    """
    if loss not in ("", "mean", "sum"):
        raise ValueError("stallguard.track: loss is 'mean' or 'sum'")
    script = _script()
    if script is not None:
        found: Iterator[Any] = script.track(objects, epochs, loss)
        return found
    data = objects[-1]

    def batches() -> Iterator[Any]:
        return enumerate(data if hasattr(data, "__iter__") else data())

    if epochs is None:
        return batches()
    return ((epoch, batches()) for epoch in (range(epochs) if isinstance(epochs, int) else epochs))


def load_ipython_extension(shell: Any) -> None:
    """Watch the kernel of a notebook: `%load_ext stallguard`."""
    if guarded():
        from warnings import warn

        warn("stallguard watches this kernel already", stacklevel=2)
        return
    from stallguard import notebook

    notebook.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """End that watch: `%unload_ext stallguard`."""
    notebook = sys.modules.get("stallguard.notebook")
    if notebook is not None:
        notebook.unload(shell)


def __getattr__(name: str) -> Any:
    if name != "StallguardCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = _callback()
    return globals()[name]


def _keras() -> Any:
    """Return the Keras that the script uses: TensorFlow's where that is in, which may be an older one."""
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"].keras
    if "tf_keras" in sys.modules:
        return sys.modules["tf_keras"]
    from importlib import import_module

    return import_module("keras")


def _callback() -> Any:
    """Make the callback class on its first use, from the Keras that the script has imported."""
    base: Any = _keras().callbacks.Callback

    class StallguardCallback(base):  # type: ignore[misc]
        """Sends a beat per batch where the probe cannot enter by itself.  With the probe in, a no-op."""

        async_safe = True  # Keras 3: needs no logs, may run in another thread
        _supports_tf_logs = True  # Keras 2: needs no logs, do not fetch them from the device

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            beat()

    return StallguardCallback
