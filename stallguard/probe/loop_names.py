"""The lines that would have a loop of the script's own resumed, written with the names of its variables.

They are read once, in the frame of the training loop: the outermost function of the script, or its module, that has an
optimizer.  Only names and the classes of their values are looked at.  The sender's thread runs this: nothing is
imported.  The state of a loop of JAX has no classes of its own: frameworks/jax.py finds its names.
"""

from __future__ import annotations

import sys

from . import libraries, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from types import FrameType
    from typing import Any, Callable, Optional, TypeVar

    from .beats import Beats

    Found = TypeVar("Found")

MODEL, OPTIMIZER, SCHEDULE, SCALER, RANDOM, LOADER = range(6)  # in the order in which they are handed over
KINDS = {
    ("torch.nn.modules.module", "Module"): MODEL,
    ("torch.optim.optimizer", "Optimizer"): OPTIMIZER,
    ("torch.optim.lr_scheduler", "LRScheduler"): SCHEDULE,
    ("torch.optim.lr_scheduler", "_LRScheduler"): SCHEDULE,  # before torch 2.0
    ("accelerate.scheduler", "AcceleratedScheduler"): SCHEDULE,
    ("torch.amp.grad_scaler", "GradScaler"): SCALER,
    ("torch.utils.data.dataloader", "DataLoader"): LOADER,
    ("accelerate.data_loader", "DataLoaderAdapter"): LOADER,
    ("mlx.nn.layers.base", "Module"): MODEL,
    ("mlx.optimizers.optimizers", "Optimizer"): OPTIMIZER,
    ("flax.nnx.module", "Module"): MODEL,
    ("flax.nnx.training.optimizer", "Optimizer"): OPTIMIZER,
    ("flax.nnx.rnglib", "Rngs"): RANDOM,
}
STATELESS = "torch.nn.modules.loss"
OTHERS = ("val", "test", "eval", "dev")  # in the names of loaders that do not feed the training
READERS = frozenset(
    ("locals", "vars", "exec", "eval")
)  # a function that calls one can hold the dictionary of its locals
MOST = 8  # names
LINES = "for epoch, batches in stallguard.track(%s, epochs=EPOCHS): | for step, batch in batches:"
BEFORE = ' (before them %s = {%s}; the loop reads and assigns %s["%s"] in place of %s, and so on)'
HOLDERS = ("state", "tracked", "training_state")
UNKNOWN = ("PARAMS", "OPT_STATE", "KEY")
CO_OPTIMIZED = 1  # inspect.CO_OPTIMIZED: the code of a function, whose variables are in no dictionary
BEGUN = 3  # batches: the objects exist, and the loop runs
LOOKS = 40  # twice a second
_FITS, _HOOKS, _BEATS = wire.SLOT["fits"], wire.SLOT["hooks"], wire.SLOT["beats"]
SAVED = 1 << wire.HOOKS.index("checkpoint")


def kind_of(value: Any) -> Optional[int]:
    """Return what a value is to a training loop, None if nothing."""
    kind = type(value)
    if kind.__module__ == STATELESS:
        return None
    for one in kind.__mro__:
        found = KINDS.get((one.__module__, one.__name__))
        if found is not None:
            return found
    return None


def lines_of(variables: Iterable[tuple[str, Optional[int]]]) -> str:
    """Return the two lines for variables with these kinds, "" if no optimizer is among them."""
    kinds = [(name, kind) for name, kind in variables if kind is not None and not name.startswith("_")]
    if all(kind != OPTIMIZER for _, kind in kinds):
        return ""
    objects = [name for name, kind in sorted(kinds, key=lambda one: one[1]) if kind != LOADER][:MOST]
    return LINES % ", ".join([*objects, _data([name for name, kind in kinds if kind == LOADER])])


def _data(loaders: list[str]) -> str:
    """Return the name of the loader that feeds the training, "DATA" if there is none."""
    training = [name for name in loaders if not any(word in name.lower() for word in OTHERS)]
    return next((name for name in training if "train" in name.lower()), (training or ["DATA"])[0])


def lines_of_values(names: Sequence[str], taken: Collection[str], loaders: list[str]) -> str:
    """Return the two lines for a state that new values replace, and what else is to be written.

    `names`: of the state; none: they are not known; `taken`: names that mean something else.
    """
    holder = next((one for one in HOLDERS if one not in taken and one not in names), HOLDERS[0])
    words = names[:MOST] or UNKNOWN
    held = ", ".join('"%s": %s' % (name.lower(), name) for name in words)
    lines = LINES % ("%s, %s" % (holder, _data(loaders)))
    return lines + BEFORE % (holder, held, holder, words[0].lower(), words[0])


def lines_for(frame: Optional[FrameType]) -> str:
    """Return the lines for the loop that runs in the stack of `frame`, "" if no optimizer is found in it."""
    found = ""
    while frame is not None:
        if not libraries.is_librarys(frame.f_code.co_filename):
            found = lines_of(variables(frame, kind_of)) or found  # the outermost has the loop over epochs
        frame = frame.f_back
    return found


def variables(frame: FrameType, look: Callable[[Any], Found]) -> list[tuple[str, Found]]:
    """Return the names of a frame's variables with what `look` says of their values, which are not kept."""
    # Up to Python 3.12 a function's variables are copied into a dictionary that its frame keeps and locals() returns.
    is_copied = frame.f_code.co_flags & CO_OPTIMIZED and sys.version_info < (3, 13)
    if is_copied and (frame.f_trace is not None or not READERS.isdisjoint(frame.f_code.co_names)):
        return []
    values = frame.f_locals
    found = [(name, look(value)) for name, value in list(values.items())]
    if is_copied:
        values.clear()  # else the frame would keep a batch and the graph of its loss as long as it runs
    return found


class LoopNames:
    """Looks for the lines while a loop of the script's own begins to train."""

    def __init__(self, beats: Beats) -> None:
        self._beats = beats
        self._left = LOOKS

    def look(self, frame: Optional[FrameType]) -> Optional[str]:
        """Return the lines for the loop in this stack, "" if there are none, None if that is to be asked again.

        `frame`: the innermost of the thread that trains.
        """
        slots = self._beats.slots
        if slots[_FITS] or slots[_HOOKS] & SAVED:
            return ""
        if slots[_BEATS] < BEGUN:
            return None
        self._left -= 1
        return lines_for(frame) or (None if self._left else "")
