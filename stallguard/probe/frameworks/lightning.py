"""Lightning: the loops of its Trainer.  A batch is a step of the optimizer, of one or more micro-batches.

The progress is read by wrapping the function that calls the callbacks (trainer/call.py, 2.0 to 2.6); no callback is
added, because a script sees those, and a checkpoint of Lightning names them.  In manual optimization the script itself
steps, as often as it wants: there each batch of the loader is one.  What is saved and resumed: checkpoint/lightning.py.
"""

from __future__ import annotations

import math
import time

from .. import patches, wire
from ..beats import BETWEEN, EPOCH_END, IDLE, NAMED, PREDICTION, TORCH, VALIDATION
from ..hooks import SaveHooks, around
from ..libraries import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..context import Context, Targets
    from ..patches import Function

LOSS_EVERY = 0.05  # seconds between two reads of a loss on the CPU; one takes a microsecond
_SOURCE = wire.SLOT["source"]


class LightningHooks:
    """The wrappers of one Lightning.  `root`: the package in which its Trainer is."""

    def __init__(self, context: Context, root: str) -> None:
        self.context = context
        self.beats = context.beats
        self._root = root
        self._is_open = False  # an epoch has begun
        self._loss, self._losses = 0.0, 0  # sum over the micro-batches of this step that were read, and their number
        self._loss_due = 0.0
        self._events: dict[str, Callable[..., object]] = {
            "on_train_start": self.train_start, "on_train_epoch_start": self.epoch_start,
            "on_train_batch_start": self.batch_start, "on_train_batch_end": self.batch_end,
            "on_train_epoch_end": self.epoch_end, "on_validation_start": self.checks_start,
            "on_validation_batch_end": self.check_ends, "on_validation_end": self.checks_end,
            "on_test_start": self.checks_start, "on_test_batch_end": self.check_ends,
            "on_predict_start": self.predict_start, "on_predict_batch_end": self.prediction_ends,
        }  # fmt: skip

    def targets(self) -> Targets:
        """Return the modules that define Trainer and the caller of its callbacks."""
        return {self._root + ".trainer.trainer": self.patch_trainer, self._root + ".trainer.call": self.patch_call}

    def patch_trainer(self, module: Any) -> None:
        """Wrap the loops of Trainer."""
        context = self.context
        loops = (("fit", BETWEEN), ("validate", VALIDATION), ("test", VALIDATION), ("predict", PREDICTION))
        taken = [
            context.wrap(module.Trainer, name, around(context, self._opens(phase), self.loop_closes, self.loop_closes))
            for name, phase in loops
        ]
        if all(taken):
            context.hook_installed("fit")

    def patch_call(self, module: Any) -> None:
        """Wrap the function that calls an event of all callbacks."""
        if self.context.wrap(module, "_call_callback_hooks", self.events):
            self.context.hook_installed("callbacks")
        else:
            self.context.note("hooks", "the caller of Lightning's callbacks is missing", module=module.__name__)

    def _opens(self, phase: int) -> Callable[..., tuple[int, int]]:
        """Return the action that begins a loop of Trainer."""

        def opens(*_: Any, **__: Any) -> tuple[int, int]:
            beats = self.beats
            if not beats.fitting:
                self.context.patches.rest()
            if phase == BETWEEN and not beats.fitting:
                entered = beats.fit_begins()
                self.context.losses.fit_begins()
            else:
                entered = beats.enter(phase)
            beats.fitting += 1
            return beats.fitting, entered

        return opens

    def loop_closes(self, state: tuple[int, int], result: Any = None) -> None:
        """End a loop, by its end or by an exception, and return to the phase before it."""
        (depth, phase), beats = state, self.beats
        beats.fitting = depth - 1
        if not beats.fitting:
            beats.fit_ends()
            self.context.patches.resume()
        beats.leave(phase if beats.fitting or phase == NAMED else IDLE)

    def events(self, original: Function) -> Function:
        """Return the wrapper for what calls an event of all callbacks: several times a batch."""
        events, none = self._events, object()

        @patches.removes_its_own
        def call_callback_hooks(trainer: Any, hook_name: str, first: Any = none, *args: Any, **named: Any) -> Any:
            action = events.get(hook_name)
            if action is not None:
                try:
                    action(trainer, *(() if first is none else (first, *args)))
                except Exception as error:
                    self.context.surprise(hook_name, error)
            try:
                if args or named:
                    given = () if first is none else (first, *args)
                    return original(trainer, hook_name, *given, **named)
                # Most calls: one without packed arguments takes half the time.
                return original(trainer, hook_name) if first is none else original(trainer, hook_name, first)
            except BaseException as error:
                patches.remove(error)
                raise

        return call_callback_hooks

    # --- events of a training -----------------------------------------------------------------------------------

    def train_start(self, trainer: Any) -> None:
        """Note how long the training is, and how large its batches."""
        steps, epochs = steps_of_epoch(trainer), trainer.max_epochs
        by_epochs = steps * epochs if steps > 0 and epochs is not None and epochs > 0 else 0
        known = [one for one in (by_epochs, trainer.max_steps) if one > 0]
        self.context.set("total", min(known, default=0))
        self.context.batch_of(getattr(trainer.train_dataloader, "batch_size", None))
        self.beats.cold, self._is_open = True, False

    def epoch_start(self, trainer: Any, goes_on: bool = False) -> None:
        """Begin an epoch.  Lightning calls no event for one that goes on after a resume: its first batch begins it."""
        steps, epochs, done = steps_of_epoch(trainer), trainer.max_epochs, 0
        if goes_on:
            batches = trainer.fit_loop.epoch_loop.batch_progress.current.completed
            done = batches // max(1, trainer.accumulate_grad_batches)
        self.beats.epoch_begins(trainer.current_epoch, epochs if epochs is not None and epochs > 0 else -1, steps)
        self.beats.slots[_SOURCE] = TORCH
        self._loss, self._losses, self._is_open = 0.0, 0, True
        if done:
            self.context.epoch_goes_on(done)

    def batch_start(self, trainer: Any, *_: Any) -> None:
        """Begin a micro-batch."""
        if not self._is_open:
            self.epoch_start(trainer, goes_on=True)
        self.beats.step_begins()

    def batch_end(self, trainer: Any, outputs: Any = None, *_: Any) -> None:
        """End a micro-batch, before the script's callbacks; it can be the last of a step of the optimizer."""
        micro = trainer.accumulate_grad_batches
        if self._losses or time.monotonic() >= self._loss_due:
            loss: Any = outputs.get("loss") if isinstance(outputs, dict) else None
            if getattr(loss, "is_cpu", False):
                self._loss += float(loss)  # Lightning has divided it by the number of micro-batches
                self._losses += 1
        if micro > 1:
            self.context.add("micro")
            if trainer.fit_loop.epoch_loop._should_accumulate():
                self.beats.moved()
                return
        self.beats.step_ends(TORCH)
        if self._losses:
            if self._losses >= micro:
                self._loss_due = time.monotonic() + (0.0 if self._loss - self._loss else LOSS_EVERY)
                self.context.losses.of_step(self._loss, trainer.fit_loop.epoch_loop.batch_idx // micro)
            self._loss, self._losses = 0.0, 0

    def epoch_end(self, *_: Any) -> None:
        """Enter the end of the epoch, before its callbacks."""
        self.beats.enter(EPOCH_END)
        self._is_open = False

    def checks_start(self, *_: Any) -> None:
        """Begin a validation or a test."""
        self.beats.enter(VALIDATION)

    def check_ends(self, *_: Any) -> None:
        """End a batch of it."""
        self.beats.enter(VALIDATION)
        self.context.add("checks")

    def checks_end(self, trainer: Any) -> None:
        """End a validation; inside a fit the training goes on."""
        self.beats.enter(EPOCH_END if trainer.fit_loop.epoch_loop.batch_progress.is_last_batch else BETWEEN)

    def predict_start(self, *_: Any) -> None:
        """Begin a prediction."""
        self.beats.enter(PREDICTION)

    def prediction_ends(self, *_: Any) -> None:
        """End a batch of it."""
        self.beats.enter(PREDICTION)
        self.context.add("checks")


def steps_of_epoch(trainer: Any) -> int:
    """Return the steps of the optimizer in an epoch, -1 if the data have no length."""
    batches: float = trainer.num_training_batches
    return -1 if batches == math.inf else max(1, math.ceil(batches / max(1, trainer.accumulate_grad_batches)))


def library(package: str, root: str) -> Library:
    """Return the record of a Lightning: `package` is what a script imports, `root` where its Trainer is."""

    def targets(context: Context) -> Targets:
        return LightningHooks(context, root).targets()

    def saves(context: Context) -> Targets:
        return SaveHooks(context, {root + ".trainer.trainer": ("Trainer", "save_checkpoint", "")}).targets()

    return Library(
        package,
        companions=("lightning_fabric", "torchmetrics"),
        hooks=(targets, saves),
        patches={
            "always": {root + ".trainer.trainer": ("checkpoint.lightning", "patch")},
            "slices": {
                root + ".loops.optimization.automatic": ("microbatch.retried_step", "slice_lightning"),
                root + ".loops.optimization.manual": ("microbatch.slices_lightning", "patch_manual"),
            },
            "again": {root + ".loops.optimization.automatic": ("microbatch.retried_step", "patch_lightning")},
        },
        distributions=(package.replace("_", "-"),),
    )


LIBRARY = library("lightning", "lightning.pytorch")
