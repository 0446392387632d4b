"""Lightning's `Trainer.fit`, with the script unchanged: saved between two batches, and resumed there to the bit.

Lightning restores its part itself, as from a checkpoint that the script names; what it leaves out is set by
lightning_state.py.  Around that lies the order of the data.  Lightning's own resume opens the data of the epoch with
the generators as they happen to be, and begins with its first batch.  Here

    the data are opened with the generators as they were when that epoch's data were opened,
    the batches that were trained are drawn again and dropped,
    then objects and generators get the values of the checkpoint, and the next batch is trained.

A checkpoint is made after a batch that is not the last of its epoch and with which the optimizer has stepped, or after
the whole end of an epoch.  Lightning's loops know neither place from a checkpoint of their own, so their flags of a
restart are cleared before the first batch.

The classes that are wrapped are Lightning's own (2.6); if one lacks, nothing is saved, and the first minute says so.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

from .. import libraries, patches
from ..hooks import around, before
from . import announcements, encoding, identity, lightning_state, random_state, script_state, tensors
from .generations import DAMAGE, NEXT, CheckpointStore
from .loop_saves import LoopSaves
from .script_state import Kept, ScriptState
from .tracked_objects import Packed, unpacked
from .tracked_torch import is_loader

if TYPE_CHECKING:
    from ..context import Context
    from ..patches import Function

_ENDED = "the script's Trainer.fit gets a checkpoint by ckpt_path, and goes on from that"
_OTHER_MODEL = "Lightning begins at step 0: the model has other parameters than when its checkpoint was made"
_OTHER_OPTIMIZER = (
    "Lightning begins at step 0, with the weights of step %d: the optimizers or schedules are others than when that "
    "checkpoint was made"
)
_GOES_ON = "Lightning goes on from step %d, with stallguard's checkpoint"
_UNSURE = "its batches can have other values than in the run before: %s"
_BEGINS = "Lightning begins at step 0: %s"
_WARNING = ".*ended before the epoch ended and your dataloader is not resumable"  # it is drawn again here


class Fit:
    """One call of `Trainer.fit`."""

    def __init__(self, trainer: Any, store: CheckpointStore, number: int) -> None:
        self.trainer = trainer
        self.store = store
        self.number = number
        self.was_begun = os.path.isdir(store.folder)  # by an earlier attempt
        self.began = time.monotonic()
        self.left = ""  # why it is neither saved nor resumed
        self.runs = False  # Lightning has set it up: what runs before, as a search for a rate, is another training
        self.script: ScriptState | None = None
        self.unkept: dict[str, str] = {}  # parts of Lightning's own checkpoint, with their classes
        self.resumed: dict[str, Any] | None = None  # the state of the checkpoint, until all is set
        self.reasons: list[str] = []  # why its resume is not exact
        self.damaged: list[str] = []
        self.saved = (-1, -1)  # epochs and batches of the newest checkpoint
        self.made = self.expected = ""  # the generation whose next batch is not known; the fingerprint of that batch
        self.prepared: Any = None  # the generators before the DataLoader was made
        self.opened: Any = None  # as the data of this epoch were opened
        self.first: Any = None  # and as its first batch was drawn


class LightningCheckpoints:
    """What the wrappers of one Lightning share in one process."""

    def __init__(self, context: Context, root: str) -> None:
        self._context = context
        self._root = root
        self._saves = LoopSaves(context)
        self._calls = 0
        self._fit: Fit | None = None  # the one that runs
        self._lacks: list[str] = []  # what this version of Lightning does not have

    # --- a call of fit ------------------------------------------------------------------------------------------

    def fit(self, original: Function) -> Function:
        """Return the wrapper for Trainer.fit."""

        def fit(trainer: Any, *args: Any, **named: Any) -> Any:
            begun = self._saves.guarded("before Trainer.fit", lambda: self._begins(trainer))
            try:
                result = original(trainer, *args, **named)
                if begun is not None:
                    self._saves.guarded("after Trainer.fit", lambda: self._finished(begun))
            finally:
                if begun is not None:
                    self._fit = None
                    self._saves.sigterm.disarm()
                    if begun.script is not None:
                        begun.script.end()
            return result

        return fit

    def _begins(self, trainer: Any) -> Fit | None:
        if self._fit is not None or self._saves.is_over:
            return None
        self._calls += 1
        store = CheckpointStore(os.path.join(self._saves.folder, "lightning-%04d" % self._calls))
        fit = Fit(trainer, store, self._calls)
        why = obstacle(trainer) or ("Lightning has no %s" % ", ".join(self._lacks) if self._lacks else "")
        if why:
            self._saves.report.refused(why, store.folder)
            return None
        self._saves.report.begins()
        os.makedirs(store.folder, exist_ok=True)
        self._context.hook_installed("checkpoint")
        self._context.losses.checkpoint = self.finite
        self._saves.sigterm.arm()
        self._fit = fit
        return fit

    def _finished(self, fit: Fit) -> None:
        """Set what is left of a resumed fit that was over: no batch was trained."""
        if fit.resumed is not None and fit.runs:
            self._set(fit, fit.resumed)

    def finite(self) -> str:
        """Return when the newest checkpoint with a finite loss was made, in words; "" if there is none."""
        found = None if self._fit is None else self._fit.store.finite()
        return "" if found is None else "step %d, made at %s" % (found[0]["step"], announcements.clock(found[1]))

    def _of(self, trainer: Any) -> Fit | None:
        """Return the fit of a trainer, None if another one runs or it is left to the script."""
        fit = self._fit
        return fit if fit is not None and fit.trainer is trainer and not fit.left else None

    # --- Lightning sets up, and restores ------------------------------------------------------------------------

    def resume_opens(self, connector: Any, checkpoint_path: Any = None, *_: Any, **__: Any) -> Any:
        """Begin Lightning's reading of the checkpoint that the script names: it has none, or that one is used."""
        fit = self._of(connector.trainer)
        return None if fit is None or fit.script is not None else (fit, connector, checkpoint_path)

    def resume_closes(self, state: tuple[Fit, Any, Any], result: Any) -> None:
        """Give Lightning the newest whole checkpoint of this fit, if the script names none."""
        fit, connector, path = state
        if path:
            fit.left = _ENDED
            self._saves.report.refused(fit.left, fit.store.folder)
            self._saves.sigterm.disarm()
            return
        reach = lightning_state.Reach(fit.trainer)
        fit.script = script = ScriptState(
            self._context, self._saves.pace, fit.store.files, reach.enter, reach.enter_data
        )
        if self._context.resuming:
            with self._context.phase("checkpoint"):
                fit.resumed = self._chosen(fit)
            if fit.resumed is not None:
                connector._loaded_checkpoint = lightning_state.as_lightnings(fit.resumed)
        self._saves.guarded("noting files", lambda: script.listen(fit.resumed is not None))
        # Before the check of the validation, which a resumed fit leaves out.
        self._saves.guarded("noting what the script keeps", script.note_before)

    def _chosen(self, fit: Fit) -> dict[str, Any] | None:
        for facts, blobs in fit.store.found(fit.damaged):
            try:
                state = unpacked(facts, blobs)
                is_alike = facts["of"] == self._context.place and lightning_state.fits(fit.trainer, state)
                fit.saved, fit.expected = tuple(state["at"]), facts[NEXT].get("batch", "")
            except (*DAMAGE, encoding.NotPlain) as error:
                fit.damaged.append(announcements.DAMAGED % ("of Lightning", "%s: %s" % (type(error).__name__, error)))
                continue
            if not is_alike:
                self._say_begin(fit, _OTHER_MODEL)
                return None
            fit.reasons = identity.differences(facts)
            self._context.restored()
            return {**state, "step": facts["step"], "kept": script_state.kept_in(facts, blobs)}
        if fit.was_begun:
            self._say_begin(fit, _BEGINS % ("; ".join(fit.damaged) or "no checkpoint of this fit was made"))
        return None

    def _say_begin(self, fit: Fit, text: str) -> None:
        fit.saved, fit.expected = (-1, -1), ""
        self._context.say("inexact", text, fit=fit.number, epoch=0, batch=0)

    def training_opens(self, connector: Any, *_: Any) -> Any:
        """Begin Lightning's restore of optimizers and loops.  What ran before can have dropped the checkpoint."""
        fit = self._of(connector.trainer)
        if fit is None or fit.resumed is None or fit.runs:
            return None
        if lightning_state.kinds(fit.trainer) == fit.resumed["optimizers"]:
            connector._loaded_checkpoint = lightning_state.as_lightnings(fit.resumed)
            return fit
        connector._loaded_checkpoint = {}
        self._say_begin(fit, _OTHER_OPTIMIZER % fit.resumed["step"])
        fit.resumed = None
        return None

    def training_closes(self, fit: Fit, result: Any) -> None:
        """Give the optimizers what Lightning's restore converts."""
        if fit.resumed is not None:
            lightning_state.into_optimizers(fit.trainer, fit.resumed)
            del fit.resumed["dump"]

    def registered(self, connector: Any, result: Any) -> None:
        """Have SIGTERM reach the probe's handler alone, which ends the process after its batch.

        Lightning's handler waits for the end of a batch too, but does not end one that hangs, and its callbacks then
        take a half-trained model for a result.
        """
        fit = self._of(connector.trainer)
        if fit is None:
            return
        fit.runs = True
        if type(fit.trainer._accelerator_connector.cluster_environment).__name__ != "SLURMEnvironment":
            self._saves.sigterm.reclaim()

    # --- the data -------------------------------------------------------------------------------------------------

    def setup_opens(self, loop: Any) -> Any:
        """Begin to make the DataLoader, if that is to be made."""
        fit = self._of(loop.trainer)
        if fit is None or not fit.runs or (loop._combined_loader is not None and not loop._should_reload_train_dl):
            return None
        state = fit.resumed
        if state is None:
            fit.prepared = random_state.capture()
        else:
            fit.prepared = state["prepared"]
            random_state.restore(state["prepared"])
            fit.trainer.should_stop = state["stop"]
        return fit, loop

    def setup_closes(self, state: tuple[Fit, Any], result: Any) -> None:
        """Find out whether the data can be drawn again."""
        fit, loop = state
        fit.left = "" if loop._combined_loader is None else obstacle_of_data(loop)
        if fit.left:
            self._saves.report.refused(fit.left, fit.store.folder)
        elif fit.resumed is not None and loop._combined_loader is not None:
            self._say(fit, fit.resumed)

    def _say(self, fit: Fit, state: dict[str, Any]) -> None:
        """Say that the fit goes on, where, and what is not exact."""
        unsure = lightning_state.unsure(fit.trainer)
        reasons = [*fit.reasons, *([_UNSURE % unsure] if unsure else [])]
        text = "; ".join([
            *reasons, _GOES_ON % state["step"], *(announcements.PREVIOUS % one for one in fit.damaged),
        ])  # fmt: skip
        epoch, batches = state["at"]
        facts = {"fit": fit.number, "epoch": epoch, "batch": batches // max(1, fit.trainer.accumulate_grad_batches)}
        self._context.say("inexact" if reasons else "resume", text, **facts)

    def iter_opens(self, fetcher: Any) -> None:
        """Note the generators as the data of an epoch are opened, or set them as they were then."""
        fit = self._fit
        if fit is None or not fit.runs or fit.left or fetcher is not fit.trainer.fit_loop._data_fetcher:
            return
        if obstacle_of_data(fit.trainer.fit_loop):  # said when the DataLoader is there
            return
        state = fit.resumed
        if state is None or state["at"][1] == 0:
            fit.opened = lightning_state.generators(fit.trainer)
            if fit.script is not None:
                fit.script.data_open()
        else:
            fit.opened = state["opened"]
            if fit.script is not None:
                fit.script.restore_opening(state["kept"])
            lightning_state.into_generators(fit.trainer, state["opened"])

    def epoch_opens(self, loop: Any) -> None:
        """Set the state of a checkpoint that was made between two epochs, before the next one begins."""
        fit = self._of(loop.trainer)
        if fit is None or not fit.runs or fit.script is None:
            return
        fit.script.begin()
        if fit.resumed is None or fit.resumed["at"][1] > 0:
            return
        state, fit.resumed = fit.resumed, None
        # Flags of a restart in mid-epoch, which Lightning sets for a training by steps in any case.
        loop.epoch_loop.restarting = False
        loop._restarting = loop._resuming_from_checkpoint = False
        for one in (loop, loop.epoch_loop, loop.epoch_loop.val_loop):
            one.reset_restart_stage()
        self._set(fit, state)

    def run_opens(self, loop: Any, fetcher: Any) -> Any:
        """Begin the batches of an epoch."""
        fit = self._of(loop.trainer)
        return None if fit is None or not fit.runs else (fit, loop, fetcher)

    def run_closes(self, state: tuple[Fit, Any, Any], result: Any) -> None:
        """Note the generators before the first batch; or draw what was trained before, and set the rest."""
        fit, loop, fetcher = state
        kept, fit.resumed = fit.resumed, None
        if kept is None:
            fit.first = lightning_state.generators(fit.trainer)
            return
        fit.first = kept["first"]
        lightning_state.into_generators(fit.trainer, kept["first"])
        batches = kept["at"][1]
        fetcher.fetched = 0
        with self._context.phase("input"):
            for number in range(batches):
                try:
                    next(fetcher)
                except StopIteration:
                    text = announcements.ENDED % (announcements.counted(number, "batch", "batches"), batches)
                    self._context.note("inexact", text)
                    break
                self._context.add("skipped")
                self._context.moved()
        loop.restarting = False  # a validation that was due is over
        self._set(fit, kept)

    def _set(self, fit: Fit, state: dict[str, Any]) -> None:
        fit.resumed = None
        lightning_state.write(fit.trainer, state)
        if fit.script is not None:
            fit.script.restore(state["kept"])
        self._context.restored()

    def batch_begin(self, original: Function) -> Function:
        """Return the wrapper for what Lightning does with a batch that it has fetched."""

        @patches.removes_its_own
        def begin(*args: Any, **named: Any) -> Any:
            fit = self._fit
            if fit is not None and (fit.made or fit.expected):  # looked at here, since it runs in each step
                try:
                    self.batch_opens(fit, *args, **named)
                except Exception as error:
                    self._context.surprise("comparing a batch of Lightning", error)
            try:
                return original(*args, **named)
            except BaseException as error:
                patches.remove(error)
                raise

        return begin

    def batch_opens(self, fit: Fit, loop: Any, _words: Any, batch: Any, *_: Any) -> None:
        """Compare a batch with that which was trained at this place before; record it for the newest checkpoint."""
        if self._of(loop.trainer) is None:
            return
        with self._context.own_work():
            made, expected = fit.made, fit.expected
            fit.made = fit.expected = ""
            try:
                found = tensors.fingerprint_of(batch)
            except Exception:  # of objects that are no arrays: they cannot be compared
                return
            if expected and found != expected:
                epoch, number = fit.trainer.current_epoch + 1, loop.batch_progress.current.ready
                self._context.note("inexact", announcements.ORDER % (number, epoch, ""))
            if made:
                try:
                    fit.store.annotate(made, {"batch": found})
                except OSError:  # the checkpoint holds without it
                    pass

    # --- saves ----------------------------------------------------------------------------------------------------

    def ended_opens(self, loop: Any, *_: Any) -> Any:
        """Begin what Lightning does after a batch or an epoch."""
        fit = self._of(loop.trainer)
        return None if fit is None or not fit.runs or self._saves.stopped else (fit, loop)

    def batch_ended(self, loop: Any, *_: Any) -> None:
        """Save after a batch, if that is due or the process is to end.  Not after the last one: the epoch's end is."""
        state = self.ended_opens(loop)
        if state is None:
            return
        fit, trainer = state[0], loop.trainer
        is_inside = trainer.lightning_module.automatic_optimization and loop._should_accumulate()
        if not is_inside and not loop._is_training_done and not trainer.should_stop:
            due = time.monotonic() >= self._saves.pace.next
            self._look(fit, (trainer.current_epoch, loop.batch_progress.current.completed), due)

    def epoch_ended(self, state: tuple[Fit, Any], result: Any = None) -> None:
        """Save after an epoch."""
        fit, loop = state
        trainer, now = fit.trainer, time.monotonic()
        ends = ((trainer.current_epoch, loop.max_epochs), (trainer.global_step, loop.max_steps))
        is_last = trainer.should_stop or any(most is not None and 0 <= most <= at for at, most in ends)
        pace = self._saves.pace
        due = pace.at_end(now, now - fit.began) if is_last else pace.due(now, between_epochs=True)
        self._look(fit, (trainer.current_epoch, 0), due)

    def _look(self, fit: Fit, at: tuple[int, int], due: bool) -> None:
        if self._saves.must_end:
            saved = fit.saved == at or self._save(fit, at)
            self._saves.end(saved, lambda: setattr(fit.trainer, "should_stop", True), "Lightning")
        elif (self._saves.is_ordered() or due) and fit.saved != at:
            self._save(fit, at)

    def _save(self, fit: Fit, at: tuple[int, int]) -> bool:
        def make() -> None:
            fit.made = fit.store.write(*self._state(fit, at), between_epochs=at[1] == 0)

        named = len(fit.unkept)
        made = fit.script is not None and self._saves.save(make, fit.store.folder)
        if made:
            fit.saved = at
        if len(fit.unkept) > named:
            self._context.beyond(announcements.KEPT_NOT % announcements.described(fit.unkept))
        return made

    def _state(self, fit: Fit, at: tuple[int, int]) -> tuple[dict[str, Any], list[Any]]:
        trainer, beats, packed = fit.trainer, self._context.beats, Packed()
        saving, beats.saving = beats.saving, True
        try:
            state = lightning_state.read(trainer, fit.unkept)
        finally:
            beats.saving = saving
        places = {"prepared": fit.prepared, "opened": fit.opened, "first": fit.first}
        facts, blobs = packed.facts(packed.code({**state, **places, "at": at}))
        finite = all(bool(one.isfinite().all()) for one in trainer.lightning_module.parameters())
        facts = {
            **facts, "finite": finite and not self._context.losses.broken, "step": trainer.global_step,
            "of": self._context.place, "script": identity.script(), "versions": identity.versions(),
        }  # fmt: skip
        return script_state.joined(facts, blobs, fit.script.read() if fit.script else Kept({}, []))

    # --- the classes that are wrapped -----------------------------------------------------------------------------

    def patch(self) -> None:
        """Wrap Lightning's classes, which are all imported."""
        context, nothing = self._context, lambda _: None
        wrapped: dict[str, dict[str, Any]] = {
            ".trainer.connectors.checkpoint_connector _CheckpointConnector": {
                "resume_start": around(context, self.resume_opens, self.resume_closes, nothing),
                "restore_training_state": around(context, self.training_opens, self.training_closes, nothing),
            },
            ".trainer.connectors.signal_connector _SignalConnector": {
                "register_signal_handlers": around(context, lambda connector: connector, self.registered, nothing),
            },
            ".loops.fetchers _DataFetcher": {"__iter__": before(context, self.iter_opens)},
            ".loops.fit_loop _FitLoop": {
                "setup_data": around(context, self.setup_opens, self.setup_closes, nothing),
                "on_advance_start": before(context, self.epoch_opens),
                "on_advance_end": around(context, self.ended_opens, self.epoch_ended, nothing),
            },
            ".loops.training_epoch_loop _TrainingEpochLoop": {
                "reset": self._quietly,
                "on_run_start": around(context, self.run_opens, self.run_closes, nothing),
                "_build_kwargs": self.batch_begin,
                "on_advance_end": self._saves.after_step(self.batch_ended),
            },
            ".trainer.trainer Trainer": {"fit": self.fit, "_run_sanity_check": self._unless_resumed},
        }  # fmt: skip
        for place, methods in wrapped.items():
            module, _, name = place.partition(" ")
            kind = getattr(sys.modules.get(self._root + module), name, None)
            for method, make in methods.items():
                if kind is None or not context.wrap(kind, method, make):
                    self._lacks.append("%s.%s" % (name, method))
        loops = sys.modules.get(self._root + ".loops")
        for name in ("is_resuming", "reset_restart_stage"):  # since 2.5.5
            if not hasattr(getattr(loops, "_Loop", None), name):
                self._lacks.append("_Loop.%s" % name)

    def _unless_resumed(self, original: Function) -> Function:
        """Return the wrapper for the check of the validation, which an attempt that begins anew makes.

        Lightning leaves it out itself if an epoch was under way, but not after the end of one.
        """

        def check(trainer: Any) -> Any:
            fit = self._of(trainer)
            return original(trainer) if fit is None or fit.resumed is None else None

        return check

    def _quietly(self, original: Function) -> Function:
        """Return the wrapper for the reset of an epoch, which warns that a resume in mid-epoch is not exact."""

        def reset(loop: Any) -> Any:
            fit = self._of(loop.trainer)
            if fit is None or fit.resumed is None:
                return original(loop)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=_WARNING)
                return original(loop)

        return reset


def patch(context: Context, module: Any) -> None:
    """Wrap Lightning, if checkpoints are on; `module`: that of its Trainer, which imports all others."""
    if context.checkpoint_directory:
        LightningCheckpoints(context, module.__name__[: -len(".trainer.trainer")]).patch()


def obstacle(trainer: Any) -> str:
    """Return why a fit is neither saved nor resumed here, "" if it can be."""
    if trainer.world_size > 1 or libraries.have_peers():
        return "Lightning trains on several devices"
    strategy = trainer.strategy
    if strategy.launcher is not None or strategy.restore_checkpoint_after_setup:
        return "%s keeps the state of this training" % type(strategy).__name__
    return ""


def obstacle_of_data(loop: Any) -> str:
    """Return why the data of a fit cannot be drawn again in the same order, "" if they can."""
    loaders = loop._combined_loader.flattened
    if len(loaders) != 1:
        return "it trains on %d DataLoaders together" % len(loaders)
    loader = loaders[0]
    if not is_loader(loader):
        return "its data are no DataLoader"
    if hasattr(loader, "load_state_dict"):
        return "its DataLoader keeps its own position"
    if any(kind.__name__ == "IterableDataset" for kind in type(loader.dataset).__mro__):
        return "the order of an IterableDataset cannot be repeated"
    if type(loop._data_fetcher).__name__ == "_DataLoaderIterDataFetcher":
        return "its training_step draws the batches itself"
    return ""
