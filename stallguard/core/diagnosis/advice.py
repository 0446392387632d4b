"""Advice: what a user can change against a cause, with a line for the script or the shell if there is one.

The pieces that several causes share; core.diagnosis.causes has the rest.  They come from the collected reports on
Metal training.  `when` is the name of the clue that must hold for a piece to apply: nothing for Metal is advised on
another GPU.  A name, because config imports this module before the first attempt starts, and the clues import the
history.  This module must not judge a scene.
"""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    """One piece.  `code`: a line to use; `when`: the name of a clue, "" if it always applies."""

    text: str
    code: str = ""
    when: str = ""

    def sentence(self) -> str:
        """Return it as one sentence."""
        return f"{self.text}: {self.code}" if self.code else self.text


PREFETCH = Advice("let the input run ahead of the training", "dataset = dataset.prefetch(tf.data.AUTOTUNE)")
PARALLEL = Advice("prepare batches in parallel", "dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)")
NO_GENERATOR = Advice(
    "a Python generator feeds one batch at a time under the interpreter's lock; keep arrays as a data set",
    "tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)",
)
SMALLER = Advice("a smaller batch needs less memory", "model.fit(..., batch_size=batch_size // 2)")
HALF_PRECISION = Advice(
    "half precision takes about half the memory", 'keras.mixed_precision.set_global_policy("mixed_float16")'
)
STREAM = Advice(
    "stream the data instead of holding all of it in memory",
    "dataset = dataset.batch(batch_size).prefetch(2)",
)
BUILD_ONCE = Advice(
    "build and compile the model once, before the loop; if it must be built again, free the old one first",
    "keras.backend.clear_session()",
)
SEGMENTS = Advice(
    "until the leak is found, restart on purpose before memory runs out", "stallguard run --segments 2h ..."
)
PINS = Advice(
    "use versions that load together (Python 3.10 to 3.12)",
    'pip install "tensorflow==2.18.1" "tensorflow-metal==1.2.0"',
)
WITHOUT_PLUGIN = Advice("or train on the CPU", "pip uninstall tensorflow-metal")
ON_CPU = Advice(
    "the same training on the CPU shows whether the GPU is the cause",
    'tf.config.set_visible_devices([], "GPU")',
)
NO_REMAPPER = Advice(
    "an experiment: let the plug-in leave the graph as it is",
    "TURN_OFF_REMAPPER=1 stallguard run ...",
    "on_metal",
)
NO_CACHE = Advice(
    "an experiment: let the plug-in keep less memory", "TF_MPS_DISABLE_ALLOCATION_CACHE=1 stallguard run ...",
    "on_metal",
)  # fmt: skip
DISPLAY = Advice(
    "let the display sleep while it trains; the limit holds only while it is on", "pmset displaysleepnow"
)
RELAX = Advice(
    "if it comes back, the driver's limit can be relaxed at your own risk",
    "AGX_RELAX_CDM_CTXSTORE_TIMEOUT=1 stallguard run ...",
)
FEWER_CALLS = Advice(
    "small steps spend their time between Python and the device", "model.compile(..., steps_per_execution=16)"
)
FIXED_SHAPES = Advice(
    "give the graph one shape, so that it is traced once", "dataset.batch(batch_size, drop_remainder=True)"
)
OUTSIDE_LOOP = Advice("decorate the step once, outside of the loop", "@tf.function(reduce_retracing=True)")
