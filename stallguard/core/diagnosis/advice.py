"""What helps against a cause: a sentence, and where it fits a line for the user's script or shell.

Taken from the collected reports on Metal training and from the documents on stalls that the product grew from.
Nothing is advised where the evidence is thin, and nothing for Metal where there is none.
This module may not judge a scene.
"""

from __future__ import annotations

from typing import NamedTuple

from stallguard.core.diagnosis import causes
from stallguard.core.diagnosis.clues import Clue, Scene, gpu, heartbeat, tree

ENOUGH = 0.45  # confidence below which nothing is advised
MOST = 4  # pieces of advice


class Advice(NamedTuple):
    """One piece.  `code`: a line to use; `when`: the clue that must hold for it to apply."""

    text: str
    code: str = ""
    when: Clue | None = None

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
    "build and compile the model once, before the loop; where it must be anew, free the old one first",
    "keras.backend.clear_session()",
)
SEGMENTS = Advice(
    "until the leak is found, restart on purpose before it hurts", "stallguard run --segments 2h ..."
)
PINS = Advice(
    "use versions that load together (Python 3.10 to 3.12)",
    'pip install "tensorflow==2.18.1" "tensorflow-metal==1.2.0"',
)
WITHOUT_PLUGIN = Advice("or train on the CPU", "pip uninstall tensorflow-metal")
ON_CPU = Advice(
    "the same training on the CPU tells whether the GPU is to blame",
    'tf.config.set_visible_devices([], "GPU")',
)
NO_REMAPPER = Advice(
    "an experiment: let the plug-in leave the graph as it is",
    "TURN_OFF_REMAPPER=1 stallguard run ...",
    gpu.on_metal,
)
NO_CACHE = Advice(
    "an experiment: let the plug-in keep less memory", "TF_MPS_DISABLE_ALLOCATION_CACHE=1 stallguard run ...",
    gpu.on_metal,
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

ADVICE: dict[str, tuple[Advice, ...]] = {
    causes.DEVICE_WAIT: (
        Advice("start a new process: in every report that tells of one, the training went on"),
        ON_CPU._replace(when=gpu.uses_gpu), NO_REMAPPER,
    ),
    causes.HOST_DEADLOCK: (
        Advice("the stacks kept with the incident name the lines that wait; see who should release, put or set there"),
        Advice(
            "worker processes of a pool must not die unseen; prefer tf.data's own threads to multiprocessing",
            when=tree.has_workers,
        ),
    ),
    causes.OUTSIDE_WAIT: (
        Advice("give the call that waits a time limit", "requests.get(url, timeout=30)", tree.waits_in_script),
    ),
    causes.GIL_HELD: (
        Advice("the stacks kept with the incident name the native call; update or avoid that library"),
    ),
    causes.BUSY_LOOP: (
        Advice("look at the line that the stack names: it runs, and its condition never comes true"),
        Advice("move work on numbers out of Python loops", "@tf.function", heartbeat.outside_step),
    ),
    causes.INPUT_STARVATION: (PREFETCH, PARALLEL, NO_GENERATOR, Advice("keep what fits in memory", "dataset.cache()")),
    causes.MEMORY_THRASH: (SMALLER, HALF_PRECISION, STREAM, NO_CACHE),
    causes.MEMORY_GROWTH: (BUILD_ONCE, SEGMENTS, NO_CACHE),
    causes.GPU_ERROR: (
        Advice("the numbers after a GPU error are not to be trusted: compare the loss with the last good checkpoint"),
        Advice("close other programs that use the GPU"),
    ),
    causes.GPU_ERROR_STICKY: (
        Advice("this process gets no GPU time any more and computes nonsense; only a new process helps"),
        Advice("close other programs that use the GPU"),
    ),
    causes.GPU_OUT_OF_MEMORY: (SMALLER, HALF_PRECISION, NO_CACHE),
    causes.GPU_INTERACTIVITY: (
        DISPLAY, RELAX, Advice("a smaller batch has not helped against this in the reports that tried it"),
    ),
    causes.THROTTLED: (
        Advice("cool the machine, and let it draw from the mains with low-power mode off"),
        Advice("end other programs that keep the processor or the GPU busy"),
    ),
    causes.TRANSIENT: (Advice("nothing, while it stays rare; more than three an hour mean heat or another GPU user"),),
    causes.CPU_FALLBACK: (
        Advice("see what the doctor finds", "stallguard doctor"),
        Advice(
            "ask TensorFlow what it has",
            'python -c "import tensorflow as tf; print(tf.config.list_physical_devices())"',
        ),
        PINS._replace(when=gpu.on_metal),
    ),
    causes.RETRACING: (OUTSIDE_LOOP, FIXED_SHAPES, BUILD_ONCE, FEWER_CALLS),
    causes.SLOW_OPTIMIZER: (
        Advice("Keras 2 keeps the faster one", "optimizer=tf.keras.optimizers.legacy.Adam()"),
        FEWER_CALLS,
    ),
    causes.STOPPED: (Advice("let it go on", "kill -CONT PID"),),
    causes.OUT_OF_MEMORY_KILL: (SMALLER, STREAM, SEGMENTS._replace(when=tree.growing), HALF_PRECISION),
    causes.OUT_OF_MEMORY: (SMALLER, STREAM, HALF_PRECISION),
    causes.NATIVE_CRASH: (
        Advice("the crash report and the last lines name the library: update it, or train without the GPU"),
    ),
    causes.SIZE_LIMIT: (SMALLER, Advice("or split the largest layer: one tensor may not exceed 4 GiB")),
    causes.STUCK_IN_KERNEL: (Advice("reboot: no signal reaches a process in this state"),),
    causes.GPU_BUSY_AFTER_KILL: (Advice("reboot: nothing else has freed the GPU"),),
    causes.MACHINE_FROZE: (
        Advice("save often, and train in segments with a pause", "stallguard run --segments 1h --cool-down 90s ..."),
        SMALLER,
    ),
    causes.PLUGIN_MISMATCH: (PINS, WITHOUT_PLUGIN),
    causes.MUTEX_CLASH: (
        Advice("keep the two libraries from sharing a process", 'pip install "tensorflow<2.20" "pyarrow<18"'),
        Advice("or import TensorFlow before the other library"),
    ),
    causes.ROSETTA: (
        Advice("use an interpreter built for arm64", 'python -c "import platform; print(platform.machine())"'),
    ),
    causes.WRONG_NUMBERS: (
        Advice("go back to the last checkpoint with a finite loss, and lower the learning rate"),
        ON_CPU._replace(when=gpu.uses_gpu),
    ),
    causes.EXIT_HANG: (Advice("the model is trained; end the threads and data sets that the script leaves behind"),),
    causes.DATA_ENDED: (Advice("let the data set begin again", "dataset = dataset.repeat()"),),
    causes.SILENT_EXIT: (Advice("look for sys.exit, os._exit or quit in the script and its libraries"),),
}  # fmt: skip


def of(cause: str, confidence: float, scene: Scene) -> tuple[str, ...]:
    """Return what helps against `cause`, most useful first; nothing where the evidence is thin."""
    if confidence < ENOUGH:
        return ()
    fitting = [
        piece for piece in ADVICE.get(cause, ()) if piece.when is None or piece.when.ask(scene) is not None
    ]
    return tuple(piece.sentence() for piece in fitting[:MOST])
