"""Public reports of trainings that stalled or ended, as data: how they show, and what helped there.

This module holds data only; known_problems.py describes the columns.  What helped is what the report says; it was not
tried again.
"""

from __future__ import annotations

from stallguard.core.diagnosis import causes
from stallguard.core.diagnosis.known_problem import KnownProblem

GPU = (causes.GPU_ERROR, causes.GPU_ERROR_STICKY, causes.NATIVE_CRASH, causes.DEVICE_WAIT)
IN_A_STEP = ("step", "between", "epoch start")
GITHUB = "https://github.com/"
NONE = "nothing so far"

TABLE: tuple[KnownProblem, ...] = (
    KnownProblem(
        "tensorflow/tensorflow#99464", GITHUB + "tensorflow/tensorflow/issues/99464",
        "TensorFlow 2.20 and pyarrow in one process block each other at the import",
        "TensorFlow 2.19",
        (causes.MUTEX_CLASH, causes.NATIVE_CRASH), ("mutex_lock_blocking", "mutex_invalid"), phases=("importing",),
    ),
    KnownProblem(
        "google-deepmind/gemma#426", GITHUB + "google-deepmind/gemma/issues/426",
        "building a model waits for a lock of abseil for ever",
        "tensorflow<2.20 together with pyarrow 17",
        (causes.MUTEX_CLASH, causes.NATIVE_CRASH), ("mutex_lock_blocking",),
    ),
    KnownProblem(
        "Blaizzy/mlx-vlm#468", GITHUB + "Blaizzy/mlx-vlm/issues/468",
        "an import waits for ever because TensorFlow 2.20 is installed beside it",
        "pip uninstall tensorflow, if the program does not need it",
        (causes.MUTEX_CLASH,), ("mutex_lock_blocking",),
    ),
    KnownProblem(
        "DeepLabCut/DeepLabCut#2427", GITHUB + "DeepLabCut/DeepLabCut/issues/2427",
        "a mutex fails after 20 000 to 50 000 iterations on an M2",
        "starting again from the last snapshot",
        (causes.NATIVE_CRASH,), ("mutex_invalid",), phases=IN_A_STEP,
    ),
    KnownProblem(
        "tensorflow/tensorflow#57058", GITHUB + "tensorflow/tensorflow/issues/57058",
        "a command buffer ends with Internal Error 0000000e, and the training goes on",
        NONE,
        (*GPU, causes.GPU_INTERACTIVITY), ("iogpu_internal",),
    ),
    KnownProblem(
        "WebODM/OpenSplat#198", GITHUB + "WebODM/OpenSplat/issues/198",
        "Internal Error 0000000e, then a loss that is not a number",
        "nothing so far; the reporter asks for the step to be computed again",
        (causes.WRONG_NUMBERS,), ("iogpu_internal",),
    ),
    KnownProblem(
        "apple/tensorflow_macos#202", GITHUB + "apple/tensorflow_macos/issues/202",
        "the driver ignores all work of the process after GPU errors, and the model is useless",
        "training on the CPU",
        GPU, ("iogpu_ignored",),
    ),
    KnownProblem(
        "jundot/omlx#3706", GITHUB + "jundot/omlx/issues/3706",
        "two GPU timeouts, then the driver ignores the process for good",
        "ending the process and starting it again; no other process with a higher priority on the GPU",
        GPU, ("iogpu_ignored",),
    ),
    KnownProblem(
        "pytorch/pytorch#125954", GITHUB + "pytorch/pytorch/issues/125954",
        "steps take 65 s for a while, then the GPU reports a timeout",
        "resuming the training; the error did not come back",
        GPU, ("iogpu_timeout",),
    ),
    KnownProblem(
        "VincentGourbin/flux-2-swift-mlx#126", GITHUB + "VincentGourbin/flux-2-swift-mlx/issues/126",
        "a GPU timeout with memory to spare",
        NONE,
        GPU, ("iogpu_timeout",),
    ),
    KnownProblem(
        "discuss.pytorch.org/t/159689", "https://discuss.pytorch.org/t/gpu-training-error/159689",
        "a GPU hang is reported in each epoch once the images are larger",
        "smaller images",
        GPU, ("iogpu_hang",),
    ),
    KnownProblem(
        "tinygrad/tinygrad#7172", GITHUB + "tinygrad/tinygrad/issues/7172",
        "a GPU hang is reported at the first step",
        NONE,
        GPU, ("iogpu_hang",),
    ),
    KnownProblem(
        "tinygrad/tinygrad#3857", GITHUB + "tinygrad/tinygrad/issues/3857",
        "work is discarded as the victim of a GPU error, or the training hangs",
        "a setting of that program (JIT=2), which splits its work otherwise",
        GPU, ("iogpu_victim",),
    ),
    KnownProblem(
        "Blaizzy/mlx-vlm#1064", GITHUB + "Blaizzy/mlx-vlm/issues/1064",
        "an address fault or a hang of the GPU",
        NONE,
        GPU, ("iogpu_pagefault", "iogpu_hang"),
    ),
    KnownProblem(
        "ml-explore/mlx#3689", GITHUB + "ml-explore/mlx/issues/3689",
        "a buffer is freed while the GPU uses it",
        NONE,
        GPU, ("iogpu_invalid",),
    ),
    KnownProblem(
        "ml-explore/mlx#3267", GITHUB + "ml-explore/mlx/issues/3267",
        "the watchdog of the display ends GPU work, or the Mac restarts",
        "a display that is asleep; AGX_RELAX_CDM_CTXSTORE_TIMEOUT=1 helped some, and was not enough on an M5 Max",
        (causes.GPU_INTERACTIVITY, causes.MACHINE_FROZE, causes.NATIVE_CRASH),
        ("iogpu_interactivity", "panic_watchdogd"),
    ),
    KnownProblem(
        "tracel-ai/cubecl#1523", GITHUB + "tracel-ai/cubecl/issues/1523",
        "the watchdog of the display ends GPU work with any number of operations in a buffer",
        "nothing so far; a smaller batch made no difference",
        (causes.GPU_INTERACTIVITY, causes.NATIVE_CRASH), ("iogpu_interactivity",),
    ),
    KnownProblem(
        "ml-explore/mlx#3186", GITHUB + "ml-explore/mlx/issues/3186",
        "a fault of the GPU driver's memory restarts the Mac",
        "not calling set_wired_limit (MLX)",
        (causes.MACHINE_FROZE,), ("panic_iogpu",),
    ),
    KnownProblem(
        "ml-explore/mlx-examples#664", GITHUB + "ml-explore/mlx-examples/issues/664",
        "training slows down while it swaps, then Metal has not enough memory",
        "a training that fits into memory without swap",
        (causes.GPU_OUT_OF_MEMORY, causes.NATIVE_CRASH), ("iogpu_oom",),
    ),
    KnownProblem(
        "instructlab/instructlab#2568", GITHUB + "instructlab/instructlab/issues/2568",
        "PyTorch's limit on Metal memory is reached early in the first epoch",
        "a smaller training",
        (causes.GPU_OUT_OF_MEMORY, causes.SCRIPT_ERROR), ("torch_mps_oom",),
    ),
    KnownProblem(
        "pytorch/pytorch#143859", GITHUB + "pytorch/pytorch/issues/143859",
        "one tensor is larger than 4 GiB, and Metal ends the process",
        "a smaller batch, or a split tensor",
        (causes.SIZE_LIMIT, causes.NATIVE_CRASH), ("mpsndarray_2_32",),
    ),
    KnownProblem(
        "pytorch/pytorch#84039", GITHUB + "pytorch/pytorch/issues/84039",
        "one tensor has more than 2^31 elements, and Metal ends the process",
        "a smaller batch",
        (causes.SIZE_LIMIT, causes.NATIVE_CRASH), ("mpsndarray_2_31",),
    ),
    KnownProblem(
        "tensorflow/models#10995", GITHUB + "tensorflow/models/issues/10995",
        "MPSGraph refuses a reshape: New volume should match old volume",
        "uninstalling tensorflow-metal",
        (causes.NATIVE_CRASH,), ("mps_volume",),
    ),
    KnownProblem(
        "tensorflow/tensorflow#83371", GITHUB + "tensorflow/tensorflow/issues/83371",
        "malloc reports a pointer that was not allocated (TensorFlow 2.16 with its plug-in, M3 Max)",
        "the reporter wrote later that it was solved, not how",
        (causes.NATIVE_CRASH,), ("malloc_free",),
    ),
    KnownProblem(
        "tensorflow/tensorflow#64507", GITHUB + "tensorflow/tensorflow/issues/64507",
        "protobuf ends the process with target + size == res (TensorFlow 2.16.1)",
        "not noted here",
        (causes.NATIVE_CRASH,), ("pb_fatal",),
    ),
    KnownProblem(
        "tensorflow/tensorflow#126360", GITHUB + "tensorflow/tensorflow/pull/126360",
        "tensorflow-metal 1.2.0 does not load with TensorFlow 2.20 or later",
        "TensorFlow 2.18.1 or 2.19",
        (causes.PLUGIN_MISMATCH, causes.SCRIPT_ERROR), ("plugin_rpath",),
    ),
    KnownProblem(
        "tensorflow/tensorflow#81987", GITHUB + "tensorflow/tensorflow/issues/81987",
        "tensorflow-metal 1.1.0 does not load with TensorFlow 2.18",
        "TensorFlow 2.17, or tensorflow-metal 1.2.0",
        (causes.PLUGIN_MISMATCH, causes.SCRIPT_ERROR), ("plugin_symbol",),
    ),
    KnownProblem(
        "rstudio/tensorflow.rstudio.com#47", GITHUB + "rstudio/tensorflow.rstudio.com/issues/47",
        "XLA is asked to compile for Metal, which it does not know",
        "a legacy optimizer, or jit_compile=False",
        (causes.PLUGIN_MISMATCH, causes.SCRIPT_ERROR), ("no_platform",),
    ),
    KnownProblem(
        "tensorflow/tensorflow#61092", GITHUB + "tensorflow/tensorflow/issues/61092",
        "optimizers since TensorFlow 2.11 are slow on Apple silicon",
        "tf.keras.optimizers.legacy (Keras 2 only)",
        (causes.SLOW_OPTIMIZER,), ("optimizer_slow",),
    ),
    # Without a line of their own: only the kind of stall is alike.
    KnownProblem(
        "tensorflow/tensorflow#60267", GITHUB + "tensorflow/tensorflow/issues/60267",
        "fit hangs at the end of an epoch, before the validation, with weights for its samples",
        NONE,
        (causes.DEVICE_WAIT, causes.HOST_DEADLOCK), phases=("epoch end", "validation"), on_metal=True,
    ),
    KnownProblem(
        "birdnet-team/BirdNET-Analyzer#995", GITHUB + "birdnet-team/BirdNET-Analyzer/issues/995",
        "fit hangs in its first epoch if a window's thread started it",
        "starting it from the command line",
        (causes.DEVICE_WAIT, causes.HOST_DEADLOCK), phases=("first run", "tracing", "epoch start"), on_metal=True,
    ),
    KnownProblem(
        "tensorflow/tensorflow#50395", GITHUB + "tensorflow/tensorflow/issues/50395",
        "fit stops after a random number of batches, the GPU goes idle, and nothing is printed",
        "a new process from the last checkpoint; training on the CPU never stopped",
        (causes.DEVICE_WAIT,), phases=IN_A_STEP, on_metal=True,
    ),
    KnownProblem(
        "keras-team/keras#17515", GITHUB + "keras-team/keras/issues/17515",
        "training freezes after a certain number of samples, with each batch size (tensorflow-metal 0.5.0)",
        NONE,
        (causes.DEVICE_WAIT,), phases=IN_A_STEP, on_metal=True,
    ),
    KnownProblem(
        "tensorflow/tensorflow#60800", GITHUB + "tensorflow/tensorflow/issues/60800",
        "one epoch takes 10 to 200 times as long, then the training goes on as before",
        "nothing so far; it recovers by itself",
        (causes.TRANSIENT,), on_metal=True,
    ),
    KnownProblem(
        "tensorflow/tensorflow#62773", GITHUB + "tensorflow/tensorflow/issues/62773",
        "memory of the GPU is not released between two trainings in one process",
        "a new process for each training",
        (causes.MEMORY_GROWTH, causes.MEMORY_RUNS_OUT, causes.MEMORY_THRASH), on_metal=True,
    ),
    KnownProblem(
        "tensorflow/tensorflow#60616", GITHUB + "tensorflow/tensorflow/issues/60616",
        "a layer with argsort and gather_nd leaks memory on the GPU",
        "training on the CPU, which does not leak",
        (causes.MEMORY_GROWTH, causes.MEMORY_RUNS_OUT), on_metal=True,
    ),
    KnownProblem(
        "apple/tensorflow_macos#111", GITHUB + "apple/tensorflow_macos/issues/111",
        "the whole computer freezes in training",
        "a smaller batch, for two of three reporters",
        (causes.MACHINE_FROZE,),
    ),
    KnownProblem(
        "pytorch/pytorch#135442", GITHUB + "pytorch/pytorch/issues/135442",
        "the GPU stays fully busy after its process was killed",
        "a reboot",
        (causes.GPU_BUSY_AFTER_KILL,), on_metal=True,
    ),
)  # fmt: skip
