"""The log signatures, as data: what frameworks, drivers and the system print when a training goes wrong.

This module holds data only; signature.py describes the columns.
"""

from __future__ import annotations

from stallguard.core.diagnosis.signature import Signature
from stallguard.core.diagnosis.signatures_metal import METAL

_MEMORY = (
    Signature(
        "tf_oom", "GPU_OOM", ("alloc", " memory"),
        r"OOM when allocating tensor (?:with|of) shape|ran out of memory trying to allocate",
        "TensorFlow's allocator has no more memory",
        "strings of libtensorflow_cc 2.18.1",
    ),
    Signature(
        "cuda_oom", "GPU_OOM", (" memory",),
        r"CUDA out of memory\. Tried to allocate|CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "no more memory on the NVIDIA device: a smaller batch helps",
        "gh:pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp, CUDA driver API: cudaErrorMemoryAllocation",
    ),
    Signature(
        "xla_oom", "GPU_OOM", (" memory",),
        r"RESOURCE_EXHAUSTED: Out of memory",
        "XLA (TensorFlow, JAX) has no more memory on the device",
        "gh:openxla/xla xla/tsl/framework/bfc_allocator.cc",
    ),
    Signature(
        "python_memory", "HOST_OOM", ("Error",),
        r"(?:^|[\s.])(?:_Array)?MemoryError\b",
        "Python could not get memory from the system: a limit, or no swap",
        "docs.python.org/3/library/exceptions.html#MemoryError, gh:numpy/numpy numpy/_core/_exceptions.py",
    ),
    Signature(
        "cpp_memory", "HOST_OOM", ("alloc",),
        r"std::bad_alloc",
        "native code could not get memory from the system",
        "cppreference.com: std::bad_alloc",
    ),
    Signature(
        "tf_alloc_10pct", "INFO_MEM", (" memory",),
        r"Allocation of \d+ exceeds \d+% of free system memory",
        "one allocation is a large part of the free memory: an early hint, no error",
        "gh:tensorflow/tensorflow/issues/18736",
    ),
    Signature(
        "shell_killed", "JETSAM", ("zsh: ", "Killed: 9"),
        r"zsh: killed|Killed: 9",
        "a shell reports a SIGKILL that stallguard did not send: macOS, for lack of memory",
        "gh:tensorflow/tensorboard/issues/5658, gh:candle-org/candle/issues/327",
    ),
)  # fmt: skip

_CRASHES = (
    Signature(
        "mutex_lock_blocking", "HOST_DEADLOCK", ("mutex",),
        r"\[mutex\.cc : \d+\] RAW: (?:Reader)?Lock blocking 0x[0-9a-f]+",
        "two copies of abseil block each other (TensorFlow 2.20 with pyarrow): pin one, or import pyarrow later",
        "gh:tensorflow/tensorflow/issues/99464, gh:Blaizzy/mlx-vlm/issues/468",
    ),
    Signature(
        "mutex_invalid", "FATAL", ("mutex",),
        r"system_error: (?:recursive_)?mutex lock failed: Invalid argument",
        "a destroyed mutex was locked: the same clash at import, or a native bug after many iterations",
        "gh:tensorflow/tensorflow/issues/99464, gh:DeepLabCut/DeepLabCut/issues/2427",
    ),
    Signature(
        "libcxxabi", "FATAL", ("terminat",),
        r"libc\+\+abi: terminating due to uncaught exception",
        "a C++ exception ended the process (SIGABRT)",
        "gh:ml-explore/mlx/pull/479",
    ),
    Signature(
        "libstdcxx", "FATAL", ("terminat",),
        r"terminate called (?:after throwing an instance of|without an active exception)",
        "a C++ exception ended the process (SIGABRT), as Linux words it",
        "gh:gcc-mirror/gcc libstdc++-v3/libsupc++/vterminate.cc",
    ),
    Signature(
        "python_fatal", "FATAL", (" error",),
        r"Fatal Python error: .{1,80}",
        "the interpreter's fatal error; the stacks follow",
        "gh:python/cpython Python/pylifecycle.c",
    ),
    Signature(
        "cuda_error", "FATAL", (" error", "ERROR"),
        r"CUDA error: (?:an illegal|device-side|unspecified launch)"
        r"|CUDA_ERROR_(?:ILLEGAL|LAUNCH|ASSERT|HARDWARE|ECC|MISALIGNED)\w{0,40}",
        "a CUDA kernel failed; the process' context is lost",
        "CUDA runtime API: cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorAssert",
    ),
    Signature(
        "shell_abort", "FATAL", ("zsh: ",),
        r"zsh: (?:abort|segmentation fault|trace trap|bus error)",
        "a shell reports how the process ended: SIGABRT, SIGSEGV, SIGTRAP, SIGBUS",
        "gh:DeepLabCut/DeepLabCut/issues/2427, gh:apple/tensorflow_macos/issues/19",
    ),
    Signature(
        "tf_sigtrace", "FATAL", ("**",),
        r"\*\*\* Received signal \d+ \*\*\*",
        "TensorFlow's handler of a fatal signal; its frames follow",
        "gh:DeepLabCut/DeepLabCut/pull/1970",
    ),
    Signature(
        "malloc_free", "FATAL", ("**",),
        r"malloc: \*\*\* error for object 0x[0-9a-f]+: pointer being freed was not allocated",
        "the heap is corrupt; seen with TensorFlow 2.16 and its plug-in on an M3 Max",
        "gh:tensorflow/tensorflow/issues/83371",
    ),
    Signature(
        "pb_fatal", "FATAL", ("ailed",),
        r"\[libprotobuf FATAL google/protobuf/message_lite\.cc:\d+\] CHECK failed: target \+ size == res",
        "protobuf gave up while writing; TensorFlow 2.16.1 on macOS",
        "gh:tensorflow/tensorflow/issues/64507",
    ),
    Signature(
        "leaked_sem", "AFTERMATH", ("leaked sem",),
        r"resource_tracker: There appear to be \d+ leaked semaphore objects",
        "printed after the end of a process that had workers: a result of the end, not its cause",
        "gh:apple/tensorflow_macos/issues/19, gh:mattmireles/gemma-tuner-multimodal/issues/19",
    ),
    Signature(
        "plugin_rpath", "ABI_MISMATCH", (" not ",),
        r"Library not loaded: @rpath/_pywrap_tensorflow_internal\.so",
        "this tensorflow-metal was built for an older TensorFlow: `import tensorflow` itself fails",
        "gh:tensorflow/tensorflow/pull/126360",
    ),
    Signature(
        "plugin_symbol", "ABI_MISMATCH", (" not ",),
        r"libmetal_plugin\.dylib[^\n]{0,400}\n?[^\n]{0,400}Symbol not found: \S+",
        "this tensorflow-metal and this TensorFlow do not fit each other",
        "gh:tensorflow/tensorflow/issues/81987, gh:tensorflow/tensorflow/issues/50541",
        span=2,
    ),
    Signature(
        "no_platform", "ABI_MISMATCH", (" not ",),
        r"could not find registered platform with id: 0x[0-9a-f]+",
        "XLA compiled for a device that Metal is not: a legacy optimizer, or jit_compile=False, helps",
        "gh:rstudio/tensorflow.rstudio.com/issues/47",
    ),
    Signature(
        "panic_watchdogd", "MACHINE", ("watchdogd",),
        r"watchdog timeout: no checkins from watchdogd in \d+ seconds",
        "the whole Mac froze and restarted",
        "gh:ml-explore/mlx/issues/3267, gh:atomantic/PortOS/pull/1254",
    ),
    Signature(
        "panic_iogpu", "MACHINE", ("GPU", "count underflow"),
        r"IOGPUMemory\.cpp:\d+|completeMemory\(\) prepare count underflow",
        "a fault of the GPU driver restarted the whole Mac",
        "gh:ml-explore/mlx/issues/3186",
    ),
)  # fmt: skip

_PROGRESS = (
    Signature(
        "optimizer_slow", "SLOW_HINT", ("slowly on",),
        r"the v2\.11\+ optimizer `tf\.keras\.optimizers\.\w+` runs slowly on M1/M2 Macs",
        "this optimizer is about three times slower than its legacy twin (Keras 2 only)",
        "gh:tensorflow/tensorflow/issues/61092, gh:tensorflow/tensorflow/issues/59438",
    ),
    Signature(
        "tf_retrace", "SLOW_HINT", ("retracing",),
        r"triggered tf\.function retracing\. Tracing is expensive",
        "the step is traced again and again: shapes or Python values change",
        "TensorFlow 2.21 python/eager/polymorphic_function/polymorphic_function.py",
    ),
    Signature(
        "keras_out_of_data", "DATA_END", ("ran out",),
        r"[Yy]our input ran out of data; interrupting training",
        "the data ended before the epochs did: not a stall",
        "keras 3.15.1 src/trainers/epoch_iterator.py",
    ),
    Signature(
        "metal_device", "PHASE", ("Metal device",),
        r"Metal device set to: .{1,60}",
        "tensorflow-metal starts, on this device",
        "gh:tensorflow/tensorflow/issues/60267",
    ),
    Signature(
        "metal_sysmem", "PHASE", ("systemMemory",),
        r"systemMemory: [\d.]+ GB",
        "memory as tensorflow-metal sees it",
        "gh:tensorflow/tensorflow/issues/60267",
    ),
    Signature(
        "metal_cache", "PHASE", ("maxCacheSize",),
        r"maxCacheSize: [\d.]+ GB",
        "tensorflow-metal's cache limit; MPS_DEVICE_CACHE_SIZE (GiB) sets it",
        "gh:tensorflow/tensorflow/issues/60267, libmetal_plugin.dylib 1.2.0",
    ),
    Signature(
        "tf_device_created", "PHASE", ("GPU",),
        r"Created TensorFlow device \(.{0,200}\) -> physical PluggableDevice \(device: \d+, name: METAL",
        "TensorFlow has the Metal device",
        "gh:tensorflow/tensorflow/issues/60267",
    ),
    Signature(
        "tf_grappler", "PHASE_TRACE", ("GPU",),
        r"Plugin optimizer for device_type GPU is enabled\.",
        "a new graph is being made: first batch, first validation, or a retrace",
        "gh:tensorflow/tensorflow/issues/57058",
    ),
    Signature(
        "tf_shuffle_fill", "PHASE_GRACE", ("huffle buffer",),
        r"Filling up shuffle buffer \(this may take a while\): \d+ of \d+",
        "a shuffle buffer is being filled: a normal pause",
        "gh:keras-team/keras/issues/17515",
    ),
    Signature(
        "tf_shuffle_done", "PHASE_END", ("huffle buffer",),
        r"Shuffle buffer filled\.",
        "the shuffle buffer is full",
        "gh:keras-team/keras/issues/17515",
    ),
    Signature(
        "xla_slow", "PHASE_GRACE", ("slow compile",),
        r"Very slow compile\?",
        "XLA reports a slow compilation: a normal pause",
        "strings of libtensorflow_cc 2.18.1",
    ),
    Signature(
        "xla_once", "PHASE_END", ("using XLA",),
        r"Compiled cluster using XLA!",
        "XLA has compiled",
        "strings of libtensorflow_cc 2.18.1",
    ),
    Signature(
        "tf_numa", "BENIGN", ("GPU",),
        r"Could not identify NUMA node of platform GPU ID \d+, defaulting to 0",
        "always printed on macOS",
        "gh:tensorflow/tensorflow/issues/60267",
    ),
    Signature(
        "tf_cpufreq", "BENIGN", ("ailed",),
        r"Failed to get CPU frequency: 0 Hz",
        "always printed on Apple silicon",
        "gh:tensorflow/tensorflow/issues/60267, gh:apple/tensorflow_macos/issues/77",
    ),
    Signature(
        "tf_cache_partial", "BENIGN", (" not ",),
        r"The calling iterator did not fully read the dataset being cached",
        "cache() starts again each epoch: slow epochs, no error",
        "strings of libtensorflow_cc 2.18.1",
    ),
    Signature(
        "tf_end_seq", "BENIGN", ("rendezvous",),
        r"Local rendezvous is aborting with status: OUT_OF_RANGE: End of sequence",
        "how TensorFlow 2.16 and later end a finite dataset",
        "strings of libtensorflow_cc 2.18.1",
    ),
)  # fmt: skip

# Reasons come before the lines that only announce them: the first match of a line says most.
TABLE: tuple[Signature, ...] = METAL + _MEMORY + _CRASHES + _PROGRESS
