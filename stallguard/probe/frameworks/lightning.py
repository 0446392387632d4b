"""Lightning: the loops of its Trainer.  A batch is a step of the optimizer, of one or more micro-batches.

The progress is read by wrapping methods of its loops (loops/, 2.0 to 2.6); no callback is added, because a script sees
those, and a checkpoint of Lightning names them.  The function that calls the callbacks is left alone: it runs six times
in a step, `run` of the optimization once.  In manual optimization the script itself steps, as often as it wants: there
each batch of the loader is one.  What is saved and resumed: checkpoint/lightning.py.
"""

from __future__ import annotations

import math
import sys

from .. import patches, wire
from ..beats import BETWEEN, EPOCH_END, IDLE, NAMED, PREDICTION, STEP, TORCH, VALIDATION, monotonic_ns
from ..hooks import SaveHooks, after, around, before
from ..libraries import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..context import Context, Targets
    from ..patches import Function, Maker

LOSS_EVERY = 50_000_000  # ns between two reads of a loss on the CPU; one takes a microsecond
_SOURCE = wire.SLOT["source"]


class LightningHooks:
    """The wrappers of one Lightning.  `root`: the package in which its Trainer is."""

    def __init__(self, context: Context, root: str) -> None:
        self.context = context
        self.beats = context.beats
        self._root = root
        self._loss, self._losses = 0.0, 0  # sum over the micro-batches of this step that were read, and their number
        self._loss_due = 0  # ns, by the clock of the beats

    def targets(self) -> Targets:
        """Return the module that defines Trainer, which imports its loops."""
        return {self._root + ".trainer.trainer": self.patch}

    def patch(self, module: Any) -> None:
        """Wrap what Trainer starts, and its loops."""
        context = self.context
        starts = (("fit", BETWEEN), ("validate", VALIDATION), ("test", VALIDATION), ("predict", PREDICTION))
        taken = [
            context.wrap(module.Trainer, name, around(context, self._opens(phase), self.loop_closes, self.loop_closes))
            for name, phase in starts
        ]
        if all(taken):
            context.hook_installed("fit")

        loops: dict[str, dict[str, Maker]] = {
            "fit_loop _FitLoop": {
                "on_run_start": before(context, self.train_start),
                "on_advance_start": before(context, self.epoch_start),
                "on_advance_end": before(context, self.epoch_end),
            },
            "training_epoch_loop _TrainingEpochLoop": {"on_run_start": before(context, self.batches_start)},
            "optimization.automatic _AutomaticOptimization": {"run": self.run},
            "optimization.manual _ManualOptimization": {"run": self.run},
            "evaluation_loop _EvaluationLoop": {
                "_on_evaluation_start": before(context, self.checks_start),
                "_evaluation_step": after(context, self.check_ends),
                "_on_evaluation_end": before(context, self.checks_end),
            },
            "prediction_loop _PredictionLoop": {
                "_on_predict_start": before(context, self.predict_start),
                "_predict_step": after(context, self.prediction_ends),
            },
        }
        lacks = []
        for place, methods in loops.items():
            name, _, kind = place.partition(" ")
            owner = getattr(sys.modules.get("%s.loops.%s" % (self._root, name)), kind, None)
            lacks += ["%s.%s" % (kind, one) for one, make in methods.items() if not context.wrap(owner, one, make)]
        if lacks:
            context.note("hooks", "Lightning has no %s" % ", ".join(lacks), module=module.__name__)
        else:
            context.hook_installed("callbacks")

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

    # --- events of a training -----------------------------------------------------------------------------------

    def train_start(self, loop: Any) -> None:
        """Note how long the training is, and how large its batches."""
        trainer = loop.trainer
        steps, epochs = steps_of_epoch(trainer), trainer.max_epochs
        by_epochs = steps * epochs if steps > 0 and epochs is not None and epochs > 0 else 0
        known = [one for one in (by_epochs, trainer.max_steps) if one > 0]
        self.context.set("total", min(known, default=0))
        self.context.batch_of(getattr(trainer.train_dataloader, "batch_size", None))
        self.beats.cold = True

    def epoch_start(self, loop: Any) -> None:
        """Begin an epoch."""
        trainer = loop.trainer
        steps, epochs = steps_of_epoch(trainer), trainer.max_epochs
        self.beats.epoch_begins(trainer.current_epoch, epochs if epochs is not None and epochs > 0 else -1, steps)
        self.beats.slots[_SOURCE] = TORCH
        self._loss, self._losses = 0.0, 0

    def batches_start(self, loop: Any, *_: Any) -> None:
        """Begin its batches: the data can have been loaded anew, and an epoch that is resumed has some already."""
        self.epoch_start(loop)
        done = loop.batch_progress.current.completed // max(1, loop.trainer.accumulate_grad_batches)
        if done:
            self.context.epoch_goes_on(done)

    def run(self, original: Function) -> Function:
        """Return the wrapper for the run of an optimization: a micro-batch, before the script's callbacks.

        It can be the last of a step of the optimizer.
        """
        beats, context = self.beats, self.context

        @patches.removes_its_own
        def run(loop: Any, *args: Any, **named: Any) -> Any:
            if beats.cold or beats._phase != STEP:  # looked at here: it is a step already, if a DataLoader feeds it
                try:
                    beats.step_begins()
                except Exception as error:
                    context.surprise("the beginning of a step of Lightning", error)
            try:
                outputs = original(loop, *args, **named)
            except BaseException as error:
                patches.remove(error)
                raise
            try:
                trainer = loop.trainer
                micro = trainer.accumulate_grad_batches
                if self._losses or monotonic_ns() >= self._loss_due:
                    loss: Any = outputs.get("loss") if isinstance(outputs, dict) else None
                    if getattr(loss, "is_cpu", False):
                        self._loss += float(loss)  # Lightning has divided it by the number of micro-batches
                        self._losses += 1
                if micro > 1:
                    context.add("micro")
                    if trainer.fit_loop.epoch_loop._should_accumulate():
                        beats.moved()
                        return outputs
                beats.step_ends(TORCH)
                if self._losses:
                    if self._losses >= micro:
                        self._loss_due = beats.ended + (0 if self._loss - self._loss else LOSS_EVERY)
                        context.losses.of_step(self._loss, trainer.fit_loop.epoch_loop.batch_idx // micro)
                    self._loss, self._losses = 0.0, 0
            except Exception as error:
                context.surprise("the end of a step of Lightning", error)
            return outputs

        return run

    def epoch_end(self, *_: Any) -> None:
        """Enter the end of the epoch, before its callbacks."""
        self.beats.enter(EPOCH_END)

    def checks_start(self, *_: Any, **__: Any) -> None:
        """Begin a validation or a test."""
        self.beats.enter(VALIDATION)

    def check_ends(self, *_: Any, **__: Any) -> None:
        """End a batch of it."""
        self.beats.enter(VALIDATION)
        self.context.add("checks")

    def checks_end(self, loop: Any, *_: Any, **__: Any) -> None:
        """End it; inside a fit the training goes on."""
        is_last = loop.trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
        self.beats.enter(EPOCH_END if is_last else BETWEEN)

    def predict_start(self, *_: Any, **__: Any) -> None:
        """Begin a prediction."""
        self.beats.enter(PREDICTION)

    def prediction_ends(self, *_: Any, **__: Any) -> None:
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
        # The thread of its own progress display, which it has if rich is installed: _RefreshThread of 2.6.
        displays=((root + ".callbacks.progress.rich_progress", "run"),),
        distributions=(package.replace("_", "-"),),
    )


LIBRARY = library("lightning", "lightning.pytorch")
