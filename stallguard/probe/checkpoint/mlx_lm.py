"""The checkpoints of mlx-lm's trainer, which keeps adapters only: it goes on exactly, the script unchanged.

`mlx_lm.tuner.trainer.train` has its iteration and its sums in local variables.  They are reached from outside, while
one call of it runs:

- Its loop is `for it, batch in zip(range(1, iters + 1), iterate_batches(loop=True))`: the module gets a `zip` of its
  own, which gives that loop its numbers from where it goes on.  So reports, validations and saves fall at the same
  iterations.
- Its compiled `step` returns the loss, the tokens and the gradients that are not applied yet.  The iterations since the
  last report are run once more with a number that no interval divides, and with a step that only returns the sums.
- Batches that were trained are drawn again and passed over.  Validation draws from the same generators in between: so
  their states are kept wherever something else has drawn before a batch was.

Frozen weights are read by the script again; some values of them are compared.  A version whose loop or step is another
is left to the script, and that is said.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any

from .. import libraries
from . import announcements, encoding, identity, object_kinds, random_state, script_state, tensors, tracked_mlx
from .generations import DAMAGE, NEXT, CheckpointStore
from .loop_saves import LoopSaves
from .saved_generation import are_of_others
from .script_state import Kept, ScriptState
from .tracked_mlx import OptimizerState, arrays_of, fill, shapes_of
from .tracked_objects import Packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..context import Context
    from ..patches import Function
    from .object_walk import Walk

STEP = "train.<locals>.step"
AGAIN = 0.5  # the number of an iteration that is not trained: no whole number divides it
SETTINGS = ("batch_size", "max_seq_length", "grad_accumulation_steps")  # of TrainingArgs: another one, other batches
STATISTICS = ("running_mean", "running_var")  # of BatchNorm: frozen, and changed by training
SOME = 16  # values of each frozen array that are compared
_PASSED = object()  # stands for the batch of an iteration that is not trained


class TrainerCall:
    """One call of `train`: what it got, where it is, and what its loop has summed up."""

    def __init__(self, words: dict[str, Any], folder: str) -> None:
        """`words`: its arguments by name."""
        self.model, self.optimizer, self.args = words["model"], words["optimizer"], words["args"]
        self.draw = words["iterate_batches"]
        self.functions = {name: words.get(name) for name in ("training_callback", "loss")}
        self.script: ScriptState | None = None
        self.store = CheckpointStore(folder)
        self.began = time.monotonic()
        self.has_step = self.opened = False  # its compiled step was seen; the batches of its loop were opened
        self.of: dict[str, Any] = {}  # what a checkpoint of the same training has too
        self.done = 0  # iterations
        self.sums: list[tuple[Any, Any]] = []  # (loss, tokens) of the iterations since the last report
        self.window = 0  # how many they are; of earlier attempts only the sum is kept
        self.gradients: Any = None  # those that are not applied yet
        self.given: Any = None  # the same of the checkpoint, until the first step gets them
        self.again: Any = (0.0, 0, None)  # what the step returns for the next iteration that is not trained
        self.is_kept = False  # its checkpoints are made
        self.is_left = False  # they are not, and that was said
        self.ends = False  # it is to end by itself
        self.tokens = self.tokens_before = 0  # trained until the last report; by earlier attempts
        self.begun: dict[str, Any] = {}  # the generators as the batches were opened
        self.jumps: list[tuple[int, dict[str, Any]]] = []  # their states before some batches: see `drawn`
        self.passes = 0  # batches that are drawn again
        self.resumed: tuple[dict[str, Any], list[Any]] | None = None
        self.made = ""  # the generation whose next batch is not known yet

    def identity(self, place: str) -> dict[str, Any]:
        """Return `of`; `place`: of the process."""
        optimizers = getattr(self.optimizer, "optimizers", None) or [self.optimizer]
        return {
            "place": place, "optimizer": [type(one).__name__ for one in optimizers], "frozen": frozen(self.model),
            "settings": [getattr(self.args, name, None) for name in SETTINGS],
        }  # fmt: skip

    def total(self) -> list[Any]:
        """Return the sums of the losses and of the tokens since the last report, added as the trainer adds them."""
        if not self.sums:
            return []
        loss, tokens = self.sums[0]
        for more, others in self.sums[1:]:
            loss, tokens = loss + more, tokens + others
        self.sums = [(loss, tokens)]
        return [loss, tokens]

    def reported(self) -> None:
        """Begin new sums, as the trainer does after its report."""
        self.tokens += sum(one.item() for one in self.total()[1:])
        self.sums, self.window = [], 0

    def enter(self, walked: Walk) -> None:
        """Have a walk look at what the trainer reaches of the script's."""
        walked.know(self.optimizer, "optimizer")
        modules = script_state.modules_of(self.model, "model")
        script_state.know_modules(walked, modules)
        for name, one in self.functions.items():
            if object_kinds.is_of_script(one):
                walked.enter(one, name)
        script_state.enter_modules(walked, modules, lambda _: tracked_mlx.names_of_module())

    def enter_data(self, walked: Walk) -> None:
        """Have a walk look at the script's function that draws the batches."""
        walked.know(self.model, "model")
        if object_kinds.is_of_script(self.draw):
            walked.enter(self.draw, script_state.DATA)

    def finite(self) -> str:
        """Return when the newest generation with a finite loss was made, in words; "" if there is none."""
        found = self.store.finite()
        return "" if found is None else announcements.FINITE_LOOP % announcements.clock(found[1])

    def read(self) -> dict[str, Any]:
        """Return its state."""
        return {
            "done": self.done, "window": self.window, "sums": self.total(), "gradients": arrays_of(self.gradients),
            "waits": self.gradients is not None, "tokens": self.tokens, "begun": self.begun, "jumps": self.jumps,
            "model": arrays_of(self.model.trainable_parameters()), "statistics": statistics(self.model),
            "optimizer": OptimizerState(self.optimizer).read(), "random": random_state.capture(),
        }  # fmt: skip

    def fits(self, state: dict[str, Any]) -> bool:
        """Return whether a state is one of such a training."""
        shapes = shapes_of(arrays_of(self.model.trainable_parameters()))
        is_alike = shapes == shapes_of(state["model"]) and state["statistics"].keys() == statistics(self.model).keys()
        return is_alike and OptimizerState(self.optimizer).fits(state["optimizer"]) and state["done"] <= self.args.iters

    def write(self, state: dict[str, Any]) -> None:
        """Write a state into it."""
        fill(self.model, state["model"])
        parts = dict(self.model.named_modules())
        for name, arrays in state["statistics"].items():
            fill(parts[name], arrays)
        OptimizerState(self.optimizer).write(state["optimizer"])
        random_state.restore(state["random"])
        self.done = self.passes = state["done"]
        self.window, self.sums = state["window"], [tuple(state["sums"])] if state["sums"] else []
        self.given = self.gradients = state["gradients"] if state["waits"] else None
        self.tokens = self.tokens_before = state["tokens"]
        self.begun, self.jumps = state["begun"], [(index, states) for index, states in state["jumps"]]


class MlxLmCheckpoints:
    """What the wrappers of mlx-lm's trainer share in one process."""

    def __init__(self, context: Context, module: Any) -> None:
        self._context, self._module = context, module
        self._saves = LoopSaves(context)
        self._calls = 0
        self._call: TrainerCall | None = None  # the one that runs

    # --- a call of train ----------------------------------------------------------------------------------------

    def train(self, original: Function) -> Function:
        """Return the wrapper for `train`."""
        from inspect import signature

        known = signature(original)

        def train(*args: Any, **named: Any) -> Any:
            call = None
            if self._call is None and not self._saves.is_over:
                try:
                    bound = known.bind(*args, **named)
                    bound.apply_defaults()
                    call = TrainerCall(
                        bound.arguments, os.path.join(self._saves.folder, "mlx-lm-%d" % (self._calls + 1))
                    )
                    bound.arguments["iterate_batches"] = self._batches
                    args, named = bound.args, bound.kwargs
                except (TypeError, KeyError):  # another version, or a call that it refuses
                    pass
            if call is None:
                return original(*args, **named)
            self._calls += 1
            self._call = call
            vars(self._module)["zip"] = self._zip
            try:
                result = original(*args, **named)
                self._restore(call)  # no iteration was left
            finally:
                vars(self._module).pop("zip", None)
                self._call = None
                self._saves.sigterm.disarm()
                if call.script is not None:
                    call.script.end()
            return result

        return train

    def compile(self, original: Function) -> Function:
        """Return the wrapper for mx.compile, which takes the trainer's step."""

        def compile_(fun: Any, *args: Any, **named: Any) -> Any:
            run, call = original(fun, *args, **named), self._call
            if call is None or getattr(fun, "__qualname__", "") != STEP or fun.__module__ != self._module.__name__:
                return run
            call.has_step = True

            def step(batch: Any, gradients: Any, *args: Any) -> Any:
                if not call.is_kept:
                    if not call.is_left:
                        self._leave(call, "the loop of this version of mlx-lm is not known")
                    return run(batch, gradients, *args)
                if batch is _PASSED:  # the first of them returns the sums of all
                    first, call.again = call.again, (0.0, 0, None)
                    return first
                if gradients is None:
                    gradients, call.given = call.given, None
                loss, tokens, call.gradients = result = run(batch, gradients, *args)
                call.sums.append((loss, tokens))
                call.window += 1
                return result

            return step

        return compile_

    # --- its loop -----------------------------------------------------------------------------------------------

    def _zip(self, *sources: Any) -> Any:
        """Stand for `zip` in the trainer's module: of its loop the numbers begin where it goes on."""
        call = self._call
        if call is None or not call.opened or [type(one) for one in sources[:-1]] != [range]:
            return zip(*sources)
        call.opened, (numbers, batches) = False, sources
        why = "" if call.has_step else "the step of this version of mlx-lm is not known"
        if libraries.have_peers():
            why = announcements.PEERS
        if why:
            self._leave(call, why)
            return zip(numbers, batches)
        self._saves.guarded("before mlx-lm's loop", lambda: self._begins(call))
        goes_on = getattr(batches, "goes_on", None)
        if call.done and goes_on is not None:
            goes_on(call.done, call.tokens_before)
        return self._loop(call, numbers, batches)

    def _leave(self, call: TrainerCall, why: str) -> None:
        """Say that a call is neither saved nor resumed."""
        call.is_left = True
        self._saves.report.refused(why, call.store.folder)

    def _loop(self, call: TrainerCall, numbers: range, batches: Any) -> Iterator[Any]:
        """Yield (number, batch) of the iterations that are not trained yet, after those of the open report."""
        if call.sums:
            call.again = (*call.sums[0], None)
        for _ in range(call.window):
            yield AGAIN, _PASSED
        for number, batch in zip(numbers[call.done :], batches):
            yield number, batch
            call.done = number
            if number % call.args.steps_per_report == 0 or number == call.args.iters:
                self._saves.guarded("after a report of mlx-lm", call.reported)
            self._saves.guarded("after an iteration of mlx-lm", lambda: self._ended(call))
            if call.ends:
                return

    def _batches(self, *args: Any, **named: Any) -> Any:
        """Stand for `iterate_batches`."""
        call = self._call
        assert call is not None  # noqa: S101 - of its call alone
        source = call.draw(*args, **named)
        if not named.get("loop"):
            return source  # of a validation
        call.opened = True
        return self._drawn(call, iter(source))

    def _drawn(self, call: TrainerCall, source: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches that are not trained yet.

        Kept are the states of the generators before a batch that draws from them, if something else has drawn since
        the batch before.
        """
        if not call.is_kept:
            yield from source
            return
        if call.passes:
            self._pass(call, source)
        self._restore(call)
        number, last = call.passes, {} if call.passes else _marks(call.begun)
        expected = call.resumed[0][NEXT].get("batch") if call.resumed else None
        call.resumed = None
        while True:
            states = random_state.capture()
            before = _marks(states)
            batch = next(source, _PASSED)
            after = _marks(random_state.capture())
            drew = {name: states[name] for name, mark in before.items() if after.get(name) != mark}
            if any(last.get(name) != before[name] for name in drew):
                call.jumps.append((number, drew))
            last.update({name: after[name] for name in drew})
            if batch is _PASSED:
                return
            if call.made or expected:
                self._compare(call, batch, expected)
                expected = None
            yield batch
            number += 1

    def _restore(self, call: TrainerCall, *, opening: bool = False) -> None:
        """Restore what the script's code keeps; `opening`: only what its batches are drawn from."""
        if call.resumed is not None and call.script is not None:
            restore = call.script.restore_opening if opening else call.script.restore
            kept = script_state.kept_in(*call.resumed)
            self._saves.guarded("restoring what the script keeps", lambda: restore(kept))

    def _pass(self, call: TrainerCall, source: Iterator[Any]) -> None:
        """Draw the batches that were trained before; the generators get the states that they have now."""
        now, jumps = random_state.capture(), dict(call.jumps)
        random_state.restore(call.begun)
        self._restore(call, opening=True)
        for number in range(call.passes):
            random_state.restore(jumps.get(number, {}))
            if next(source, _PASSED) is _PASSED:
                self._context.note("inexact", announcements.ENDED % ("%d batches" % number, call.passes))
                break
            self._context.add("skipped")
            self._context.moved()
        random_state.restore(now)

    def _compare(self, call: TrainerCall, batch: Any, expected: str | None) -> None:
        """Compare a batch with that which was trained at this place before; record it for the newest checkpoint."""
        made, call.made = call.made, ""
        with self._context.own_work():
            try:
                found = tensors.fingerprint_of(batch)
                if expected and found != expected:
                    self._context.note("inexact", announcements.ORDER % (call.done + 1, 1, ""))
                if made:
                    call.store.annotate(made, {"batch": found})
            except Exception:  # the checkpoint holds without it
                return

    # --- checkpoints --------------------------------------------------------------------------------------------

    def _begins(self, call: TrainerCall) -> None:
        """Write the newest intact checkpoint of this call by an earlier attempt into its objects."""
        self._saves.report.begins()
        call.begun, call.of, call.is_kept = random_state.capture(), call.identity(self._context.place), True
        if self._context.resuming:
            with self._context.phase("checkpoint"):
                self._resume(call)
        else:
            call.store.forget()
        call.script = script = ScriptState(
            self._context, self._saves.pace, call.store.files, call.enter, call.enter_data
        )
        self._saves.guarded("noting files", lambda: script.listen(call.resumed is not None))
        self._saves.guarded("noting what the script keeps", script.begin)
        self._context.hook_installed("checkpoint")
        self._context.losses.checkpoint = call.finite
        self._saves.sigterm.arm()

    def _resume(self, call: TrainerCall) -> None:
        damaged: list[str] = []
        for facts, blobs in call.store.found(damaged):
            try:
                state = unpacked(facts, blobs)
                if facts["of"] != call.of or not call.fits(state):
                    damaged.append(announcements.OTHER_TRAINING)
                    break
                before = call.read()
                try:
                    call.write(state)
                except Exception:
                    call.write(before)
                    raise
            except (*DAMAGE, encoding.NotPlain) as error:
                damaged.append(announcements.DAMAGED % ("of mlx-lm", "%s: %s" % (type(error).__name__, error)))
                continue
            call.resumed = (facts, blobs)
            self._context.restored()
            reasons = identity.differences(facts)
            text = "; ".join([*reasons, announcements.AFTER_ITERATION % call.done,
                              *(announcements.PREVIOUS % one for one in damaged)])  # fmt: skip
            batch = call.done // getattr(call.args, "grad_accumulation_steps", 1)
            self._context.say("inexact" if reasons else "resume", text, fit=self._calls, epoch=0, batch=batch)
            return
        if not damaged and are_of_others(self._context):
            damaged.append(announcements.OF_OTHERS % "mlx-lm's trainer")
        if damaged:
            self._context.say("inexact", announcements.FIRST_ITERATION % "; ".join(damaged))

    def _ended(self, call: TrainerCall) -> None:
        """Save after an iteration, if a save is due or the process is to end."""
        saves, now = self._saves, time.monotonic()
        if saves.must_end:
            saves.end(self._save(call), lambda: setattr(call, "ends", True), "mlx-lm")
            return
        is_last = call.done == call.args.iters
        due = saves.pace.at_end(now, now - call.began) if is_last else saves.pace.due(now, between_epochs=False)
        if saves.is_ordered() or due:
            self._save(call)

    def _save(self, call: TrainerCall) -> bool:
        def make() -> None:
            packed = Packed()
            facts, blobs = packed.facts(packed.code(call.read()))
            losses = self._context.losses
            facts.update({
                "finite": None if not losses.known else not losses.broken, "script": identity.script(),
                "of": call.of, "versions": identity.versions(),
            })  # fmt: skip
            kept = Kept({}, []) if call.script is None else call.script.read()
            call.made = call.store.write(*script_state.joined(facts, blobs, kept))

        return self._saves.save(make, call.store.folder)

    # --- its reports --------------------------------------------------------------------------------------------

    def report(self, original: Function) -> Function:
        """Return the wrapper for TrainUI.report_train: the tokens that it shows are those of all attempts."""

        def report_train(ui: Any, it: Any, loss: Any, speed: Any, tokens: Any) -> Any:
            call = self._call
            return original(ui, it, loss, speed, tokens + (call.tokens_before if call is not None else 0))

        return report_train


def patch(context: Context, module: Any) -> None:
    """Wrap the trainer, if checkpoints are on; `module`: mlx_lm.tuner.trainer."""
    if not context.checkpoint_directory:
        return
    kept = MlxLmCheckpoints(context, module)
    context.wrap(sys.modules["mlx.core"], "compile", kept.compile)
    context.wrap(module, "train", kept.train)
    if hasattr(module, "TrainUI"):
        context.wrap(module.TrainUI, "report_train", kept.report)


def statistics(model: Any) -> dict[str, Any]:
    """Return the running statistics of each part that has some."""
    return {
        name: {key: part[key] for key in STATISTICS if key in part}
        for name, part in model.named_modules()
        if any(key in part for key in STATISTICS)
    }


def frozen(model: Any) -> int:
    """Return a checksum of some values of each array that is not trained."""
    tree_flatten = sys.modules["mlx.utils"].tree_flatten

    core = sys.modules["mlx.core"]
    trained = {name for name, _ in tree_flatten(model.trainable_parameters())}
    others = [(name, one) for name, one in tree_flatten(model.parameters())
              if name not in trained and name.rpartition(".")[2] not in STATISTICS]  # fmt: skip
    some = [one.reshape(-1)[:: max(1, one.size // SOME)][:SOME] for _, one in others]
    core.eval(some)
    found = 0
    for (name, _), one in zip(others, some):
        found = zlib.crc32(("%s %s %s" % (name, one.dtype, one.tolist())).encode(), found)
    return found


def _marks(states: dict[str, Any]) -> dict[str, Any]:
    """Return what two equal states of generators have equal."""
    return {
        name: tuple(one.tobytes() if hasattr(one, "tobytes") else one for one in state)
        if isinstance(state, tuple) else random_state.text(state)
        for name, state in states.items()
    }  # fmt: skip
