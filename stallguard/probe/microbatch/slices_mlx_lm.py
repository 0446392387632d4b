"""Slices in mlx-lm's trainer: its compiled `step`, which trains a batch, runs for each slice, and once more to update.

`step(batch, gradients, do_update)` adds the gradients that it gets to those of its batch; what it calls the loss is the
argument of `train`, which is `(mean over tokens, tokens)`.  That function is replaced by one that, while slices run,

- multiplies the mean of a slice by its tokens: the gradients of the slices add up, and their sum divided by the tokens
  of the batch is the gradient of the batch;
- at the end returns the sum of parameter times gradient, whose gradient is exactly the one that is given.  So the same
  `step` adds what accumulates, divides it, averages it and updates, as for any batch.

Each slice is evaluated before the next begins: in one graph MLX would keep what all of them need.  A slice without
tokens has a mean that is no number, and is left out.

Not every loss of a script's own is a mean over the tokens that it returns.  So before the first step in slices two rows
of the batch are compared, together and one by one, without dropout, outside of mx.compile: it would keep that trace.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .. import libraries
from ..checkpoint import random_state
from ..checkpoint.mlx_lm import STEP, frozen, statistics
from ..patches import standing_for
from . import announcements, loop_mlx, loop_parts, slice_plan
from .compare import FLOAT, HALF, MOST, SUMMED, described
from .shares import FLOOR

if TYPE_CHECKING:
    from ..patches import Function
    from .compare import Slices

SCALE = 2.0**-10  # of the weights of slices, exact in binary: sums of 16 bits stay in their range
DEEP = 0.05  # relative, of gradients in 16 bits: 0.015 was seen with two layers of bfloat16
NO_MEAN = "its loss is no mean over the tokens that it returns"
ALIKE = "two of its rows have equally many tokens, so that they do not show what its loss is a mean of"
NOT_FINITE = "the loss of two of its rows is not a number, so that nothing can be compared"
_calls: list[SlicedCall] = []  # of `train` that run, the innermost last


def patch_core(slices: Slices, module: Any) -> None:
    """Wrap what loops of MLX compute gradients with, and what compiles; `module`: mlx.core."""
    loop_mlx.patch_core(slices, module)
    slices.context.wrap(module, "compile", _compiling)


def patch(slices: Slices, module: Any) -> None:
    """Have `train` train its batches in slices; `module`: mlx_lm.tuner.trainer."""
    from inspect import signature

    def training(original: Function) -> Function:
        known = signature(original)

        def train(*args: Any, **named: Any) -> Any:
            try:
                bound = known.bind(*args, **named)
                bound.apply_defaults()
                call = SlicedCall(slices, bound.arguments)
                args, named = bound.args, bound.kwargs
            except (TypeError, KeyError):  # another version, or a call that it refuses
                return original(*args, **named)
            _calls.append(call)
            try:
                return original(*args, **named)
            finally:
                _calls.pop()

        return train

    slices.context.wrap(module, "train", training)


def _compiling(original: Function) -> Function:
    def compile_(fun: Any, *args: Any, **named: Any) -> Any:
        run = original(fun, *args, **named)
        is_step = _calls and getattr(fun, "__qualname__", "") == STEP and fun.__module__.startswith("mlx_lm.")
        return standing_for(run, _calls[-1].step) if is_step else run

    return compile_


class SlicedCall:
    """One call of `train`."""

    def __init__(self, slices: Slices, words: dict[str, Any]) -> None:
        """`words`: its arguments by name; the loss is replaced."""
        self._context, self._announcer = slices.context, slices.announcer
        self._model, self._loss = words["model"], words["loss"]
        self._role = ""  # of the loss: "" as it is, "slice", "update"
        self._is_compared = self._is_whole = False
        words["loss"] = standing_for(self._loss, self._weighed)

    def _weighed(self, original: Function) -> Function:
        def loss(model: Any, *batch: Any) -> Any:
            if self._role == "update":
                flatten = sys.modules["mlx.utils"].tree_flatten
                own = dict(flatten(model.trainable_parameters()))
                return sum((own[name] * given).sum() for name, given in flatten(batch[0])), batch[1]
            found = original(model, *batch)
            if self._role != "slice":
                return found
            mean, tokens = found
            return mean * (sys.modules["mlx.core"].stop_gradient(tokens) * SCALE), tokens

        return loss

    def step(self, run: Function) -> Function:
        """Return what the trainer calls in place of its compiled step."""

        def step(batch: Any, gradients: Any, do_update: Any) -> Any:
            rows, why = (0, "") if self._is_whole else self._rows(batch)
            if rows and not self._is_compared:
                self._is_compared, why = True, self._compared(batch, rows)
            if why:
                self._is_whole = True
                announcements.stay_whole(self._context, why)
                self._context.flush()  # before the record of the step, which would show a loop that no slices reach
            if self._is_whole:
                return run(batch, gradients, do_update)
            first, size, others = slice_plan.plan(rows, self._context.slices)
            return self._trained(run, batch, [first] + [size] * others, gradients, do_update)

        return step

    def _rows(self, batch: Any) -> tuple[int, str]:
        """Return the rows of a batch, and why it cannot be divided, "" if it can."""
        if libraries.have_peers():
            return 0, announcements.OTHER_PROCESSES
        array: Any = sys.modules["mlx.core"].array
        parts = batch if isinstance(batch, (list, tuple)) else [batch]
        other = next((type(one).__name__ for one in parts if not isinstance(one, array) or not one.ndim), "")
        counts = {one.shape[0] for one in parts} if not other else set()
        if other or len(counts) != 1:
            return 0, announcements.NO_ROWS % other if other else announcements.OTHER_ROWS
        rows = counts.pop()
        return (rows, "") if rows > 1 else (0, announcements.ONE_ROW)

    def _trained(self, run: Function, batch: Any, sizes: list[int], gradients: Any, do_update: Any) -> Any:
        """Train a batch in slices, and return what the trainer's step does."""
        core, tree_map = sys.modules["mlx.core"], sys.modules["mlx.utils"].tree_map
        self._announcer.cut()
        begin, loss = 0, 0.0
        every: Any = 0
        summed: Any = None
        try:
            self._role = "slice"
            for size in sizes:
                value, tokens, found = run(loop_parts.taken(batch, begin, size), None, False)
                begin += size
                core.eval(value, tokens, found)
                if not tokens.item():
                    continue
                loss, every = loss + value, every + tokens
                summed = found if summed is None else tree_map(lambda one, other: one + other, summed, found)
                del found
                core.eval(summed)
            if summed is None:  # a batch without tokens: what its step makes of that
                self._role = ""
                return run(batch, gradients, do_update)
            whole = 1.0 / (every.item() * SCALE)
            summed = tree_map(lambda one: (one * whole).astype(one.dtype), summed)
            self._role = "update"
            _, _, rest = run((summed, core.array(0)), gradients, do_update)
        finally:
            self._role = ""
        return loss * whole, every, rest

    # --- the comparison -------------------------------------------------------------------------------------------

    def _compared(self, batch: Any, rows: int) -> str:
        """Compare two rows, put all back, and say that slices are used; return why they are not, "" if they are."""
        if statistics(self._model):
            return announcements.NORMALISES
        core = sys.modules["mlx.core"]
        parts = [(one, one._training) for one in self._model.modules()]
        generators, parameters = random_state.capture(), self._model.parameters()
        pair = [one[core.array([0, rows - 1])] for one in batch]
        shorter = _shortened(pair)
        try:
            with self._context.own_work(), self._context.phase("first run"):
                before = frozen(self._model)
                self._outcome([one[:1] for one in pair])
                draws = not random_state.same(generators, random_state.capture(), "mlx")
                if frozen(self._model) != before:
                    return announcements.VALUES_CHANGE
                for one, _ in parts:
                    one._training = False  # not by eval(), which would begin a validation
                why = self._difference(pair if shorter is None else shorter)
                if why and shorter is not None:
                    why = self._difference(pair)
        except Exception as error:
            return "its step fails with two of its rows (%s)" % described(error)
        finally:
            for one, was in parts:
                one._training = was
            self._model.update(parameters)
            random_state.restore(generators)
        if why:
            return why
        said = announcements.SLICED.format(slices=self._context.slices, rows=2)
        said += announcements.LOOP_DRAWS if draws else ""
        said += announcements.ROUNDED if self._is_half() else ""
        self._context.note("micro", said, factor=self._context.slices)
        return ""

    def _outcome(self, data: list[Any]) -> tuple[float, float, list[Any]]:
        """Return the loss of some rows, their tokens, and the gradients."""
        (value, tokens), found = sys.modules["mlx.nn"].value_and_grad(self._model, self._loss)(self._model, *data)
        sys.modules["mlx.core"].eval([value, tokens, found])
        return value.item(), float(tokens.item()), [one for _, one in sys.modules["mlx.utils"].tree_flatten(found)]

    def _difference(self, pair: list[Any]) -> str:
        """Return why two rows together are not what they are one by one, weighted by their tokens; "" if they are."""
        whole, *ones = (self._outcome([one[begin:end] for one in pair]) for begin, end in ((0, 2), (0, 1), (1, 2)))
        if not all(abs(value) < float("inf") for value, _, _ in (whole, *ones)):
            return NOT_FINITE
        if ones[0][1] == ones[1][1]:
            return ALIKE
        weights = [tokens / whole[1] for _, tokens, _ in ones]
        is_cpu = sys.modules["mlx.core"].default_device().type.name == "cpu"
        limit = DEEP if self._is_half() else FLOAT * SUMMED if is_cpu else MOST
        apart = abs(whole[0] - sum(weight * value for weight, (value, _, _) in zip(weights, ones)))
        is_all = sum(tokens for _, tokens, _ in ones) == whole[1]
        if not is_all or not apart <= min(HALF, limit) * max(1e-7, *(abs(value) for value, _, _ in (whole, *ones))):
            return NO_MEAN
        lengths = [_length(one) for one in whole[2]]
        floor = FLOOR * sum(one**2 for one in lengths) ** 0.5
        for length, every, *parts in zip(lengths, whole[2], ones[0][2], ones[1][2]):
            rest = every - sum(weight * one for weight, one in zip(weights, parts))
            if not _length(rest) <= limit * length + floor:
                return NO_MEAN
        return ""

    def _is_half(self) -> bool:
        core, found = sys.modules["mlx.core"], sys.modules["mlx.utils"].tree_flatten(self._model.parameters())
        return any(one.dtype.size == 2 and core.issubdtype(one.dtype, core.floating) for _, one in found)  # noqa: PLR2004


def _length(array: Any) -> float:
    """Return the Euclidean length of a gradient."""
    value: float = array.astype(sys.modules["mlx.core"].float32).square().sum().sqrt().item()
    return value


def _shortened(pair: list[Any]) -> list[Any] | None:
    """Return mlx-lm's own two rows with half the tokens in the last one, None of other batches.

    Their second array has for each row the first and the last position of its tokens.
    """
    if len(pair) != 2 or pair[1].shape != (2, 2):  # noqa: PLR2004
        return None
    begin, end = pair[1][1].tolist()
    half = begin + max(1, (end - begin) // 2)
    return [pair[0], sys.modules["mlx.core"].array([pair[1][0].tolist(), [begin, half]])]
