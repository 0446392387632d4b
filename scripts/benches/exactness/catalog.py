"""All shapes, in the order of the table, and those of the quick part."""

from __future__ import annotations

from . import scripts_callbacks, scripts_data, scripts_frameworks, scripts_loops, scripts_models
from .shape import DEFAULTS, EDITED, HALVED, MID, SAVE, Shape

SHAPES: tuple[Shape, ...] = (
    *scripts_data.SHAPES,
    *scripts_callbacks.SHAPES,
    *scripts_models.SHAPES,
    *scripts_loops.SHAPES,
    *scripts_frameworks.SHAPES,
)

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
