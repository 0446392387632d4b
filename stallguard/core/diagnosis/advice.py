"""Advice: what a user can change against a cause, with a line for the script or the shell if there is one.

The pieces that several causes share; core.diagnosis.causes has the rest.  They come from the collected reports on
Metal training.  `when` has the names of the clues that must hold for a piece to apply: nothing for Metal is advised on
another GPU, and nothing of tf.data for a generator.  Names, because config imports this module before the first attempt
starts, and the clues import the history.  This module must not judge a scene.
"""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    """One piece.  `code`: a line to use; `when`: names of clues, "" if it always applies.

    `text` can name {place}, the line of the script that it is about, and {object}, what grows; `code` {pid}, the
    process of the training (diagnose.fitting).
    """

    text: str
    code: str = ""
    when: str = ""

    def sentence(self) -> str:
        """Return it as one sentence."""
        return f"{self.text}: {self.code}" if self.code else self.text


PREFETCH = Advice(
    "let the input run ahead of the training", "dataset = dataset.prefetch(tf.data.AUTOTUNE)", "feeds_dataset"
)
PARALLEL = Advice(
    "prepare batches in parallel",
    "dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)",
    "feeds_dataset",
)
CACHE = Advice("keep what fits in memory after the first epoch", "dataset = dataset.cache()", "feeds_dataset")
INTERLEAVE = Advice(
    "a generator gives one batch at a time: read several in parallel", "tf.data.Dataset.interleave(...)",
    "feeds_from_generator",
)  # fmt: skip
NO_GENERATOR = Advice(
    "a Python generator makes one batch at a time under the interpreter's lock; workers of a PyDataset prepare several",
    "keras.utils.PyDataset(workers=4, use_multiprocessing=True)", "feeds_generator",
)  # fmt: skip
WORKERS = Advice(
    "have several workers prepare batches", "super().__init__(workers=4, use_multiprocessing=True)",
    "feeds_pydataset_keras3",
)  # fmt: skip
WORKERS_KERAS2 = Advice(
    "have several workers prepare batches", "model.fit(..., workers=4, use_multiprocessing=True)",
    "feeds_sequence_keras2",
)  # fmt: skip
LOADER = Advice(
    "have worker processes load the batches",
    "torch.utils.data.DataLoader(dataset, num_workers=4)",
    "feeds_loader",
)
ONCE = Advice("see what {place} does for each batch, and do once what does not change")
SLOW_INPUT = (PREFETCH, PARALLEL, INTERLEAVE, CACHE, NO_GENERATOR, WORKERS, WORKERS_KERAS2, LOADER, ONCE)
SOCKET = Advice(
    "give the socket for which {place} waits a time limit, and connect again when it has passed",
    "connection.settimeout(30)", "waits_on_socket",
)  # fmt: skip
PIPE = Advice(
    "{place} waits for a pipe or a file: see which program writes it, and whether that still runs",
    when="waits_on_pipe",
)  # fmt: skip
SMALLER = (
    Advice("a smaller batch needs less memory", "model.fit(..., batch_size=batch_size // 2)", "off_torch"),
    Advice(
        "a smaller batch needs less memory", "DataLoader(dataset, batch_size=batch_size // 2)", "on_torch"
    ),
)
HALF_PRECISION = (
    Advice(
        "half precision takes about half the memory", 'keras.mixed_precision.set_global_policy("mixed_float16")',
        "off_torch",
    ),
    Advice(
        "half precision takes about half the memory", 'torch.autocast("cuda", dtype=torch.bfloat16)', "on_torch"
    ),
)  # fmt: skip
STREAM = Advice(
    "stream the data instead of holding all of it in memory",
    "dataset = dataset.batch(batch_size).prefetch(2)", "off_torch",
)  # fmt: skip
BUILD_ONCE = Advice(
    "build and compile the model once, before the loop; if it must be built again, free the old one first",
    "keras.backend.clear_session()", "rebuilt",
)  # fmt: skip
BOUNDED = Advice(
    "{object} grows with the training: keep a bounded part of it, or numbers in place of arrays and tensors",
    "collections.deque(maxlen=1000)", "object_grows",
)  # fmt: skip
KEPT = Advice(
    "see what the script keeps of each batch: a list, a dictionary, a tensor with its graph",
    when="nothing_named_grows",
)  # fmt: skip
SEGMENTS = Advice(
    "until the leak is found, restart on purpose before memory runs out", "stallguard run --segments 2h ..."
)
PINS = Advice(
    "use versions that load together (Python 3.10 to 3.12)",
    'pip install "tensorflow==2.18.1" "tensorflow-metal==1.2.0"',
)
WITHOUT_PLUGIN = Advice("or train on the CPU", "pip uninstall tensorflow-metal")
ON_CPU = (
    Advice(
        "the same training on the CPU shows whether the GPU is the cause",
        'tf.config.set_visible_devices([], "GPU")', "uses_gpu on_tensorflow",
    ),
    Advice(
        "a comparison with the CPU shows whether the GPU is the cause",
        "stallguard compare --device cpu,gpu train.py", "uses_gpu on_torch",
    ),
)  # fmt: skip
NO_REMAPPER = Advice(
    "an experiment: let the plug-in leave the graph as it is",
    "TURN_OFF_REMAPPER=1 stallguard run ...",
    "on_metal off_torch",
)
NO_CACHE = Advice(
    "an experiment: let the plug-in keep less memory", "TF_MPS_DISABLE_ALLOCATION_CACHE=1 stallguard run ...",
    "on_metal off_torch",
)  # fmt: skip
DISPLAY = Advice(
    "let the display sleep while it trains; the limit holds only while it is on", "pmset displaysleepnow"
)
RELAX = Advice(
    "if it comes back, the driver's limit can be relaxed at your own risk",
    "AGX_RELAX_CDM_CTXSTORE_TIMEOUT=1 stallguard run ...",
)
FEWER_CALLS = Advice(
    "small steps spend their time between Python and the device", "model.compile(..., steps_per_execution=16)",
    "on_keras",
)  # fmt: skip
FIXED_SHAPES = Advice(
    "give the graph one shape, so that it is traced once", "dataset.batch(batch_size, drop_remainder=True)"
)
OUTSIDE_LOOP = Advice("decorate the step once, outside of the loop", "@tf.function(reduce_retracing=True)")
