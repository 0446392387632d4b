"""MLX of Apple: each update of an optimizer is a batch, also one that is part of a compiled step.

A loop of MLX has no function around its step, and each mx.eval can stand for a step, a slice of one, or validation.
What every loop calls is the optimizer.  Below mx.compile that runs only while the step is traced: so the call of a
compiled function counts, if an optimizer ran in its trace.  MLX traces anew for other constants among the arguments
(`do_update` of a step that accumulates gradients), so that is kept by them.  mx.eval counts no batch: it is progress.

The trainer of mlx-lm counts iterations, of which an update can take several; so does its loop here.

What mx.value_and_grad returns as the value is the loss, or a multiple of it: it shows whether the loss is finite.  It
is read when the script has evaluated that array, or has read it: that waits for nothing.  It is never kept alive: an
array holds the graph that it was computed from.
"""

from __future__ import annotations

import math
import sys
import time
from _thread import get_ident
from _weakref import ref

from .. import caches, patches, wire
from ..beats import INPUT, MLX, STEP, VALIDATION
from ..caches import CACHES, COMMAND
from ..hooks import SaveHooks, around, own_classes
from ..libraries import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ..context import Context, Targets
    from ..patches import Function

SAVES = {"mlx.core": ("", "save save_safetensors save_gguf savez savez_compressed", "load")}
LOSS_EVERY = 0.05  # seconds between two reads of a loss that is evaluated; one takes 0.2 microseconds
MANY = 64  # constants of one compiled function that are kept
_CONSTANTS = (bool, int, float, str, type(None))
_BEATS = wire.SLOT["beats"]
_OWN = ("mlx", "mlx_lm")  # packages whose compiled functions are no steps
_largest = [1]  # processes of the largest group of mx.distributed that the script has joined


def targets(context: Context) -> Targets:
    """Return the modules that define the optimizer, what evaluates and compiles, and the trainer of mlx-lm."""
    hooks = MlxHooks(context)
    return {
        "mlx.core": hooks.patch_core,
        "mlx.optimizers": hooks.patch_optimizers,  # one file before 0.26
        "mlx.optimizers.optimizers": hooks.patch_optimizers,
        "mlx.nn.layers.base": hooks.patch_modules,
        "mlx_lm.tuner.trainer": hooks.patch_trainer,
    }


class CompiledStep:
    """What is known of one function of mx.compile."""

    __slots__ = ("place", "trained", "updates")

    def __init__(self) -> None:
        self.trained: Optional[bool] = None  # whether an optimizer ran in the trace of this call; None: there was none
        self.updates: dict[tuple[Any, ...], bool] = {}  # the same of each trace, by the constants among its arguments
        self.place: Optional[tuple[int, ...]] = None  # where the loss is in what it returns

    def has_updated(self, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """Return whether the call that ended had an optimizer in it."""
        either = self.updates.values()
        if self.trained is None and True not in either:
            return False
        if self.trained is None and False not in either:
            return True
        constants = tuple(one if type(one) in _CONSTANTS else None for one in (*args, *named.values()))
        if self.trained is not None:
            if len(self.updates) >= MANY:
                self.updates.clear()
            self.updates[constants] = self.trained
        return self.updates.get(constants, True)


class MlxHooks:
    """The wrappers of a loop of MLX."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats
        self._step: Optional[CompiledStep] = None  # whose call is open
        self._thread = 0  # in which thread
        self._updating = 0  # the thread inside an optimizer: one can consist of several
        self.iterates = False  # the trainer of mlx-lm runs, and its iterations count
        self._array: Any = None  # the class of arrays
        self._item: Any = None  # its method, unwrapped
        self._loss: Any = None  # a weak reference to the newest loss
        self._loss_batch = 0  # its number
        self._loss_due = 0.0  # when one is read next

    # --- steps --------------------------------------------------------------------------------------------------

    def patch_optimizers(self, module: Any) -> None:
        """Wrap what applies gradients: `update` calls it, too."""
        for kind in own_classes(module, "apply_gradients"):
            if self.context.wrap(kind, "apply_gradients", self.apply_gradients):
                self.context.hook_installed("optimizer")

    def apply_gradients(self, original: Function) -> Function:
        """Return the wrapper for Optimizer.apply_gradients."""

        @patches.removes_its_own
        def apply_gradients(optimizer: Any, *args: Any, **named: Any) -> Any:
            me, before = get_ident(), self._updating
            self._updating = me
            try:
                result = original(optimizer, *args, **named)
            except BaseException as error:
                patches.remove(error)
                raise
            finally:
                self._updating = before
            if before == me:
                return result
            if self._step is not None and self._thread == me:
                self._step.trained = True
            else:
                self.stepped()
            return result

        return apply_gradients

    def stepped(self) -> None:
        """Count a batch."""
        try:
            beats = self.beats
            if beats.attention and beats.slots[COMMAND] == CACHES:
                caches.give_back(self.context)
            if self.iterates:
                beats.moved()
            else:
                beats.step_ends(MLX, STEP)
        except Exception as error:
            self.context.surprise("mlx step", error)

    def patch_core(self, module: Any) -> None:
        """Wrap what compiles, evaluates and differentiates."""
        context, self._array, self._item = self.context, module.array, module.array.item
        import dis  # noqa: F401 - what a line of the script calls is decoded by it, and MLX does not import it

        context.wrap(module, "compile", self.compile)
        context.wrap(module, "eval", self.evaluate)
        context.wrap(module.array, "item", self.item)
        context.wrap(module, "value_and_grad", self.value_and_grad)
        context.wrap(module.distributed, "init", around(context, lambda *_, **__: 0, _joined, int))

    def compile(self, original: Function) -> Function:
        """Return the wrapper for mx.compile; functions of MLX's own, as activations, stay as they are."""

        def compile_(fun: Any, *args: Any, **named: Any) -> Any:
            owner = str(getattr(fun, "__module__", "")).partition(".")[0]
            if not callable(fun) or owner in _OWN:
                return original(fun, *args, **named)
            step = CompiledStep()
            traced = patches.standing_for(fun, lambda run: self._traced(step, run))
            compiled = original(traced, *args, **named)
            return patches.standing_for(compiled, lambda run: self._called(step, run))

        return compile_

    def _traced(self, step: CompiledStep, run: Function) -> Function:
        """Return what runs while MLX traces a function."""

        def traced(*args: Any, **named: Any) -> Any:
            step.trained = step.trained or False
            result = run(*args, **named)
            try:
                loss = self._loss() if self._loss is not None else None
                if loss is not None:
                    step.place = _place_of(loss, result)
            except Exception as error:
                self.context.surprise("mlx loss", error)
            return result

        return traced

    def _called(self, step: CompiledStep, run: Function) -> Function:
        """Return what the script calls in place of a compiled function."""

        def called(*args: Any, **named: Any) -> Any:
            me = get_ident()
            outer = self._step if self._thread == me else None
            if outer is not None:  # a part of another one, which MLX can put in without a call of the optimizer
                result = run(*args, **named)
                outer.trained = outer.trained or True in step.updates.values() or None
                return result
            self._step, self._thread, step.trained = step, me, None
            try:
                result = run(*args, **named)
            finally:
                self._step = None
            try:
                has_updated = step.has_updated(args, named)
                if step.place is not None:
                    self.keep_loss(_at(step.place, result))
            except Exception as error:
                self.context.surprise("mlx compiled step", error)
                return result
            if has_updated:
                self.stepped()
            return result

        return called

    # --- what is evaluated ----------------------------------------------------------------------------------------

    def evaluate(self, original: Function) -> Function:
        """Return the wrapper for mx.eval: the device has followed until here."""

        @patches.removes_its_own
        def evaluate(*args: Any) -> None:
            try:
                original(*args)
            except BaseException as error:
                patches.remove(error)
                raise
            try:
                if self.beats._phase == VALIDATION:
                    self.context.add("checks")
                self.beats.moved()
                if self._loss is not None and time.monotonic() >= self._loss_due:
                    array = self._loss()
                    for one in args if array is not None else ():  # an argument can be None, too
                        if one is array:
                            self.take_loss(one, self._item(one))
            except Exception as error:
                self.context.surprise("mlx eval", error)

        return evaluate

    def item(self, original: Function) -> Function:
        """Return the wrapper for array.item."""

        @patches.removes_its_own
        def item(array: Any) -> Any:
            try:
                value = original(array)
            except BaseException as error:
                patches.remove(error)
                raise
            try:
                if self.beats._phase == VALIDATION:
                    self.context.add("checks")
                    self.beats.moved()
                if self._loss is not None and self._loss() is array and time.monotonic() >= self._loss_due:
                    self.take_loss(array, value)
            except Exception as error:
                self.context.surprise("mlx loss", error)
            return value

        return item

    def value_and_grad(self, original: Function) -> Function:
        """Return the wrapper for mx.value_and_grad."""

        def value_and_grad(*args: Any, **named: Any) -> Any:
            return patches.standing_for(original(*args, **named), self._graded)

        return value_and_grad

    def _graded(self, run: Function) -> Function:
        """Return what the script calls to compute a loss with its gradients."""

        @patches.removes_its_own
        def graded(*args: Any, **named: Any) -> Any:
            try:
                result = run(*args, **named)
            except BaseException as error:
                patches.remove(error)
                raise
            try:
                value = result[0]
                self.keep_loss(value[0] if isinstance(value, (list, tuple)) and value else value)
            except Exception as error:
                self.context.surprise("mlx loss", error)
            return result

        return graded

    def keep_loss(self, value: Any) -> None:
        """Note the newest loss, if it is one number."""
        self._loss = ref(value) if type(value) is self._array and value.ndim == 0 else None
        self._loss_batch = self.beats.slots[_BEATS] + 1

    def take_loss(self, array: Any, value: Any) -> None:
        """Take a loss that is evaluated.  One of 16 bits can overflow because it was scaled for its gradients."""
        if type(value) is float and (abs(value) != math.inf or not str(array.dtype).endswith(".float16")):
            self.context.losses.of_gradient(value, self._loss_batch - self.beats.slots[_BEATS])
        self._loss_due = time.monotonic() + (0.0 if self.context.losses.broken else LOSS_EVERY)

    # --- validation -----------------------------------------------------------------------------------------------

    def patch_modules(self, module: Any) -> None:
        """Wrap what sets the mode of a model."""
        self.context.wrap(module.Module, "train", self.train_mode)

    def train_mode(self, original: Function) -> Function:
        """Return the wrapper for Module.train, which `eval` calls: between two steps it begins and ends validation."""

        def train(model: Any, mode: bool = True) -> Any:
            result = original(model, mode)
            try:
                beats = self.beats
                if beats.is_training_thread() and beats.claimed and (beats._phase == VALIDATION) is bool(mode):
                    beats.enter(STEP if mode else VALIDATION)
            except Exception as error:
                self.context.surprise("mlx validation", error)
            return result

        return train

    # --- mlx-lm ---------------------------------------------------------------------------------------------------

    def patch_trainer(self, module: Any) -> None:
        """Wrap the trainer of mlx-lm and its validation."""
        self.context.wrap(module, "train", self.train)
        begins = around(self.context, lambda *_, **__: self.beats.enter(VALIDATION), self.leaves, self.beats.leave)
        self.context.wrap(module, "evaluate", begins)

    def leaves(self, before: int, result: Any) -> None:
        """End a validation."""
        self.beats.leave(before)

    def train(self, original: Function) -> Function:
        """Return the wrapper for mlx_lm.tuner.trainer.train: it gives it our iterator and our reports."""
        from inspect import signature  # MLX-LM has imported it

        known = signature(original)

        def train(*args: Any, **named: Any) -> Any:
            iterations = None
            try:
                bound = known.bind(*args, **named)
                bound.apply_defaults()
                iterations = Iterations(self, bound.arguments)
                args, named = bound.args, bound.kwargs
            except (TypeError, KeyError, AttributeError):
                pass  # a version with other arguments, of which updates are counted, or a call that it refuses
            try:
                result = original(*args, **named)
            finally:
                is_counted, self.iterates = self.iterates, False
            if iterations is not None and is_counted:
                iterations.end()
            return result

        return train


class Iterations:
    """One call of mlx-lm's trainer: what fetches its batches and gets its reports.

    An iteration ends when the next one asks for its batch, or when the trainer returns; with the last one of
    `grad_accumulation_steps` a batch does.  Its total and its losses are those that the trainer itself has.
    """

    def __init__(self, hooks: MlxHooks, arguments: dict[str, Any]) -> None:
        """`arguments`: those of the call, with defaults; two of them are replaced."""
        settings = arguments["args"]
        self._hooks, self._slices = hooks, int(getattr(settings, "grad_accumulation_steps", 1))
        self._total = int(settings.iters) // self._slices
        self._batches, self._callback = arguments["iterate_batches"], arguments["training_callback"]
        self._source: Any = None
        self._ended = 0  # iterations
        self._tokens = 0  # that earlier attempts trained
        arguments["iterate_batches"], arguments["training_callback"] = self._iterate, self

    def _iterate(self, *args: Any, **named: Any) -> Any:
        source = self._batches(*args, **named)
        if not named.get("loop"):
            return source  # of a validation
        self._source = iter(source)
        return self

    def __iter__(self) -> Iterations:
        return self

    def __next__(self) -> Any:
        beats, before = self._hooks.beats, -1
        try:
            self.begins()
            before = beats.enter(INPUT)
        except Exception as error:
            self._hooks.context.surprise("mlx-lm", error)
        batch = next(self._source)
        if before >= 0:
            beats.input_ends(STEP)
        return batch

    def goes_on(self, ended: int, tokens: int) -> None:
        """Note what earlier attempts trained, before the first batch is fetched."""
        self._ended, self._tokens = ended, tokens

    def begins(self) -> None:
        """End the iteration before, or begin the first."""
        if self._hooks.iterates:
            self.count()
            return
        self._hooks.iterates = True
        self._hooks.beats.epoch_begins(0, 1, self._total)
        if self._ended:
            self._hooks.beats.epoch_goes_on(self._ended // self._slices)

    def end(self) -> None:
        """End the last one."""
        try:
            self.count()
            self._hooks.beats.fit_ends()
        except Exception as error:
            self._hooks.context.surprise("mlx-lm", error)

    def count(self) -> None:
        """Count an iteration."""
        self._ended += 1
        if self._slices > 1:
            self._hooks.context.add("micro")
        if self._ended % self._slices:
            self._hooks.beats.moved()
        else:
            self._hooks.beats.beat(MLX)

    def on_train_loss_report(self, report: dict[str, Any]) -> None:
        """Take the loss of a report, and pass it on."""
        try:
            self._hooks.context.losses.of_batch(report.get("train_loss"))
            if self._tokens and "trained_tokens" in report:
                report["trained_tokens"] += self._tokens
        except Exception as error:
            self._hooks.context.surprise("mlx-lm's report", error)
        if self._callback is not None:
            self._callback.on_train_loss_report(report)

    def on_val_loss_report(self, report: dict[str, Any]) -> None:
        """Pass a report on."""
        if self._callback is not None:
            self._callback.on_val_loss_report(report)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._callback, name)


def _place_of(loss: Any, result: Any, deeper: int = 2) -> Optional[tuple[int, ...]]:
    """Return the indices under which an array is in what a function returns, None if it is not there."""
    if result is loss:
        return ()
    for index, one in enumerate(result if deeper and isinstance(result, (list, tuple)) else ()):
        place = _place_of(loss, one, deeper - 1)
        if place is not None:
            return (index, *place)
    return None


def _at(place: tuple[int, ...], result: Any) -> Any:
    for index in place:
        result = result[index]
    return result


def _joined(_: Any, group: Any) -> None:
    _largest[0] = max(_largest[0], group.size())


def _random_key() -> Any:
    """Return the state of the global generator as two numbers of 32 bits, None if mlx.core is not imported."""
    core = sys.modules.get("mlx.core")
    if core is None:
        return None
    key = core.random.state[0]
    return tuple(int(one) for one in key.tolist())


def _set_random_key(state: Any) -> None:
    """Set the state that `_random_key` returned."""
    high, low = state
    sys.modules["mlx.core"].random.seed((high << 32) | low)


def _cache() -> Optional[tuple[int, int]]:
    core: Any = sys.modules.get("mlx.core")
    if not hasattr(core, "get_cache_memory"):  # before 0.22 elsewhere
        return None
    used = core.get_active_memory()
    return core.get_cache_memory() + used, used


def _empty() -> None:
    sys.modules["mlx.core"].clear_cache()


LIBRARY = Library(
    "mlx",
    trains=True,
    companions=("mlx_lm", "mlx_vlm", "mlx_embeddings", "mlx_whisper"),
    hooks=(targets, lambda context: SaveHooks(context, SAVES).targets()),
    patches={
        "always": {"mlx_lm.tuner.trainer": ("checkpoint.mlx_lm", "patch")},
        "slices": {
            "mlx.core": ("microbatch.slices_mlx_lm", "patch_core"),
            "mlx_lm.tuner.trainer": ("microbatch.slices_mlx_lm", "patch"),
            "mlx.optimizers": ("microbatch.loop_mlx", "patch_optimizers"),  # one file before 0.26
            "mlx.optimizers.optimizers": ("microbatch.loop_mlx", "patch_optimizers"),
        },
    },
    array_waits=("eval", "item", "synchronize", "tolist", "__array__"),
    has_peers=lambda: _largest[0] > 1,
    distributions=("mlx", "mlx-lm"),
    generators={"mlx": (_random_key, _set_random_key)},
    caches={"MLX": (_cache, _empty)},
)
