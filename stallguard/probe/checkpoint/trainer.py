"""The checkpoints of Hugging Face's Trainer: resumed from with the script unchanged, and made where it makes too few.

A later attempt's `Trainer.train` goes on from the newest checkpoint that is whole and was made by the same call of an
earlier attempt: one that Trainer wrote into its output_dir, or one of stallguard's generations.  What lay in output_dir
before that call first began is another training's; it is recognised by the time and size of its trainer_state.json,
which Trainer writes last.

    <folder of the process>/trainer-<number of the call>/
        call.json   what lay in output_dir before the call, and at its end
        g<number>/  the files that Trainer's resume reads, and script/: what the script's code keeps itself
        script-checkpoint-<step>/  the same beside a checkpoint of Trainer's own
        files/      copies of what the script writes line by line

Trainer itself restores its state, and passes over the batches of the epoch that were trained; what the script's code
keeps (script_state.py) is restored before the first step, or before the next epoch begins.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import sys
import time
import types
import zipfile
import zlib
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from ..frameworks.transformers import steps_of_epoch
from ..hooks import around, before
from . import announcements, object_kinds, script_state, tracked_torch
from .generations import DAMAGE, CheckpointStore, DamagedGeneration, Generations, flush, no_link, read_facts
from .loop_saves import LoopSaves
from .manual import flushed, verify
from .script_state import ScriptState

if TYPE_CHECKING:
    from ..context import Context
    from ..patches import Function, Maker
    from .object_walk import Walk

SCRIPT = "script"
STATE, WEIGHTS, CALL = "trainer_state.json", "pytorch_model.bin", "call.json"
# Without one of these Trainer goes on with a new optimizer, schedule or random numbers, and says nothing.
NEEDED = ("optimizer.pt", "scheduler.pt", "rng_state.pth", STATE)
MODELS = ("model.safetensors", WEIGHTS, "adapter_model.safetensors", "adapter_model.bin")
INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
ARGUMENTS = ("resume_from_checkpoint", "trial", "ignore_keys_for_eval")  # of Trainer.train
# What reading a file of torch can raise besides: torch.save writes a zip archive, which can be cut anywhere.
DAMAGED = (*DAMAGE, zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError)
# Devices whose generators Trainer's checkpoints leave out (5.24), and the file that has the state of one.
DEVICES, DEVICE = ("mps", "xpu"), "device_rng"
# Attributes of a Trainer that are kept elsewhere, or are no state of the script's.
_LIBRARYS = (
    "accelerator", "optimizer", "lr_scheduler", "state", "control", "callback_handler", "args", "train_dataset",
    "eval_dataset",
)  # fmt: skip
NO_SCRIPT = "what the script's code keeps begins anew: it was not kept beside the checkpoint"
OTHER_DRAWS = "Trainer goes on with other random numbers of the device (%s): its checkpoint does not keep them"
_NAME = re.compile(r"checkpoint-([0-9]+)")

Listing = dict[str, Any]  # checkpoints by name, each with the time and size of its STATE; None without that


class Candidate(NamedTuple):
    """A checkpoint that a resume can use.

    `files`: checksums of ours, {path: [size, CRC-32]}; None: Trainer's own.  `damage`: what is known of it so far.
    """

    step: int
    path: str
    files: dict[str, list[int]] | None = None
    damage: Exception | None = None


class TrainingCall(NamedTuple):
    """One call of `train`.  `record`: its CALL; `began`: monotonic seconds; `script`: what the script's code keeps."""

    trainer: Any
    store: Generations
    record: dict[str, Any]
    began: float
    resumed: Candidate | None
    script: ScriptState


class TrainerCheckpoints:
    """What the wrappers of Trainer share in one process."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._saves = LoopSaves(context)
        self._calls = 0
        self._call: TrainingCall | None = None  # the one that runs
        self._saved = -1  # the step of the newest whole checkpoint of this call
        self._kept: dict[str, Any] | None = None  # of the checkpoint, until it is restored
        self._wrote = False  # Trainer's own was written since the last look

    # --- a call of train ----------------------------------------------------------------------------------------

    def train(self, original: Function) -> Function:
        """Return the wrapper for Trainer.train."""

        def train(trainer: Any, *args: Any, **named: Any) -> Any:
            call = self._saves.guarded("before Trainer.train", lambda: self._begins(trainer, args, named))
            if call is not None and call.resumed is not None:
                args, named = (), {**dict(zip(ARGUMENTS, args)), **named, ARGUMENTS[0]: call.resumed.path}
            try:
                result = original(trainer, *args, **named)
                if call is not None:
                    self._saves.guarded("after Trainer.train", lambda: self._finished(call))
            finally:
                if call is not None:
                    self._call = None
                    self._saves.sigterm.disarm()
                    call.script.end()
                    for event in ("on_epoch_begin", "on_step_begin"):  # see `begin`
                        vars(trainer.callback_handler).pop(event, None)
            return result

        return train

    def _begins(self, trainer: Any, args: tuple[Any, ...], named: dict[str, Any]) -> TrainingCall | None:
        """Choose the checkpoint of a call; None if the script chooses it, or the call is not one to resume."""
        words = {**dict(zip(ARGUMENTS, args)), **named}
        given, is_trial = words.get(ARGUMENTS[0]), words.get(ARGUMENTS[1]) is not None
        if self._call is not None or is_trial or self._saves.is_over:
            return None
        self._calls += 1
        store = Generations(os.path.join(self._saves.folder, "trainer-%04d" % self._calls))
        why = obstacle(trainer)
        if why:
            self._saves.report.refused(why, store.folder)
            return None
        self._context.note("resume", "", backup=1)  # it goes on from its own: none of ours is no start from scratch
        self._saves.report.begins()
        output = os.path.abspath(trainer.args.output_dir)
        kept = _read(store.folder) if self._context.resuming else None
        record = kept or {"before": listing(output), "end": None}
        if kept is None:
            store.forget()
            _keep(store.folder, record)
        chosen = None
        if self._context.resuming and (given is None or given is True):
            everything = {} if given is True else record["before"]
            chosen = self._choose(trainer, store, output, {**record, "before": everything})
        self._saved = -1 if chosen is None else chosen.step
        self._context.hook_installed("checkpoint")
        self._context.losses.checkpoint = self.finite
        self._saves.sigterm.arm()
        self._kept = None if chosen is None else self._kept_with(store, chosen)
        files = os.path.join(store.folder, "files")
        script = ScriptState(self._context, self._saves.pace, files, *reach(trainer))
        self._saves.guarded("noting files", lambda: script.listen(chosen is not None))
        self._call = TrainingCall(trainer, store, record, time.monotonic(), chosen, script)
        return self._call

    def _choose(self, trainer: Any, store: Generations, output: str, record: dict[str, Any]) -> Candidate | None:
        """Return the newest whole checkpoint, and say which; None: the training begins at its beginning."""
        damaged: list[str] = []
        with self._context.phase("checkpoint"):
            shapes = {name: list(one.shape) for name, one in trainer.model.state_dict().items()}
            for one in candidates(store, output, record):
                where = os.path.relpath(one.path, output) if one.files is None else os.path.basename(one.path)
                try:
                    if one.damage is not None:
                        raise one.damage
                    if one.files is None:
                        check(one.path, one.step, shapes)
                    else:
                        verify(one.path, one.files)
                except DAMAGED as error:
                    damaged.append(announcements.DAMAGED % (where, error))
                    continue
                whose = "its own" if one.files is None else "stallguard's"
                text = "Trainer goes on from step %d, with %s checkpoint %s" % (one.step, whose, where)
                self._say(one, text, damaged)
                return one
        why = "; ".join(damaged) or "no checkpoint of this run is there"
        self._context.say("inexact", "Trainer begins at step 0: %s" % why, fit=self._calls, epoch=0, batch=0)
        return None

    def _kept_with(self, store: Generations, chosen: Candidate) -> dict[str, Any] | None:
        """Return what the script's code kept when a checkpoint was made; None, which is said, if nothing is there."""
        for facts, blobs in CheckpointStore(script_folder(store, chosen.path, chosen.files is not None)).found([]):
            if chosen.files is not None or facts["of"] == listing_of(chosen.path):
                return {**facts, "kept": script_state.kept_in(facts, blobs)}
        self._context.say("inexact", NO_SCRIPT)
        return None

    def _say(self, chosen: Candidate, text: str, damaged: list[str]) -> None:
        facts: dict[str, Any] = {"fit": self._calls}
        with open(os.path.join(chosen.path, STATE), encoding="utf-8") as file:
            state = json.load(file)
        steps = _steps_of(state)
        if steps:
            facts.update(epoch=chosen.step // steps, batch=chosen.step % steps)
        self._context.say("resume", "; ".join([text, *(announcements.PREVIOUS % one for one in damaged)]), **facts)

    def _finished(self, call: TrainingCall) -> None:
        """Note that the call has ended: what is written into its output_dir from now on is another one's."""
        trainer, output = call.trainer, os.path.abspath(call.trainer.args.output_dir)
        step = trainer.state.global_step
        if call.resumed is not None and call.resumed.step == step:  # no step restored the generators
            trainer._load_rng_state(call.resumed.path)
        self._restore(call)
        _keep(call.store.folder, {**call.record, "end": {"step": step, "there": listing(output)}})

    def finite(self) -> str:
        """Return when the newest generation with a finite loss was made, in words; "" if there is none."""
        found = None if self._call is None else self._call.store.finite()
        return "" if found is None else "step %d, made at %s" % (found[0]["step"], announcements.clock(found[1]))

    def run_epoch(self, original: Function) -> Function:
        """Return the wrapper for Trainer._run_epoch: of a training that is over, Trainer would train one step more."""

        def run_epoch(trainer: Any, *args: Any, **named: Any) -> Any:
            call = self._call
            if call is not None and call.trainer is trainer and call.resumed is not None:
                step, ended = trainer.state.global_step, (call.record["end"] or {}).get("step")
                if step == call.resumed.step and (step >= trainer.state.max_steps or step == ended):
                    trainer.control.should_training_stop = True
                    return None
            return original(trainer, *args, **named)

        return run_epoch

    def evaluate(self, original: Function) -> Function:
        """Return the wrapper for Trainer._evaluate: a resumed Trainer would evaluate before its first step again."""

        def evaluate(trainer: Any, *args: Any, **named: Any) -> Any:
            call, is_first = self._call, named.get("skip_scheduler", False)  # the only one that passes it
            is_resumed = call is not None and call.trainer is trainer and call.resumed is not None
            return {} if is_first and is_resumed else original(trainer, *args, **named)

        return evaluate

    # --- events of a training ---------------------------------------------------------------------------------

    def begin(self, handler: Any, args: Any, state: Any, control: Any) -> None:
        """Give the script's callbacks their saved state back, before they begin: a patience that is counted, say."""
        call = self._call
        if call is None or call.trainer.callback_handler is not handler:
            return
        self._once(handler, "on_epoch_begin", lambda: self._epoch_begins(call))
        if call.resumed is None and getattr(args, "eval_on_start", False):
            call.script.note_before()
        if call.resumed is None or args.restore_callback_states_from_checkpoint:
            return
        for callback in handler.callbacks:
            kept = state.stateful_callbacks.get(type(callback).__name__) if hasattr(callback, "state") else None
            for name, value in kept.get("attributes", {}).items() if isinstance(kept, dict) else ():
                setattr(callback, name, value)

    def _once(self, handler: Any, event: str, action: Callable[[], None]) -> None:
        """Have an action done before the next event of a kind, at no cost for those after it."""
        original = getattr(handler, event)

        def once(*args: Any, **named: Any) -> Any:
            vars(handler).pop(event, None)
            self._saves.guarded("before %s" % event, action)
            return original(*args, **named)

        vars(handler)[event] = once

    def _epoch_begins(self, call: TrainingCall) -> None:
        """Note what the script's code keeps; restore it, if the checkpoint was made between two epochs."""
        call.script.begin()
        if self._kept is not None and self._kept["over"]:
            self._restore(call)
        elif self._kept is not None:
            self._once(call.trainer.callback_handler, "on_step_begin", lambda: self._restore(call))

    def _restore(self, call: TrainingCall) -> None:
        found, self._kept = self._kept, None
        if found is None:
            return
        # Trainer draws batches ahead: what the data wrote for these is cut off too.
        drawn = [*found["drawn"], *call.script.written()]
        call.script.restore(found["kept"])
        for name, one in call.trainer.model.named_parameters():
            if one.requires_grad is (name in found["frozen"]):
                one.requires_grad_(not one.requires_grad)
        if drawn and not found["over"]:
            self._context.say("inexact", announcements.KEPT_BY_PIPELINE % announcements.listed(drawn))

    def opens(self, trainer: Any, *_: Any, **__: Any) -> Any:
        """Begin a save of Trainer's."""
        return (trainer, time.monotonic()) if self._call is not None and trainer is self._call.trainer else None

    def wrote(self, state: Any, result: Any) -> None:
        """Note that Trainer wrote a checkpoint of its own: ours is due later."""
        trainer, began = state
        if not trainer.args.save_only_model:
            self._saved, self._wrote = trainer.state.global_step, True
            self._context.request_attention()
            self._saves.report.saved(began)
            self._saves.pace.saved(began, time.monotonic())

    def after_step(self) -> Maker:
        """Return the maker of a wrapper that saves after a step."""
        return self._saves.after_step(self.step_ended)

    def step_ended(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Save after a step, or after the end of an epoch, if a save is due or the process is to end.

        Trainer comes here after each step, and once more after the last one of an epoch, when that is over.
        """
        call = self._call
        if call is None or trainer is not call.trainer or self._saves.stopped:
            return
        step = trainer.state.global_step
        over = self._context.beats.is_between_epochs
        if self._wrote:
            self._wrote = False
            self._saves.guarded("saving what the script keeps", lambda: self._keep_beside(call, over))
        now = time.monotonic()
        steps = steps_of_epoch(trainer.callback_handler, trainer.args)
        ends = trainer.control.should_training_stop or trainer.control.should_epoch_stop
        if not over and (ends or (steps > 0 and step % steps == 0)):
            return  # the epoch's end follows
        if self._saves.must_end:
            self._saves.end(step == self._saved or self.save(call, over), lambda: _stop(trainer), "Trainer")
            return
        pace = self._saves.pace
        due = now >= pace.next
        if over:
            last = trainer.control.should_training_stop or step >= trainer.state.max_steps
            due = pace.at_end(now, now - call.began) if last else pace.due(now, between_epochs=True)
        if (self._saves.is_ordered() or due) and step != self._saved:
            self.save(call, over)

    def save(self, call: TrainingCall, over: bool) -> bool:
        """Make a generation; return whether it is made.  `over`: the epoch is."""

        def fill(folder: str) -> dict[str, Any]:
            self._write_script(call, over, script_folder(call.store, folder, True))
            return self._fill(folder, call.trainer)

        made = self._saves.save(lambda: call.store.make(fill), call.store.folder)
        if made:
            self._saved = call.trainer.state.global_step
        return made

    def _keep_beside(self, call: TrainingCall, over: bool) -> None:
        """Write what the script's code keeps beside the checkpoint that Trainer has just written."""
        output = os.path.abspath(call.trainer.args.output_dir)
        path = os.path.join(output, "checkpoint-%d" % call.trainer.state.global_step)
        self._write_script(call, over, script_folder(call.store, path, False), of=listing_of(path))
        there = {os.path.basename(script_folder(call.store, name, False)) for name in listing(output)}
        for name in os.listdir(call.store.folder):
            if name.startswith(SCRIPT + "-") and name not in there:  # Trainer has removed its checkpoint
                shutil.rmtree(os.path.join(call.store.folder, name), ignore_errors=True)

    def _write_script(self, call: TrainingCall, over: bool, folder: str, **more: Any) -> None:
        frozen = [name for name, one in call.trainer.model.named_parameters() if not one.requires_grad]
        kept = call.script.read()
        facts = {"over": over, "frozen": frozen, "drawn": script_state.changed_data(kept), **more}
        CheckpointStore(folder).write(*script_state.joined(facts, [], kept))

    def _fill(self, folder: str, trainer: Any) -> dict[str, Any]:
        """Write what Trainer's resume reads, by its own functions; its state stays as it is."""
        import torch

        beats, saving = self._context.beats, self._context.beats.saving
        beats.saving = True  # each torch.save in it is part of this checkpoint
        try:
            if any(kind.__name__ == "PeftModel" for kind in type(trainer.model).__mro__):
                trainer.save_model(folder, _internal_call=True)
            else:
                torch.save(trainer.model.state_dict(), os.path.join(folder, WEIGHTS))
            trainer._save_optimizer_and_scheduler(folder)
            if hasattr(trainer, "_save_scaler"):
                trainer._save_scaler(folder)
            trainer._save_rng_state(folder)
        finally:
            beats.saving = saving
        state = copy.copy(trainer.state)
        state.stateful_callbacks = dict(state.stateful_callbacks)
        state.total_flos += trainer.current_flos
        callbacks = [one for one in (*trainer.callback_handler.callbacks, trainer.control) if hasattr(one, "state")]
        for name, kept in list(state.stateful_callbacks.items()):
            now = [one.state() for one in callbacks if type(one).__name__ == name]
            state.stateful_callbacks[name] = now if isinstance(kept, list) else now[-1] if now else kept
        state.save_to_json(os.path.join(folder, STATE))
        finite = all(bool(one.isfinite().all()) for one in trainer.model.parameters())
        return {
            "finite": finite and not self._context.losses.broken, "step": state.global_step,
            "place": self._context.place, "files": flushed(folder),
        }  # fmt: skip

    def random_opens(self, trainer: Any, folder: Any, *_: Any) -> Any:
        """Begin to write or read the states of generators, on a device whose own Trainer leaves out."""
        device = trainer.args.device.type
        if self._call is None or trainer is not self._call.trainer or folder is None or device not in DEVICES:
            return None
        ours, name = self._call.store.folder, os.path.basename(folder)
        is_ours = os.path.dirname(os.path.abspath(folder)) == os.path.abspath(ours)
        return device, os.path.join(folder, DEVICE) if is_ours else os.path.join(ours, "%s-%s" % (DEVICE, name))

    def random_written(self, state: tuple[str, str], result: Any) -> None:
        """Keep the state of the device's generator: beside our checkpoints, if the checkpoint is Trainer's own."""
        torch: Any = sys.modules["torch"]
        with open(state[1], "wb", opener=no_link) as file:
            file.write(getattr(torch, state[0]).get_rng_state().numpy().tobytes())

    def random_read(self, state: tuple[str, str], result: Any) -> None:
        """Set the device's generator; say so if its state was not kept."""
        torch: Any = sys.modules["torch"]
        if os.path.exists(state[1]):
            with open(state[1], "rb") as file:
                kept = bytearray(file.read())
            getattr(torch, state[0]).set_rng_state(torch.frombuffer(kept, dtype=torch.uint8))
        else:
            self._context.say("inexact", OTHER_DRAWS % state[0])


def _stop(trainer: Any) -> None:
    trainer.control.should_training_stop = True


def patch(context: Context, module: Any) -> None:
    """Wrap Trainer, if checkpoints are on; `module`: transformers.trainer."""
    if not context.checkpoint_directory:
        return
    kept, kind = TrainerCheckpoints(context), module.Trainer
    context.wrap(kind, "train", kept.train)
    context.wrap(kind, "_run_epoch", kept.run_epoch)
    context.wrap(kind, "_evaluate", kept.evaluate)
    context.wrap(kind, "_save_checkpoint", around(context, kept.opens, kept.wrote, lambda _: None))
    context.wrap(kind, "_maybe_log_save_evaluate", kept.after_step())
    for name, closes in (("_save_rng_state", kept.random_written), ("_load_rng_state", kept.random_read)):
        context.wrap(kind, name, around(context, kept.random_opens, closes, lambda _: None))
    context.wrap(module.CallbackHandler, "on_train_begin", before(context, kept.begin))


def obstacle(trainer: Any) -> str:
    """Return why a training is neither saved nor resumed here, "" if it is."""
    if trainer.args.world_size > 1:
        return "Trainer trains in several processes"
    if getattr(trainer, "is_deepspeed_enabled", False) or getattr(trainer, "is_fsdp_enabled", False):
        return "DeepSpeed or FSDP keeps the state of this training"
    return ""


def reach(trainer: Any) -> tuple[Callable[[Walk], None], Callable[[Walk], None]]:
    """Return what has a walk look at what Trainer reaches of the script's, and at what its batches are drawn from."""
    theirs = tracked_torch.names_of_module()
    functions = [
        one for kind in type(trainer).__mro__ if not object_kinds.is_librarys(kind) for one in vars(kind).values()
    ]
    codes = [one.__code__ for one in functions if isinstance(one, types.FunctionType)]
    # A name of both can be the script's; an object that it finds so has another place already.
    own = object_kinds.named_by_library(type(trainer)).difference(*map(object_kinds.names_in, codes))

    def enter(walked: Walk) -> None:
        walked.know(trainer, "trainer")
        modules = script_state.modules_of(trainer.model, "model")
        script_state.know_modules(walked, modules, buffers=False)
        for name in _LIBRARYS:
            if getattr(trainer, name, None) is not None:
                walked.know(getattr(trainer, name), "trainer." + name)
        for number, one in enumerate(trainer.callback_handler.callbacks):
            path = "callbacks[%d]" % number
            if object_kinds.is_librarys(type(one)):
                script_state.enter_functions(walked, one, path)
            else:
                walked.enter(one, path)
        script_state.enter_functions(walked, trainer, "trainer")
        if not object_kinds.is_librarys(type(trainer)):
            walked.enter_attributes(trainer, "trainer", own)
        script_state.enter_modules(walked, modules, lambda _: theirs, buffers=False)

    def enter_data(walked: Walk) -> None:
        walked.know(trainer, "trainer")
        given = types.SimpleNamespace(dataset=trainer.train_dataset, collate_fn=trainer.data_collator)
        script_state.enter_loader(walked, given)

    return enter, enter_data


def script_folder(store: Generations, checkpoint: str, is_ours: bool) -> str:
    """Return where what the script's code keeps is: in a checkpoint of ours, or beside one of Trainer's own."""
    name = "%s-%s" % (SCRIPT, os.path.basename(checkpoint))
    return os.path.join(checkpoint, SCRIPT) if is_ours else os.path.join(store.folder, name)


def listing(output: str) -> Listing:
    """Return the checkpoints in a directory."""
    try:
        names = [name for name in os.listdir(output) if _NAME.fullmatch(name)]
    except OSError:
        return {}
    return {name: listing_of(os.path.join(output, name)) for name in names}


def listing_of(checkpoint: str) -> list[int] | None:
    """Return the time and size of a checkpoint's STATE, None if it has none."""
    try:
        about = os.stat(os.path.join(checkpoint, STATE))
    except OSError:
        return None
    return [about.st_mtime_ns, about.st_size]


def candidates(store: Generations, output: str, record: dict[str, Any]) -> list[Candidate]:
    """Return the checkpoints of a call, newest first; of two at the same step Trainer's own.

    `record`: its CALL.  Of a call that had ended, what was written after its end is another one's.
    """
    found = []
    for folder in store.candidates():
        try:
            facts = read_facts(folder)
            found.append(Candidate(int(facts["step"]), folder, facts["files"]))
        except DAMAGE as error:
            found.append(Candidate(-1, folder, {}, error))
    there, end = listing(output), record["end"]
    for name, about in there.items():
        is_older = name in record["before"] and record["before"][name] == about
        is_later = end is not None and end["there"].get(name) != about
        if not is_older and not is_later:
            found.append(Candidate(int(name.rpartition("-")[2]), os.path.join(output, name)))
    return sorted(found, key=lambda one: (one.step, one.files is None), reverse=True)


def check(folder: str, step: int, shapes: dict[str, list[int]]) -> None:
    """Raise one of DAMAGED if a checkpoint of Trainer is not whole.  `shapes`: of the model's tensors."""
    names = os.listdir(folder)
    lacking = [name for name in NEEDED if name not in names]
    if not lacking and not any(name in names for name in (*MODELS, *INDICES)):
        lacking = ["its weights"]
    if lacking:
        raise DamagedGeneration("it lacks %s" % ", ".join(lacking))
    for name in sorted(names):
        path = os.path.join(folder, name)
        if name.endswith(".json"):
            with open(path, "rb") as text:
                read = json.load(text)
            if name == STATE and read["global_step"] != step:
                raise DamagedGeneration("it is of step %s" % read["global_step"])
            parts = set(read["weight_map"].values()) if name in INDICES else set()
            if not parts <= set(names):
                raise DamagedGeneration("it lacks %s" % min(parts - set(names)))
        elif name.endswith(".safetensors"):
            _check_tensors(path, shapes)
        elif name.endswith((".pt", ".pth", ".bin")):
            with zipfile.ZipFile(path) as archive:
                broken = archive.testzip()
            if broken is not None:
                raise DamagedGeneration("%s does not match its checksum" % name)


def _check_tensors(path: str, shapes: dict[str, list[int]]) -> None:
    """Raise one of DAMAGE if a file of safetensors is cut, or is of another model.

    Its form: 8 bytes with the length of a text in JSON, the text with the place of each tensor, the tensors
    (github.com/huggingface/safetensors, README, "Format").
    """
    name = os.path.basename(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(length))
    head.pop("__metadata__", None)
    size = 8 + length + max((one["data_offsets"][1] for one in head.values()), default=0)
    if os.path.getsize(path) != size:
        raise DamagedGeneration("%s has %d bytes of %d" % (name, os.path.getsize(path), size))
    for tensor, one in head.items():
        if shapes.get(tensor, one["shape"]) != one["shape"]:
            raise DamagedGeneration("%s has another shape in the model" % tensor)


def _steps_of(state: dict[str, Any]) -> int:
    """Return the steps of an epoch, of what Trainer keeps of its state; 0 if they are not known."""
    step, epoch = state.get("global_step"), state.get("epoch")
    return round(step / epoch) if step and epoch else 0


def _read(folder: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(folder, CALL), encoding="utf-8") as file:
            found = json.load(file)
        return {"before": dict(found["before"]), "end": found["end"]}
    except DAMAGE:
        return None


def _keep(folder: str, record: dict[str, Any]) -> None:
    path = os.path.join(folder, CALL)
    os.makedirs(folder, exist_ok=True)
    with open(path + ".tmp", "w", encoding="utf-8", opener=no_link) as file:
        json.dump(record, file)
        flush(file)
    os.replace(path + ".tmp", path)
