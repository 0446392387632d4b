"""The causes of a stall or of an end: one row for each, with what is said about it, advised and done.

Adding a cause takes a row here and a pattern of clues in core.diagnosis.patterns.  The columns are those of
`Cause`; a row returns its key, so that code names a cause as causes.DEVICE_WAIT and a journal as "device-wait".

A remedy is a value that core.policy.decide reads.  Its ladder lists the steps that are taken one after the other
against one trouble (core.policy.one_trouble):

    same    a new process from the last checkpoint, with the same batch
    half    the same in twice as many micro-batches: half the memory a step, the same batch for the optimizer
    cpu     the same without the GPU

A step that cannot be taken (the batch cannot be halved, or no GPU is in use) is skipped.  The steps of another cause
that is about as likely follow (core.policy.decide).  After the end of all ladders the run continues with `same` as
long as each attempt gets further than the one before, unless the ladder is `strict`.
`persists`: the last step is repeated for as long as it can be taken, because each time it changes something; the steps
of another cause come after that.
`instead` names what is done at once, without a ladder: wait, notify, stop, finish.

The remedies were read beside the collected reports on Metal training:
- A new process restored service in every report that says what happened after one, so most remedies begin with `same`.
- A lack of memory is halved at once, and again for as long as the batch can be halved.
- Several reports tried a smaller batch against the display's watchdog, and it did not help.
- A native crash is retried three times and no more (`strict`): at the fourth it is not random.
- No restart helps if every start ends in the same way, if the kernel or the GPU needs a reboot, if the training is
  over, or if it is only slow.

Advice is what a user can change against a cause, with a line for the script or the shell if there is one; it comes from
the same reports.  `when` has the names of the clues that must hold for a piece to apply: nothing for Metal is advised
on another GPU, and nothing of tf.data for a generator.  Names, because `config` imports this module before the first
attempt starts, and the clues import the history: this module must stay cheap to import.  It must not decide anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

SAME, HALF, CPU = "same", "half", "cpu"
WAIT, NOTIFY, STOP, FINISH = "wait", "notify", "stop", "finish"


class Remedy(NamedTuple):
    """What to do about a cause, and why."""

    ladder: tuple[str, ...]
    why: str
    persists: bool = False
    strict: bool = False
    instead: str = ""


def no_restart(instead: str, why: str) -> Remedy:
    """Return the remedy of a cause that a restart does not help against."""
    return Remedy((), why, instead=instead)


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


# fmt: off
PREFETCH = Advice("let the input run ahead of the training", "dataset = dataset.prefetch(tf.data.AUTOTUNE)",
    "feeds_dataset")
PARALLEL = Advice("prepare batches in parallel", "dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)",
    "feeds_dataset")
CACHE = Advice("keep what fits in memory after the first epoch", "dataset = dataset.cache()", "feeds_dataset")
INTERLEAVE = Advice("a generator gives one batch at a time: read several in parallel",
    "tf.data.Dataset.interleave(...)", "feeds_from_generator")
NO_GENERATOR = Advice(
    "a Python generator makes one batch at a time under the interpreter's lock; workers of a PyDataset prepare several",
    "keras.utils.PyDataset(workers=4, use_multiprocessing=True)", "feeds_generator",
)
WORKERS = Advice("have several workers prepare batches", "super().__init__(workers=4, use_multiprocessing=True)",
    "feeds_pydataset_keras3")
WORKERS_KERAS2 = Advice("have several workers prepare batches", "model.fit(..., workers=4, use_multiprocessing=True)",
    "feeds_sequence_keras2")
LOADER = Advice("have worker processes load the batches", "torch.utils.data.DataLoader(dataset, num_workers=4)",
    "feeds_loader")
ONCE = Advice("see what {place} does for each batch, and do once what does not change")
SLOW_INPUT = (PREFETCH, PARALLEL, INTERLEAVE, CACHE, NO_GENERATOR, WORKERS, WORKERS_KERAS2, LOADER, ONCE)
SOCKET = Advice("give the socket for which {place} waits a time limit, and connect again when it has passed",
    "connection.settimeout(30)", "waits_on_socket")
PIPE = Advice("{place} waits for a pipe or a file: see which program writes it, and whether that still runs",
    when="waits_on_pipe")
SMALLER = (
    Advice("a smaller batch needs less memory", "model.fit(..., batch_size=batch_size // 2)", "off_torch"),
    Advice("a smaller batch needs less memory", "DataLoader(dataset, batch_size=batch_size // 2)", "on_torch"),
    Advice("a smaller batch needs less memory", "batch_size = batch_size // 2", "on_mlx"),
)
# gh:ml-explore/mlx/issues/3350, gh:kyutai-labs/pocket-tts/issues/255: caches of several times what lives.
GIVE_BACK = (
    Advice("MLX keeps what it frees for later arrays: give it back, every some steps", "mx.clear_cache()", "on_mlx"),
    Advice("PyTorch keeps what it frees for later tensors: give it back, every some steps",
        "torch.mps.empty_cache()", "on_metal on_torch"),
)
WIRED = Advice("keep what the GPU uses from being swapped (a driver's fault with it restarted a Mac: mlx#3186)",
    'mx.set_wired_limit(mx.device_info()["max_recommended_working_set_size"])', "on_metal on_mlx")
HALF_PRECISION = (
    Advice("half precision takes about half the memory", 'keras.mixed_precision.set_global_policy("mixed_float16")',
        "off_torch"),
    Advice("half precision takes about half the memory", 'torch.autocast("cuda", dtype=torch.bfloat16)', "on_torch"),
)
STREAM = Advice("stream the data instead of holding all of it in memory",
    "dataset = dataset.batch(batch_size).prefetch(2)", "off_torch")
BUILD_ONCE = Advice(
    "build and compile the model once, before the loop; if it must be built again, free the old one first",
    "keras.backend.clear_session()", "rebuilt")
BOUNDED = Advice(
    "{object} grows with the training: keep a bounded part of it, or numbers in place of arrays and tensors",
    "collections.deque(maxlen=1000)", "object_grows")
KEPT = Advice("see what the script keeps of each batch: a list, a dictionary, a tensor with its graph",
    when="nothing_named_grows")
SEGMENTS = Advice("until the leak is found, restart on purpose before memory runs out",
    "stallguard run --segments 2h ...")
# README.md and `doctor` say the same.  Sources: the files of both packages on the index; the documents of
# tensorflow-metal-plugin 0.4.1; gh:tensorflow/tensorflow/pull/126360.
PIN = "pip install 'tensorflow==2.18.1' 'tensorflow-metal==1.2.0'"
PIN_PYTHONS = "Python 3.9 to 3.12"
PIN_LIMITS = (
    "tensorflow-metal 1.2.0 does not load with TensorFlow 2.20 or later, and has no wheel for Python 3.13 or later"
)
COMMUNITY = (
    "the community's tensorflow-metal-plugin 0.4.1, which pip builds from source, "
    "needs TensorFlow 2.21 and macOS 15 or later"
)
PINS = Advice(f"use versions that load together, with {PIN_PYTHONS} ({PIN_LIMITS}; {COMMUNITY})", PIN)
WITHOUT_PLUGIN = Advice("or train on the CPU", "pip uninstall tensorflow-metal")
ON_CPU = (
    Advice("the same training on the CPU shows whether the GPU is the cause",
        'tf.config.set_visible_devices([], "GPU")', "uses_gpu on_tensorflow"),
    Advice("a comparison with the CPU shows whether the GPU is the cause",
        "stallguard tune compare --device cpu,gpu train.py", "uses_gpu on_torch"),
)
NO_REMAPPER = Advice("an experiment: let the plug-in leave the graph as it is",
    "TURN_OFF_REMAPPER=1 stallguard run ...", "on_metal off_torch")
NO_CACHE = Advice("an experiment: let the plug-in keep less memory",
    "TF_MPS_DISABLE_ALLOCATION_CACHE=1 stallguard run ...", "on_metal off_torch")
DISPLAY = Advice("let the display sleep while it trains (--display-sleep); the limit is that of one that is on",
    "pmset displaysleepnow")
RELAX = Advice("if it comes back, the driver's limit can be relaxed at your own risk",
    "AGX_RELAX_CDM_CTXSTORE_TIMEOUT=1 stallguard run ...")
FEWER_CALLS = Advice("small steps spend their time between Python and the device",
    "model.compile(..., steps_per_execution=16)", "on_keras")
FIXED_SHAPES = Advice("give the graph one shape, so that it is traced once",
    "dataset.batch(batch_size, drop_remainder=True)")
OUTSIDE_LOOP = Advice("decorate the step once, outside of the loop", "@tf.function(reduce_retracing=True)")
# fmt: on


class Cause(NamedTuple):
    """One row.  A finding carries the key alone."""

    key: str  # in journals, settings and JSON
    title: str  # as a clause; {library} and {call} are what does not return
    remedy: Remedy
    advice: tuple[Advice, ...]  # what the user can change, most useful first
    advisory: bool  # also announced while batches go on: it slows the training down, or will end it
    urgent: bool  # acted upon even while batches still end: the process computes wrong numbers
    any_batch_size: bool  # a training ends like this with every batch size, so find-batch tries no other


CAUSES: dict[str, Cause] = {}
LIBRARIES = {"tensorflow": "TensorFlow", "torch": "PyTorch", "jax": "JAX", "mlx": "MLX"}
STEPS = ("step", "first run", "validation", "prediction")  # phases of the training inside of a step


def title(key: str, library: str = "", phase: str = "") -> str:
    """Return a cause as a clause: what did what; the key itself for a cause of another version's journal.

    `library`: that trains, "" if it is not known; `phase`: of the training.
    """
    call = "a step" if phase in STEPS else "a call"
    words = CAUSES[key].title if key in CAUSES else key
    return words.replace("{library}", library or "the training library").replace("{call}", call)


def library(versions: Iterable[str]) -> str:
    """Return the library that trains, of the libraries that the process has loaded; "" if several can be meant."""
    found = LIBRARIES.keys() & set(versions)
    return LIBRARIES[found.pop()] if len(found) == 1 else ""


def _cause(
    key: str, title: str, remedy: Remedy, *,
    advice: tuple[Advice, ...] = (), advisory: bool = False, urgent: bool = False, any_batch_size: bool = False,
) -> str:  # fmt: skip
    """Add a row, and return its key."""
    CAUSES[key] = Cause(key, title, remedy, advice, advisory, urgent, any_batch_size)
    return key


# fmt: off
DEVICE_WAIT = _cause("device-wait", "{library} never returned from {call}",
    Remedy((SAME, HALF, CPU), "a new process restores a device that does not answer"),
    advice=(Advice("start a new process: in every report of a restart, the training continued"), *ON_CPU, NO_REMAPPER))
# Half the batch comes last: a lock can be taken for each row, or for a shape.
HOST_DEADLOCK = _cause("host-deadlock", "it waits for a lock, a queue or an event of its own that never comes",
    Remedy((SAME, HALF), "a new process need not get into this wait again"),
    advice=(Advice("the stacks kept with the incident name the lines that wait: see which code should release them"),
        Advice("a pool of multiprocessing does not report workers that die; this one does",
            "concurrent.futures.ProcessPoolExecutor()", "has_workers")))
OUTSIDE_WAIT = _cause("outside-wait", "it waits for something outside: a network, a file, another program",
    Remedy((SAME, SAME), "a new process can get an answer"),
    advice=(SOCKET, PIPE,
        Advice("give the call that waits at {place} a time limit", when="waits_in_script waits_elsewhere")))
GIL_HELD = _cause("gil-held", "native code keeps the interpreter's lock",
    Remedy((SAME, CPU), "native code holds the interpreter's lock; the batch size does not matter"),
    advice=(Advice("the stacks kept with the incident name the native call; update or avoid that library"),))
BUSY_LOOP = _cause("busy-loop", "a loop keeps the processor busy without progress",
    Remedy((SAME,), "a new process need not get into this loop again; the batch size does not matter"),
    advice=(Advice("look at the line that the stack names: it runs, and its condition never comes true"),
        Advice("move work on numbers out of Python loops", "@tf.function", "outside_step on_tensorflow")))
INPUT_STARVATION = _cause("input-starvation", "it waits for its input",
    Remedy((SAME, SAME), "a new process can get an answer from the source of the data"),
    advice=(*(piece._replace(when=f"silent {piece.when}") for piece in (SOCKET, PIPE)),
        Advice("a time limit makes an error of a worker that hangs",
            "torch.utils.data.DataLoader(dataset, num_workers=4, timeout=60)", "silent feeds_workers"),
        Advice("the stacks kept with the incident show for what {place} waits", when="silent"),
        *(piece._replace(when=f"slow {piece.when}".strip()) for piece in SLOW_INPUT)),
    advisory=True)
MEMORY_THRASH = _cause("memory-thrash", "memory is swapped in and out",
    Remedy((HALF,), "half the batch needs less memory", persists=True),
    advice=(*SMALLER, *HALF_PRECISION, STREAM, *GIVE_BACK, WIRED, NO_CACHE), advisory=True)
MEMORY_GROWTH = _cause("memory-growth", "memory leaks",
    Remedy((SAME, HALF), "a new process frees the leaked memory", persists=True),
    advice=(BUILD_ONCE, *GIVE_BACK, KEPT, SEGMENTS, NO_CACHE), advisory=True)
# The next two are found by core.memory_ahead, while the training still trains.
MEMORY_RUNS_OUT = _cause("memory-runs-out", "a leak is about to use up the memory",
    Remedy((SAME,), "a new process frees the leaked memory", persists=True),
    advice=(BOUNDED, BUILD_ONCE, *GIVE_BACK, KEPT, SEGMENTS))
OBJECT_GROWS = _cause("object-grows", "an object of the script grows until the memory is used up",
    Remedy((SAME,), "a new process begins with less memory; a smaller batch keeps as much", persists=True),
    advice=(BOUNDED, SEGMENTS), advisory=True)
STEPS_NEED_MORE = _cause("steps-need-more", "its steps need more and more memory",
    Remedy((HALF,), "half the batch needs less memory", persists=True), advice=(*SMALLER, *HALF_PRECISION))
GPU_ERROR = _cause("gpu-error", "the GPU reported an error",
    Remedy((SAME, HALF, CPU), "a GPU error breaks the process, not the machine"),
    advice=(
        Advice("the numbers after a GPU error are not to be trusted: compare the loss with the last good checkpoint"),
        Advice("close other programs that use the GPU")),
    advisory=True)
GPU_ERROR_STICKY = _cause("gpu-error-sticky", "the GPU refuses this process since an earlier error",
    Remedy((SAME, SAME, CPU), "the driver ignores this process until it ends; it serves a new one"),
    advice=(Advice("the GPU refuses this process, and its results are wrong; only a new process helps"),
        Advice("close other programs that use the GPU")),
    urgent=True)
GPU_OUT_OF_MEMORY = _cause("gpu-out-of-memory", "the batch is too large for the memory of the GPU",
    Remedy((HALF,), "half the batch needs less memory", persists=True),
    advice=(*SMALLER, *HALF_PRECISION, *GIVE_BACK, NO_CACHE))
GPU_INTERACTIVITY = _cause("gpu-interactivity", "macOS ended work of the GPU because it blocked the display",
    Remedy((SAME, SAME), "the display's watchdog ended the work, and a smaller batch does not prevent that"),
    advice=(DISPLAY, RELAX, Advice("a smaller batch has not helped against this in the reports that tried it")))
# The next four: an error of CUDA ends all work of the process on the GPU, also if the script goes on.
LAUNCH_BLOCKING = Advice("the line of the traceback can be a later one: see which call it is",
    "CUDA_LAUNCH_BLOCKING=1 stallguard run ...")
CUDA_FAULT = _cause("cuda-fault", "a kernel failed on the GPU, which refuses this process since then",
    Remedy((SAME,), "CUDA refuses this process after such an error; it serves a new one"),
    advice=(LAUNCH_BLOCKING._replace(text="if it comes back at the same place, see which call it is"),
        Advice("find the kernel that reads or writes outside of its memory", "compute-sanitizer python train.py")),
    urgent=True)
CUDA_ASSERT = _cause("cuda-assert", "the script gave the GPU an index or a label that is out of range",
    no_restart(STOP, "an index or a label is out of range, and the same data would fail again"),
    advice=(Advice("check the labels and indices: from 0, and less than the number of classes or rows"),
        LAUNCH_BLOCKING),
    urgent=True, any_batch_size=True)
GPU_MEMORY_FAULT = _cause("gpu-memory-fault", "the GPU reported an error that it cannot correct",
    Remedy((SAME,), "the driver sets faulty memory aside, and a new process gets other memory"),
    advice=(Advice("see its counters; if they rise again after a reset, replace the GPU",
        "nvidia-smi --query --display=ECC,ROW_REMAPPER"),),
    urgent=True)
GPU_LOST = _cause("gpu-lost", "the machine does not reach its GPU any more",
    no_restart(STOP, "no process of this machine reaches the GPU any more"),
    advice=(Advice("restart the machine; if it comes back, check power, heat and seat of the GPU"),))
NCCL = _cause("nccl", "processes that train together lost each other",
    Remedy((SAME, SAME), "new processes find each other again"),
    advice=(Advice("look for the process that failed or stopped first: the others only wait for it"),
        Advice("have NCCL print what it does", "NCCL_DEBUG=INFO stallguard run ...")))
THROTTLED = _cause("throttled", "the machine became slower", no_restart(NOTIFY, "slow is not stalled"),
    advice=(Advice("cool the machine, connect it to mains power, and turn low-power mode off"),
        Advice("end other programs that keep the processor or the GPU busy")),
    advisory=True)
TRANSIENT = _cause("transient", "the GPU paused, and went on by itself", no_restart(NOTIFY, "it continued by itself"),
    advice=(Advice("none needed while it is rare; more than three an hour mean heat or another program on the GPU"),))
CPU_FALLBACK = _cause("cpu-fallback", "it trains on the CPU although there is a GPU",
    no_restart(NOTIFY, "slow is not stalled"),
    advice=(Advice("run the doctor", "stallguard doctor"),
        Advice("list the devices that TensorFlow finds",
            'python -c "import tensorflow as tf; print(tf.config.list_physical_devices())"', "on_tensorflow"),
        Advice("see whether PyTorch finds the GPU",
            'python -c "import torch; print(torch.cuda.is_available(), torch.backends.mps.is_available())"',
            "on_torch"),
        PINS._replace(when="on_metal off_torch")),
    advisory=True)
RETRACING = _cause("retracing", "its graph is built anew again and again", no_restart(NOTIFY, "slow is not stalled"),
    advice=(OUTSIDE_LOOP, FIXED_SHAPES, BUILD_ONCE, FEWER_CALLS), advisory=True)
SLOW_OPTIMIZER = _cause("slow-optimizer", "its optimizer is slow on this machine",
    no_restart(NOTIFY, "slow is not stalled"),
    advice=(Advice("Keras 2 keeps the faster one", "optimizer=tf.keras.optimizers.legacy.Adam()"), FEWER_CALLS),
    advisory=True)
STOPPED = _cause("stopped", "the process is stopped (SIGSTOP)",
    no_restart(NOTIFY, "the process was stopped from outside, and the reason is not known"),
    advice=(Advice("let it continue", "kill -CONT {pid}"),))
ASLEEP = _cause("asleep", "the machine slept", no_restart(WAIT, "the machine slept and has just woken"))
SAVING = _cause("saving", "a checkpoint takes long", no_restart(WAIT, "a checkpoint is being written"))
COMPILING = _cause("compiling", "a compilation takes long",
    no_restart(NOTIFY, "a restart would repeat the compilation"))
DATA_ENDED = _cause("data-ended", "the data set came to its end",
    no_restart(NOTIFY, "the data ended, and a restart does not bring more"),
    advice=(Advice("repeat the data set", "dataset = dataset.repeat()", "feeds_dataset"),
        Advice("let the generator begin again at its end", "while True: yield from batches()", "feeds_generator")))
OUT_OF_MEMORY_KILL = _cause("out-of-memory-kill", "the system killed it for lack of memory",
    Remedy((HALF,), "half the batch needs less memory", persists=True),
    advice=(*SMALLER, STREAM, SEGMENTS._replace(when="growing"), *HALF_PRECISION))
OUT_OF_MEMORY = _cause("out-of-memory", "an allocation failed for lack of memory",
    Remedy((HALF,), "half the batch needs less memory", persists=True), advice=(*SMALLER, STREAM, *HALF_PRECISION))
KILLED = _cause("killed", "the process was killed from outside",
    Remedy((SAME,), "the process was killed from outside; the training did not cause it", persists=True))
NATIVE_CRASH = _cause("native-crash", "native code crashed",
    Remedy((SAME, SAME, SAME, CPU), "native crashes are often random", strict=True),
    advice=(Advice("the crash report and the last lines name the library: update it, or train without the GPU"),))
SIZE_LIMIT = _cause("size-limit", "a tensor is larger than Metal can address",
    Remedy((HALF, HALF, CPU), "half the batch makes the tensor smaller"),
    advice=(*SMALLER, Advice("or split the largest layer: one tensor cannot exceed 4 GiB")))
SCRIPT_ERROR = _cause("script-error", "your script failed", no_restart(FINISH, "your script failed"),
    advice=(Advice("correct the line that the traceback names; until then the same command ends in the same way"),),
    any_batch_size=True)
SILENT_EXIT = _cause("silent-exit", "the process ended without an error message",
    no_restart(FINISH, "the script ended by itself"),
    advice=(Advice("look for sys.exit, os._exit or quit in the script and its libraries"),), any_batch_size=True)
STUCK_IN_KERNEL = _cause("stuck-in-kernel", "the process is stuck in the kernel",
    no_restart(STOP, "the process is stuck in the kernel; only a reboot helps"),
    advice=(Advice("reboot: no signal reaches a process in this state"),))
GPU_BUSY_AFTER_KILL = _cause("gpu-busy-after-kill", "the GPU stays busy although its process is gone",
    no_restart(STOP, "the GPU is still busy without the training; only a reboot helps"),
    advice=(Advice("reboot: nothing else has freed the GPU"),))
MACHINE_FROZE = _cause("machine-froze", "the machine froze",
    no_restart(NOTIFY, "the machine crashed and has restarted"),
    advice=(
        Advice("save often, and train in segments with a pause", "stallguard run --segments 1h --cool-down 90s ..."),
        *SMALLER))
PLUGIN_MISMATCH = _cause("plugin-mismatch", "tensorflow-metal does not fit this TensorFlow",
    no_restart(STOP, "the installed versions cannot load; every start would end like this"),
    advice=(PINS, WITHOUT_PLUGIN), advisory=True, any_batch_size=True)
MUTEX_CLASH = _cause("mutex-clash", "two libraries with one runtime in common wait for each other",
    no_restart(STOP, "the installed versions wait for each other; every start would end like this"),
    advice=(Advice("keep the two libraries from sharing a process", 'pip install "tensorflow<2.20" "pyarrow<18"'),
        Advice("or import TensorFlow before the other library")),
    any_batch_size=True)
# gh:pytorch/pytorch/issues/193520, gh:pytorch/pytorch/issues/136217.  One thread is no rung: sums would end otherwise.
OPENMP_CLASH = _cause("openmp-clash", "two runtimes of OpenMP in one process wait for each other",
    Remedy((SAME, SAME), "this wait comes and goes: a new process can get through"),
    advice=(Advice("have one runtime of OpenMP: install what brings them from one source, conda-forge or PyPI, and "
            "unset KMP_DUPLICATE_LIB_OK"),
        Advice("until then, one thread waits for no other; it is slower, and sums can differ in their last bits",
            "OMP_NUM_THREADS=1 stallguard run ...")))
ROSETTA = _cause("rosetta", "the interpreter is built for Intel, and Rosetta translates it",
    no_restart(NOTIFY, "slow is not stalled"),
    advice=(Advice("use an interpreter built for arm64", 'python -c "import platform; print(platform.machine())"'),),
    advisory=True)
WRONG_NUMBERS = _cause("wrong-numbers", "the loss is not a number",
    no_restart(NOTIFY, "a restart would compute the same"),
    advice=(Advice("go back to the last checkpoint with a finite loss, and lower the learning rate"), *ON_CPU),
    advisory=True)
EXIT_HANG = _cause("exit-hang", "the interpreter does not end after the training",
    no_restart(FINISH, "the training is finished; only its interpreter does not end"),
    advice=(Advice("the model is trained; end the threads and data sets that the script leaves open"),))
FINISHED = _cause("finished", "the training is finished", no_restart(FINISH, "the training is finished"))
ENDED_BY_REQUEST = _cause("ended-by-request", "the training was ended on request",
    no_restart(FINISH, "the training was ended on request"), any_batch_size=True)
UNKNOWN = _cause("unknown", "the evidence does not show it",
    Remedy((SAME, SAME), "a new process is the remedy that works most often"))
# fmt: on
