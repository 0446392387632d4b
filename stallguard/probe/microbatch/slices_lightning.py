"""Slices in Lightning: in automatic optimization, the closure that computes the gradients of a batch does so by slices.

Lightning's loops call it once for each batch, as before, so its numbers of batches and steps, its schedules and its
checkpoints are those of whole batches.  What `training_step` logs by `self.log` comes from each slice: the mean over an
epoch is weighted by rows, as Lightning does for batches of different sizes, and that of a step is weighted here.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from . import announcements
from .deferred_update import shadowed
from .shares import Shares, StaysWhole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..patches import Function
    from .compare import Slices

ELSEWHERE = "the strategy %s computes their gradients"
BY_ITSELF = "its training_step optimizes by itself (automatic_optimization = False)"
ITERATOR = "its training_step draws its batches itself"
OUTPUTS = "its training_step returns more than a loss"
EACH = "its %s would run for each slice"
OWN = ("lightning", "pytorch_lightning")  # packages
HOOKS = ("on_before_backward", "on_after_backward")


def obstacle(trainer: Any, model: Any, arguments: Any) -> str:
    """Return why the batches of a Trainer cannot be divided, "" if they can.  `arguments`: of training_step."""
    strategy = trainer.strategy
    if trainer.world_size > 1:
        return announcements.SEVERAL
    if strategy.handles_gradient_accumulation:
        return ELSEWHERE % type(strategy).__name__
    if getattr(model, "_compiler_ctx", None) is not None:
        return announcements.COMPILED
    if any(getattr(one, "_post_accumulate_grad_hooks", None) for one in model.parameters()):
        return announcements.AT_ONCE
    hook = own_hook(trainer, model, HOOKS)
    return EACH % hook if hook else "" if "batch" in arguments else ITERATOR


def own_hook(trainer: Any, model: Any, names: tuple[str, ...]) -> str:
    """Return the first of these hooks that the model or a callback defines, "" if there is none."""
    for owner in (model, *trainer.callbacks):
        found = [(name, getattr(getattr(type(owner), name, None), "__module__", OWN[0])) for name in names]
        own = [name for name, module in found if module.partition(".")[0] not in OWN]
        if own:
            return own[0]
    return ""


class LightningSlices:
    """The wrappers of Lightning's loops."""

    def __init__(self, slices: Slices) -> None:
        self.context = slices.context
        self.shares = Shares(slices)

    def make_closure(self, original: Function) -> Function:
        """Return the wrapper for _AutomaticOptimization._make_closure."""

        def make_closure(loop: Any, arguments: Any, *more: Any, **named: Any) -> Any:
            closure = original(loop, arguments, *more, **named)
            if self.context.slices > 1 and closure._backward_fn is not None:
                whole = closure.closure
                closure.closure = lambda *_, **__: self.in_slices(loop, arguments, closure, whole)
            return closure

        return make_closure

    def in_slices(self, loop: Any, arguments: Any, closure: Any, whole: Any) -> Any:
        """Do what a closure does, by slices; by `whole` if its batch stays whole."""
        with sys.modules["torch"].enable_grad():
            parts = self._divided(loop, arguments, closure)
            if not parts:
                return whole()
            self.shares.announcer.cut()
            total: Any = None
            with self._logged(loop.trainer, sum(part.rows for part in parts)) as logged:
                for part in parts:
                    with logged(part):
                        found = loop._training_step({**arguments, "batch": part.data})
                    if part is parts[0] and closure._zero_grad_fn is not None:
                        closure._zero_grad_fn()
                    loss = found.closure_loss * part.share
                    closure._backward_fn(loss)
                    total = loss.detach() if total is None else total + loss.detach()
            return type(found)(total)

    def _divided(self, loop: Any, arguments: Any, closure: Any) -> Any:
        trainer = loop.trainer
        model = trainer.lightning_module

        def step(part: Any) -> Any:
            return self.of_rows(loop, arguments, closure, part)

        try:
            why, half = obstacle(trainer, model, arguments), "16" in str(trainer.precision)
            data = arguments.get("batch")
            return self.shares.divide(trainer, model, data, step, obstacle=why, half=half)
        except StaysWhole:
            raise
        except Exception as error:
            self.context.surprise("dividing a batch of Lightning", error)
            return []

    def of_rows(self, loop: Any, arguments: Any, closure: Any, part: Any) -> Any:
        """Compute the gradients of rows that are only looked at, and return their loss."""
        with _unlogged(loop.trainer.lightning_module):
            found = loop._training_step({**arguments, "batch": part})
        if found.extra:
            raise TypeError(OUTPUTS)
        closure._backward_fn(found.closure_loss)
        return found.loss

    @contextmanager
    def _logged(self, trainer: Any, rows: int) -> Iterator[Any]:
        """Have what the slices log be that of their batch, of `rows` rows; yields the context of each slice."""
        results = trainer._results
        batch = results.batch
        sums: dict[str, Any] = {}

        @contextmanager
        def of_slice(part: Any) -> Iterator[None]:
            results.batch, results.batch_size = part.data, None
            yield
            for name, one in results.items():
                if one.is_tensor and one.meta.on_step and one.meta.is_mean_reduction and not one.has_reset:
                    sums[name] = sums.get(name, 0.0) + one._forward_cache * (part.rows / rows)

        yield of_slice
        results.batch, results.batch_size = batch, None
        for name, value in sums.items():
            results[name]._forward_cache = value
            if not results[name].meta.on_epoch:
                results[name].value = value

    def run_manual(self, original: Function) -> Function:
        """Return the wrapper for _ManualOptimization.run."""

        def run(loop: Any, *args: Any, **named: Any) -> Any:
            if self.context.slices > 1:
                self.shares.announcer.whole(loop.trainer.lightning_module, BY_ITSELF)
                self.context.flush()
            return original(loop, *args, **named)

        return run


@contextmanager
def _unlogged(model: Any) -> Iterator[None]:
    """Have a model log nothing, and keep the states of its metrics, during the body: rows are only compared."""
    metrics = [one for one in model.modules() if hasattr(one, "_copy_state_dict")]
    with ExitStack() as stack:
        stack.enter_context(shadowed(model, dict.fromkeys(("log", "log_dict"), lambda *_, **__: None)))
        for one in metrics:
            for name, value in one._copy_state_dict().items():
                stack.callback(setattr, one, name, value)
            stack.callback(vars(one).update, dict(vars(one)))
        yield


def patch(slices: Slices, module: Any) -> LightningSlices:
    """Have automatic optimization train in slices; `module`: loops.optimization.automatic."""
    made = LightningSlices(slices)
    slices.context.wrap(module._AutomaticOptimization, "_make_closure", made.make_closure)
    return made


def patch_manual(slices: Slices, module: Any) -> None:
    """Have manual optimization say that its batches stay whole; `module`: loops.optimization.manual."""
    slices.context.wrap(module._ManualOptimization, "run", LightningSlices(slices).run_manual)
