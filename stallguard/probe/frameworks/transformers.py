"""Hugging Face transformers: the loop of Trainer.  A batch is a step of its optimizer, of one or more micro-batches.

The progress is read by wrapping the class that calls the callbacks (transformers/trainer_callback.py, 4.40 to 5.24);
no callback is added, because a script sees those, and a checkpoint of Trainer names them.  Its checkpoints and what is
resumed from them: checkpoint/trainer.py.
"""

from __future__ import annotations

import math
import os

from .. import patches, wire
from ..beats import BETWEEN, EPOCH_END, IDLE, NAMED, PREDICTION, STEP, TORCH, VALIDATION, monotonic_ns
from ..hooks import SaveHooks, around, before
from ..libraries import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ..context import Context, Targets
    from ..patches import Function

SAVES = {
    "transformers.trainer": (
        "Trainer", "_save_checkpoint save_model",
        "_load_from_checkpoint _load_optimizer_and_scheduler _load_rng_state _load_best_model",
    )
}  # fmt: skip
LOSS_EVERY = 50_000_000  # ns between two reads of a loss on the CPU; one takes a microsecond
_SOURCE = wire.SLOT["source"]


class TrainerSaves(SaveHooks):
    """The wrappers of what saves and loads a training of Trainer."""

    def path_of(self, trainer: Any, *args: Any, **kwargs: Any) -> str:
        """Return where a checkpoint is; that of a training is named by its step."""
        given = super().path_of(*args, **kwargs)
        return given or os.path.join(trainer.args.output_dir, "checkpoint-%d" % trainer.state.global_step)


def targets(context: Context) -> Targets:
    """Return the modules that define Trainer and the caller of its callbacks."""
    hooks = TrainerHooks(context)
    return {"transformers.trainer": hooks.patch_trainer, "transformers.trainer_callback": hooks.patch_callbacks}


def steps_of_epoch(handler: Any, args: Any) -> int:
    """Return the steps of the optimizer in an epoch, -1 if the data have no length.  `handler`: CallbackHandler."""
    try:
        steps: int = math.ceil(len(handler.train_dataloader) / args.gradient_accumulation_steps)
    except Exception:  # an IterableDataset has no length, or the one that the script gives raises
        return -1
    return max(1, steps)


class StepLosses:
    """The losses of a step's micro-batches, or slices, if reading them waits for nothing: Trainer's loss is their sum.

    `wrapper`: of Trainer.training_step, which takes them; `due`: from when on, ns; `sum`, `count`: of this step's that
    were read; `are_read`: at least one ever was.
    """

    __slots__ = ("_context", "are_read", "count", "due", "sum", "wrapper")

    def __init__(self, context: Context) -> None:
        self._context = context
        self.wrapper: Optional[Function] = None
        self.due, self.are_read = 0, False
        self.forget()

    def forget(self) -> None:
        """Begin with another step, or the same one again."""
        self.sum, self.count = 0.0, 0

    def take(self, result: Any) -> None:
        """Add the loss of a micro-batch, or of a slice; rows that are only compared are none."""
        try:
            if not getattr(result, "is_cpu", False):
                self.due = monotonic_ns() + LOSS_EVERY
            elif not self._context.beats.own_work:
                self.are_read = True
                self.sum += float(result)
                self.count += 1
        except Exception as error:
            self._context.surprise("the loss of Trainer", error)


class TrainerHooks:
    """The wrappers of Trainer and of the class that calls its callbacks."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats
        self._checks = VALIDATION  # the phase of a batch that is not trained
        self._steps = -1  # of an epoch
        self._micro = 1  # micro-batches of a step
        self.losses = context.trainer_losses = StepLosses(context)

    def patch_trainer(self, module: Any) -> None:
        """Wrap the loops of Trainer."""
        context, kind = self.context, module.Trainer
        taken = [
            context.wrap(kind, name, around(context, opens, self.loop_closes, self.loop_closes))
            for name, opens in (
                ("train", self.train_opens), ("evaluate", self.evaluate_opens), ("predict", self.predict_opens),
            )
        ]  # fmt: skip
        context.wrap(kind, "training_step", self.training_step)
        if all(taken):
            context.hook_installed("fit")

    def patch_callbacks(self, module: Any) -> None:
        """Wrap the events of CallbackHandler."""
        context, kind = self.context, module.CallbackHandler
        actions: tuple[tuple[str, Any], ...] = (
            ("on_train_begin", self.train_begin),
            ("on_epoch_begin", self.epoch_begin),
            ("on_substep_end", self.substep_end),
            ("on_epoch_end", self.epoch_end),
            ("on_prediction_step", self.prediction_step),
            ("on_log", self.log),
        )
        taken = [context.wrap(kind, name, before(context, action)) for name, action in actions]
        taken += [
            context.wrap(kind, "on_step_begin", self.step_begin), context.wrap(kind, "on_step_end", self.step_end),
        ]  # fmt: skip
        if all(taken):
            context.hook_installed("callbacks")
        else:
            context.note("hooks", "some events of CallbackHandler are missing", module=module.__name__)

    # --- loops ------------------------------------------------------------------------------------------------

    def train_opens(self, trainer: Any, *_: Any, **__: Any) -> tuple[int, int]:
        """Begin a training."""
        self.context.batch_of(trainer.args.train_batch_size)
        phase = self.beats.fit_begins() if not self.beats.fitting else self.beats.enter(BETWEEN)
        if not self.beats.fitting:
            self.context.losses.fit_begins()
        return self._opens(), phase

    def evaluate_opens(self, *_: Any, **__: Any) -> tuple[int, int]:
        """Begin an evaluation, inside a training or alone."""
        self._checks = VALIDATION
        return self._opens(), self.beats.enter(VALIDATION)

    def predict_opens(self, *_: Any, **__: Any) -> tuple[int, int]:
        """Begin a prediction."""
        self._checks = PREDICTION
        return self._opens(), self.beats.enter(PREDICTION)

    def _opens(self) -> int:
        if not self.beats.fitting:
            self.context.patches.rest()
        self.beats.fitting += 1
        return self.beats.fitting

    def loop_closes(self, state: tuple[int, int], result: Any = None) -> None:
        """End a loop, by its end or by an exception, and return to the phase before it."""
        (depth, phase), beats = state, self.beats
        beats.fitting = depth - 1
        if not beats.fitting:
            beats.fit_ends()
            self.context.patches.resume()
        beats.leave(phase if beats.fitting or phase == NAMED else IDLE)

    # --- events of a training -----------------------------------------------------------------------------------

    def train_begin(self, handler: Any, args: Any, state: Any, control: Any) -> None:
        """Note how long the training is, before the script's callbacks begin."""
        self.context.set("total", max(0, state.max_steps))
        self._steps, self._micro = steps_of_epoch(handler, args), args.gradient_accumulation_steps
        self.beats.cold = True

    def epoch_begin(self, handler: Any, args: Any, state: Any, control: Any) -> None:
        """Begin an epoch; one that goes on after a resume has steps already."""
        steps, done = self._steps, state.global_step
        is_known = steps > 0
        self.beats.epoch_begins(
            done // steps if is_known else 0, math.ceil(state.num_train_epochs) if is_known else -1,
            min(steps, state.max_steps - done // steps * steps) if is_known else state.max_steps,
        )  # fmt: skip
        self.beats.slots[_SOURCE] = TORCH
        self.losses.forget()
        if done % steps if is_known else done:
            self.context.epoch_goes_on(done % steps if is_known else done)

    def substep_end(self, *_: Any) -> None:
        """End a micro-batch after which the gradients are summed further."""
        self.context.add("micro")
        self.beats.moved()

    def step_begin(self, original: Function) -> Function:
        """Return the wrapper for CallbackHandler.on_step_begin: Trainer has fetched the micro-batches of a step."""
        beats = self.beats

        @patches.removes_its_own
        def on_step_begin(*args: Any, **named: Any) -> Any:
            if beats.cold or beats._phase != STEP:  # looked at here: it is a step already, if a DataLoader feeds it
                try:
                    beats.step_begins()
                except Exception as error:
                    self.context.surprise("the beginning of a step of Trainer", error)
            try:
                return original(*args, **named)
            except BaseException as error:
                patches.remove(error)
                raise

        return on_step_begin

    def step_end(self, original: Function) -> Function:
        """Return the wrapper for CallbackHandler.on_step_end: a step of the optimizer, before its callbacks."""
        beats, losses = self.beats, self.losses

        @patches.removes_its_own
        def on_step_end(handler: Any, args: Any, state: Any, *rest: Any, **named: Any) -> Any:
            try:
                beats.step_ends(TORCH)
                if self._micro > 1:
                    self.context.add("micro")
                if losses.count:
                    if losses.count >= self._micro * self.context.get("slices"):
                        self.take_loss(losses.sum, state)
                    losses.forget()
            except Exception as error:
                self.context.surprise("the end of a step of Trainer", error)
            try:
                return original(handler, args, state, *rest, **named)
            except BaseException as error:
                patches.remove(error)
                raise

        return on_step_end

    def epoch_end(self, *_: Any) -> None:
        """Enter the end of the epoch, before its callbacks."""
        self.beats.enter(EPOCH_END)

    def prediction_step(self, *_: Any) -> None:
        """End a batch of an evaluation or a prediction."""
        self.beats.enter(self._checks)
        self.context.add("checks")

    # --- losses ---------------------------------------------------------------------------------------------------

    def training_step(self, original: Function) -> Function:
        """Return the wrapper for Trainer.training_step: a micro-batch, or a slice of one."""
        losses = self.losses

        @patches.removes_its_own
        def training_step(*args: Any, **named: Any) -> Any:
            try:
                result = original(*args, **named)
            except BaseException as error:
                losses.forget()  # a step that lacked memory can be trained again
                patches.remove(error)
                raise
            if losses.count or monotonic_ns() >= losses.due:
                losses.take(result)
            return result

        losses.wrapper = training_step
        return training_step

    def log(self, handler: Any, args: Any, state: Any, control: Any, logs: Optional[dict[str, Any]] = None) -> None:
        """Take the loss that Trainer logs, a mean over some steps: it has read it from the device.

        Of steps whose loss is no number it logs the loss of others (logging_nan_inf_filter), so on the CPU that of the
        steps themselves is taken alone.  Elsewhere gradients that are no numbers show it: the next loss is none.
        (Those of 16 bits overflow while their scale is looked for.)
        """
        logs = logs or {}
        value, norm = logs.get("loss"), logs.get("grad_norm")
        if type(norm) is float and math.isnan(norm) and not getattr(args, "fp16", False):
            value = norm
        if type(value) is float and not self.losses.are_read:
            self.take_loss(value, state)

    def take_loss(self, value: float, state: Any) -> None:
        """Take a loss as that of the step that ended last."""
        self.losses.due = self.beats.ended + (0 if value - value else LOSS_EVERY)
        batch = (state.global_step - 1) % self._steps if self._steps > 0 else state.global_step - 1
        self.context.losses.of_step(value, batch)


LIBRARY = Library(
    "transformers",
    companions=("peft", "trl"),
    hooks=(targets, lambda context: TrainerSaves(context, SAVES).targets()),
    patches={
        "always": {"transformers.trainer": ("checkpoint.trainer", "patch")},
        "slices": {"transformers.trainer": ("microbatch.retried_step", "slice_trainer")},
        "again": {"transformers.trainer": ("microbatch.retried_step", "patch_trainer")},
    },
    distributions=("transformers",),
)
