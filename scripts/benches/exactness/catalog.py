"""The shapes: one row a script, with the instants at which it is disturbed.

The scripts are in shapes/, as a user would write them; the first line of each says what it is.  The beginning of a name
says which environment runs it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

GUARDED, MID, SAVE, BETWEEN = "guarded", "mid-epoch", "in a save", "between"
HALVED, SEGMENTS, EDITED, DEFAULTS = "halved", "segments", "edited", "defaults"
DISTURBANCES = {
    GUARDED: "under guard, undisturbed",
    MID: "killed inside an epoch",
    SAVE: "killed inside a save",
    BETWEEN: "killed at an epoch's end, or at the beginning of the next",
    HALVED: "stalled for ever, then continued in slices of half a batch",
    SEGMENTS: "ended and continued on purpose, again and again",
    EDITED: "killed, edited, and continued by --resume last",
    DEFAULTS: "killed inside an epoch, with the default settings: few saves are made",
}
ALWAYS = (GUARDED, MID, SAVE, BETWEEN)
ENVIRONMENTS = {
    "keras2_": "keras2",
    "tf_keras_": "tf216",
    "older_": "tf216",
    "jax_": "jax",
    "torch_": "torch",
}
COMMENT, RATE, OPTIMIZER, LAYERS, EPOCHS = "comment", "learning rate", "optimizer", "layers", "epochs"


class Edit(NamedTuple):
    """What a user changes between two runs: one of the kinds above, and the text that takes another's place."""

    kind: str
    old: str = ""
    new: str = "\n# a remark\n"


class Shape(NamedTuple):
    """A script.  `at`: fit, epoch and batch of the kill; `save`: number of the file operation that is the last."""

    name: str
    also: tuple[str, ...] = ()  # disturbances beyond ALWAYS
    edit: Edit | None = None
    at: tuple[int, int, int] = (0, 1, 3)
    save: int = 40
    seeded: bool = True
    saved: bool = True  # checkpoints are made of it
    role: str = ""  # which process is disturbed, if there are several
    error: str = ""  # with which the script itself must end after the disturbance
    words: tuple[str, ...] = ()  # of the command, if it is no script of Python's
    files: tuple[str, ...] = ()
    only: tuple[str, ...] = ()  # the disturbances, if not ALWAYS and `also`

    @property
    def python(self) -> str:
        """Return the name of the environment that runs it, "" for the main one."""
        return next((place for start, place in ENVIRONMENTS.items() if self.name.startswith(start)), "")

    @property
    def disturbances(self) -> tuple[str, ...]:
        """Return the disturbances that it is put to, in the order of the table."""
        chosen = set(self.only) or {*ALWAYS, *self.also, *((EDITED,) if self.edit else ())}
        return tuple(name for name in DISTURBANCES if name in chosen)

    def command(self) -> tuple[str, ...]:
        """Return the words that run it."""
        return self.words or (f"{self.name}.py",)

    def command_files(self) -> tuple[str, ...]:
        """Return the files among those words."""
        return tuple(word for word in self.command() if word.endswith((".py", ".sh")))

    def order(self, disturbance: str, index: int) -> str:
        """Return the words for the harness.  `index` spreads kills over the operations of a save, and over moments."""
        fit, epoch, batch = self.at
        if disturbance in (MID, DEFAULTS, EDITED):
            return f"kill batch {fit} {epoch} {batch}"
        if disturbance == HALVED:
            return f"stall batch {fit} {epoch} {batch}"
        if disturbance == SAVE:
            return f"kill save {self.save + index % 7}"  # a save is about as many operations
        if disturbance == BETWEEN:
            return f"kill {('begin', 'end')[index % 2]} {fit} {epoch}"
        return ""


def _row(name: str, *also: str, **more: Any) -> Shape:
    return Shape(name, also, **more)


_SWEEP: dict[str, Any] = {"role": "2", "files": ("train_seed.py",)}

SHAPES: tuple[Shape, ...] = (
    # Arrays
    _row("arrays_callbacks", HALVED, SEGMENTS, DEFAULTS, edit=Edit(COMMENT)),
    _row("arrays_validation", HALVED, edit=Edit(LAYERS, "Dense(12,", "Dense(20,")),
    _row("arrays_weights", HALVED, edit=Edit(RATE, "LEARNING_RATE = 0.02", "LEARNING_RATE = 0.005")),
    _row("arrays_dictionaries", HALVED),
    _row("arrays_order", HALVED, edit=Edit(OPTIMIZER, "SGD(rate, momentum=0.9, nesterov=True)", "RMSprop(rate)")),
    _row("arrays_normalised", HALVED, SEGMENTS),
    # Pipelines
    _row("pipeline_seeded", HALVED, SEGMENTS, edit=Edit(RATE, "Adam(0.01)", "Adam(0.002)")),
    _row("pipeline_global", SEGMENTS, edit=Edit(COMMENT)),
    _row("pipeline_fixed"),
    _row("pipeline_shuffle_cache", SEGMENTS),
    _row("pipeline_cache_shuffle"),
    _row("pipeline_cache_file", DEFAULTS),
    _row("pipeline_shards"),
    _row("pipeline_records"),
    _row("pipeline_zip"),
    _row("pipeline_filter", SEGMENTS),
    _row("pipeline_repeat", HALVED, edit=Edit(OPTIMIZER, "Adam(0.01)", "RMSprop(0.01)")),
    _row("pipeline_split"),
    _row("pipeline_validation_steps", SEGMENTS),
    _row("pipeline_stateless"),
    _row("pipeline_generator_object", SEGMENTS),
    _row("pipeline_layers"),
    _row("pipeline_operations", SEGMENTS),
    _row("pipeline_numpy_function"),
    _row("pipeline_py_function"),
    _row("pipeline_ragged", HALVED),
    _row("pipeline_windows"),
    _row("pipeline_text"),
    _row("pipeline_mixed"),
    _row("pipeline_mixup"),
    # Generators and dataset objects
    _row("generator_closure"),
    _row("generator_object"),
    _row("generator_global", SEGMENTS),
    _row("generator_inner"),
    _row("generator_counter"),
    _row("generator_flaky", error="Stale file handle"),
    _row("generator_endless", HALVED, SEGMENTS),
    _row("sequence_reorders", HALVED, SEGMENTS),
    _row("sequence_private"),
    _row("sequence_random"),
    _row("sequence_global"),
    _row("sequence_workers"),
    _row("sequence_curriculum", DEFAULTS),
    # Callbacks
    _row("callback_scheduler", SEGMENTS, DEFAULTS, edit=Edit(EPOCHS, "EPOCHS = 5", "EPOCHS = 7")),
    _row("callback_epoch_mean", SEGMENTS),
    _row("callback_moving_average", DEFAULTS),
    _row("callback_containers", SEGMENTS),
    _row("callback_object", edit=Edit(COMMENT)),
    _row("callback_lambda"),
    _row("callback_global"),
    _row("callback_warmup", HALVED, SEGMENTS),
    _row("callback_cycle"),
    _row("callback_stops", at=(0, 2, 3)),
    _row("callback_patience", edit=Edit(COMMENT)),
    _row("callback_averages"),
    _row("callback_best_three"),
    _row("callback_evaluates"),
    _row("callback_noise"),
    _row("callback_random"),
    _row("callback_iterator"),
    _row("callback_log_append", SEGMENTS, DEFAULTS),
    _row("callback_log_batches", DEFAULTS),
    _row("callback_log_handle", SEGMENTS),
    _row("callback_log_json"),
    _row("callback_csv", SEGMENTS, DEFAULTS, edit=Edit(RATE, "SGD(0.1)", "SGD(0.02)")),
    _row("callback_checkpoints", DEFAULTS),
    _row("callback_backup", SEGMENTS),
    _row("callback_backup_batches"),
    _row("callback_swap_average", HALVED),
    _row("callback_epoch_begins"),
    _row("callback_nested"),
    _row("callback_predictions"),
    _row("callback_class_state"),
    _row("callback_metric"),
    # Models
    _row("model_unbuilt", HALVED, edit=Edit(LAYERS, "UNITS = 16", "UNITS = 24")),
    _row("model_gan", HALVED, SEGMENTS, edit=Edit(COMMENT)),
    _row("model_gan_built", SEGMENTS),
    _row("model_vae", HALVED),
    _row("model_counter", HALVED, SEGMENTS, DEFAULTS),
    _row("model_python_counter", HALVED),
    _row("model_distillation", HALVED, DEFAULTS, at=(1, 1, 3), save=200),
    _row("model_teacher", HALVED),
    _row("model_finetune", HALVED, SEGMENTS, DEFAULTS, at=(1, 1, 3), save=180),
    _row("model_lora", at=(1, 1, 3), save=150),
    _row("model_normalised", HALVED),
    _row("model_noise", HALVED, SEGMENTS, edit=Edit(OPTIMIZER, "Adam(0.01)", "Adagrad(0.01)")),
    _row("model_spectral", HALVED),
    _row("model_stateful", HALVED, SEGMENTS),
    _row("model_mixed", HALVED),
    _row("model_bfloat"),
    _row("model_accumulation", HALVED),
    _row("model_jit", HALVED, edit=Edit(RATE, "LEARNING_RATE = 0.01", "LEARNING_RATE = 0.003")),
    _row("model_strides", HALVED),
    _row("model_eager", HALVED),
    _row("model_shared", HALVED),
    _row("model_outputs", HALVED),
    _row("model_queue", HALVED),
    _row("model_generators"),
    _row("model_operations", HALVED),
    _row("model_optimizer_wrapped"),
    _row("model_transformer", HALVED),
    _row("slices_sum", HALVED),
    _row("slices_dice", HALVED),
    _row("slices_global_size", HALVED),
    _row("slices_contrast", HALVED),
    _row("slices_add_loss", HALVED),
    _row("slices_fixed_batch", HALVED),
    _row("slices_anchors", HALVED),
    _row("slices_edges", HALVED),
    # Loops
    _row("loop_folds", SEGMENTS, DEFAULTS, edit=Edit(COMMENT), at=(2, 1, 3), save=280),
    _row("loop_folds_large", only=(GUARDED, DEFAULTS), at=(8, 1, 3)),
    _row("loop_folds_kept", DEFAULTS, at=(2, 1, 3), save=280),
    _row("loop_short_fits", DEFAULTS, edit=Edit(LAYERS, "Dense(16,", "Dense(24,"), at=(4, 0, 3), save=200),
    _row("loop_epochs", DEFAULTS, at=(2, 2, 3)),
    _row("loop_alternating", SEGMENTS, DEFAULTS, at=(3, 1, 3), save=300),
    _row("loop_sweep", DEFAULTS, at=(3, 1, 3), save=300),
    _row("loop_same_shape", DEFAULTS, at=(3, 1, 3), save=300),
    _row("loop_shell", HALVED, SEGMENTS, DEFAULTS, words=("bash", "loop_shell.sh"), edit=Edit(COMMENT), **_SWEEP),
    _row("loop_launcher", HALVED, DEFAULTS, **_SWEEP),
    _row("loop_parallel", **_SWEEP),
    _row("loop_thread", HALVED, SEGMENTS),
    _row("loop_growing", DEFAULTS, at=(1, 1, 3), save=150),
    _row("loop_saved_between", DEFAULTS, at=(1, 1, 3), save=200),
    _row("loop_selection", DEFAULTS, at=(1, 1, 3), save=90),
    _row("loop_draws_between", DEFAULTS, at=(1, 1, 3), save=120),
    _row("loop_population", DEFAULTS, at=(3, 0, 3), save=150),
    _row("loop_inner_fit", DEFAULTS),
    _row("loop_function", DEFAULTS, at=(1, 1, 3), save=180),
    _row("loop_batches", HALVED, saved=False),
    _row("loop_tape", HALVED, saved=False),
    _row("loop_checkpoint"),
    _row("loop_own_restore"),
    _row("loop_own_resume"),
    _row("loop_manager"),
    _row("loop_subclassed_fit", HALVED),
    # Nothing is seeded
    _row("unseeded_split", SEGMENTS, seeded=False),
    _row("unseeded_early", seeded=False),
    _row("unseeded_labels", seeded=False),
    _row("unseeded_pipeline", SEGMENTS, seeded=False),
    _row("unseeded_operations", seeded=False),
    _row("unseeded_arrays", seeded=False),
    _row("unseeded_search", seeded=False, at=(1, 1, 3), save=120),
    # Other frameworks
    _row("keras2_arrays", HALVED, SEGMENTS, edit=Edit(COMMENT)),
    _row("keras2_legacy", HALVED),
    _row("keras2_pipeline", HALVED, edit=Edit(OPTIMIZER, '"adam"', '"rmsprop"')),
    _row("keras2_images"),
    _row("keras2_sequence", SEGMENTS),
    _row("keras2_step", at=(1, 1, 3), save=150),
    _row("keras2_folds", DEFAULTS, at=(2, 1, 3), save=200),
    _row("keras2_replica", HALVED),
    _row("tf_keras_arrays", HALVED),
    _row("tf_keras_pipeline"),
    _row("older_arrays", HALVED),
    _row("jax_arrays", HALVED, SEGMENTS, edit=Edit(RATE, "Adam(0.01)", "Adam(0.002)")),
    _row("jax_sequence", edit=Edit(EPOCHS, "epochs=4", "epochs=6")),
    _row("jax_folds", DEFAULTS, at=(1, 1, 2), save=150),
    _row("torch_arrays", HALVED, SEGMENTS, edit=Edit(COMMENT)),
    _row("torch_sequence"),
    _row("torch_loader"),
)  # fmt: skip

# The cells that `--quick` fills in: one of each way in which a training has become another one.
QUICK: dict[str, tuple[str, ...]] = {
    "arrays_callbacks": (MID, EDITED),
    "callback_scheduler": (MID,),
    "callback_containers": (MID,),
    "pipeline_shuffle_cache": (MID,),
    "pipeline_generator_object": (MID,),
    "generator_flaky": (MID,),
    "model_gan": (MID,),
    "model_counter": (SAVE,),
    "model_stateful": (HALVED,),
    "slices_add_loss": (HALVED,),
    "loop_same_shape": (DEFAULTS,),
    "loop_shell": (MID,),
    "unseeded_split": (MID,),
}
