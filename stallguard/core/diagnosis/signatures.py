"""What a line of the training's output means: the table of log signatures, and how to ask it.

The table is data: what Apple's driver, MPS and tensorflow-metal print, and what frameworks, drivers and the system
print when a training goes wrong; each row has its source.  Pure; knows one line (and the one before).  This module must
not read any output itself.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Signature(NamedTuple):
    """A row of the table.

    `family`: what lines of one meaning share, in upper case; the clues ask for it.
    Every line that matches contains one of `keys`: a cheap test before the regex.  The regex sees one line, or
    the line before and the line joined by a newline if `span` is 2.  `source`: gh: means github.com,
    "strings" of a library means that its binary contains the text.
    """

    id: str
    family: str
    keys: tuple[str, ...]
    regex: str
    meaning: str
    source: str
    span: int = 1

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled regex (the re module keeps compiled ones)."""
        return re.compile(self.regex)


METAL = (
    Signature("iogpu_ignored", "GPU_FAULT_STICKY", ("GPU",), r"Ignored \(for causing prior/excessive GPU errors\)",
        "the driver drops all further work of this process; its results are wrong until it is restarted",
        "gh:apple/tensorflow_macos/issues/202, gh:jundot/omlx/issues/3706"),
    Signature("iogpu_timeout", "GPU_FAULT", ("GPU",),
        r"Caused GPU Timeout Error \(0*2:kIO(?:GPU|Accel)CommandBufferCallbackErrorTimeout\)",
        "one command buffer ran longer than the driver allows (reported as 5 to 10 s)",
        "gh:VincentGourbin/flux-2-swift-mlx/issues/126, gh:pytorch/pytorch/issues/125954"),
    Signature("iogpu_hang", "GPU_FAULT", ("GPU",),
        r"Caused GPU Hang Error \(0*3:kIOGPUCommandBufferCallbackErrorHang\)",
        "the GPU's firmware found a kernel hung and reset the GPU; the buffer's results are lost",
        "gh:Blaizzy/mlx-vlm/issues/1064, gh:tinygrad/tinygrad/issues/7172"),
    Signature("iogpu_victim", "GPU_FAULT", ("GPU",), r"Discarded \(victim of GPU error/recovery\)",
        "other work made the GPU reset and this buffer was lost with it: not this batch's fault",
        "gh:flutter/flutter/issues/155538, gh:tinygrad/tinygrad/issues/3857"),
    Signature("iogpu_bg", "GPU_FAULT", ("GPU",), r"Insufficient Permission \(to submit GPU work from background\)",
        "the system refuses GPU work from a background process; reported on iOS only",
        "gh:ggml-org/llama.cpp/pull/20306"),
    Signature("iogpu_oom", "GPU_OOM", ("GPU",),
        r"Insufficient Memory \(0*8:kIOGPUCommandBufferCallbackErrorOutOfMemory\)",
        "Metal could not make the buffer's memory resident: a smaller batch helps",
        "gh:ml-explore/mlx/pull/479, gh:instructlab/instructlab/issues/1721"),
    Signature("iogpu_invalid", "GPU_FAULT", ("Error",),
        r"Invalid Resource \(0*9:kIO(?:GPU|Accel)CommandBufferCallbackErrorInvalidResource\)",
        "a buffer was freed while the GPU used it: the framework's fault, or memory pressure",
        "gh:ml-explore/mlx/issues/3689"),
    Signature("iogpu_pagefault", "GPU_FAULT", ("GPU",),
        r"Caused GPU Address Fault Error \(0*b:kIOGPUCommandBufferCallbackErrorPageFault\)",
        "the GPU touched unmapped memory: the framework's or the driver's fault",
        "gh:flutter/flutter/issues/155538, gh:Blaizzy/mlx-vlm/issues/1064"),
    Signature("iogpu_interactivity", "GPU_WATCHDOG", ("GPU",),
        r"Impacting Interactivity\s?\(0*e:\s?kIOGPUCommandBufferCallbackErrorImpactingInteractivity\)",
        "the display's watchdog killed GPU work; only with a display that is on; batch size is a weak lever",
        "gh:ml-explore/mlx/issues/3267, gh:dgrauet/ltx-2-mlx/issues/75, gh:jundot/omlx/issues/1387"),
    Signature("iogpu_internal", "GPU_WATCHDOG", ("Error",), r"Internal Error \(0*e:Internal Error\)",
        "the same code 0xe as macOS 12 to 14 word it; training goes on with lost results",
        "gh:tensorflow/tensorflow/issues/57058, gh:pytorch/pytorch/issues/123171"),
    Signature("mps_cb_error", "GPU_FAULT_HEADER", ("Error",), r"Error: command buffer exited with error status\.",
        "first line of a Metal error; its reason follows four lines later; tensorflow-metal goes on",
        "gh:tensorflow/tensorflow/issues/57058"),
    Signature("mps_cb_incomplete", "GPU_FAULT_HEADER", (" not ",),
        r"The Metal Performance Shaders operations encoded on it may not have completed\.",
        "second line of the same block", "gh:tensorflow/tensorflow/issues/57058"),
    Signature("iogpu_exec_abort", "GPU_FAULT_HEADER", (" error",),
        r"Execution of the command buffer was aborted due to an error during execution\.",
        "the same as worded by the driver; possibly only in the unified log", "gh:ddalcu/mlx-serve/issues/321"),
    Signature("mlx_cb_failed", "FATAL", ("ailed",), r"\[METAL\] Command buffer execution failed: ",
        "MLX ends the process with the reason that follows", "gh:ml-explore/mlx/pull/479"),
    Signature("mtl_domain", "GPU_FAULT", ("Error",), r"Error Domain=MTLCommandBufferErrorDomain Code=\d+",
        "a Metal error as Objective-C prints it", "gh:tinygrad/tinygrad/issues/3857"),
    Signature("mpsndarray_2_32", "FATAL_SIZE", ("**",), r"total bytes of NDArray > 2\*\*32",
        "one tensor is larger than 4 GiB; the process aborts; a smaller batch helps",
        "gh:pytorch/pytorch/issues/143859"),
    Signature("mpsndarray_2_31", "FATAL_SIZE", ("**",), r"product of dimension sizes > 2\*\*31",
        "one tensor has more than 2^31 elements; a smaller batch helps", "gh:pytorch/pytorch/issues/84039"),
    Signature("mpsndarray_intmax", "FATAL_SIZE", ("INT_MAX",), r"NDArray dimension length > INT_MAX",
        "one dimension is longer than 2^31-1", "gh:pytorch/pytorch/pull/158824"),
    Signature("mps_volume", "FATAL", ("ew volume",), r"New volume:\s?\S{1,40} should match old volume",
        "a reshape that MPSGraph refuses; the model trains on the CPU only", "gh:tensorflow/models/issues/10995"),
    Signature("mps_assert", "FATAL", ("ailed",), r"MetalPerformanceShaders\S{0,200}\.mm:\d+: failed assertion",
        "an assertion inside Metal Performance Shaders: the same shapes will abort again",
        "gh:pytorch/pytorch/issues/101251"),
    Signature("torch_mps_oom", "GPU_OOM", (" memory",), r"MPS backend out of memory \(MPS allocated: [\d.]+ [KMG]i?B",
        "PyTorch's limit on Metal memory was reached", "gh:instructlab/instructlab/issues/2568"),
    Signature("mlx_malloc", "GPU_OOM", ("alloc",),
        r"\[metal::malloc\] Attempting to allocate \d+ bytes which is greater than the maximum allowed buffer",
        "one buffer is larger than Metal allows", "gh:ml-explore/mlx/issues/3327"),
    Signature("mlx_resources", "GPU_OOM", ("alloc",), r"\[metal::malloc\] Resource limit \(\d+\) exceeded",
        "too many Metal buffers exist at once, of any size: mx.eval in each step, or mx.clear_cache(), frees them",
        "gh:ml-explore/mlx/issues/3849, gh:ml-explore/mlx/pull/1718"),
    Signature("torch_mps_buffer", "GPU_OOM", ("Error",), r"RuntimeError: Invalid buffer size: [\d.]+ [KMGT]i?B",
        "one tensor is larger than a buffer of Metal can be: a smaller batch helps",
        "gh:pytorch/pytorch/issues/141909, gh:CAREamics/careamics/issues/380"),
    Signature("metal_no_gpu", "NO_GPU", ("GPU",), r"No supported GPU was found\.",
        "tensorflow-metal found no device (virtual machine, sandbox, remote session): training runs on the CPU",
        "strings of libmetal_plugin.dylib 1.2.0"),
    Signature("metal_no_queue", "GPU_FAULT", (" not ",), r"could not allocate Metal command queue for context",
        "tensorflow-metal got no command queue", "strings of libmetal_plugin.dylib 1.2.0"),
    Signature("metal_event_fail", "GPU_FAULT", ("ailed", "Unaligned"),
        r"Failed to record completion event|AsynchronousMemcpyD2H: Unaligned blit request",
        "an error of tensorflow-metal's stream", "strings of libmetal_plugin.dylib 1.2.0"),
)  # fmt: skip


_MEMORY = (
    Signature("tf_oom", "GPU_OOM", ("alloc", " memory"),
        r"OOM when allocating tensor (?:with|of) shape|ran out of memory trying to allocate",
        "TensorFlow's allocator has no more memory", "strings of libtensorflow_cc 2.18.1"),
    Signature("cuda_oom", "GPU_OOM", (" memory",),
        r"CUDA out of memory\. Tried to allocate|CUDA_ERROR_OUT_OF_MEMORY: out of memory|CUDA error: out of memory",
        "no more memory on the NVIDIA device: a smaller batch helps",
        "gh:pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp, CUDA driver API: cudaErrorMemoryAllocation"),
    Signature("cuda_library_oom", "GPU_OOM", (" error", "ailed"), r"CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED",
        "a library of CUDA got no memory on the device: a smaller batch helps",
        "gh:QwenLM/Qwen3/issues/873, gh:deepfakes/faceswap-playground/issues/292"),
    Signature("xla_oom", "GPU_OOM", (" memory",), r"RESOURCE_EXHAUSTED: Out of memory",
        "XLA (TensorFlow, JAX) has no more memory on the device", "gh:openxla/xla xla/tsl/framework/bfc_allocator.cc"),
    Signature("python_memory", "HOST_OOM", ("Error",), r"(?:^|[\s.])(?:_Array)?MemoryError\b",
        "Python could not get memory from the system: a limit, or no swap",
        "docs.python.org/3/library/exceptions.html#MemoryError, gh:numpy/numpy numpy/_core/_exceptions.py"),
    Signature("cpp_memory", "HOST_OOM", ("alloc",), r"std::bad_alloc",
        "native code could not get memory from the system", "cppreference.com: std::bad_alloc"),
    Signature("tf_alloc_10pct", "INFO_MEM", (" memory",), r"Allocation of \d+ exceeds \d+% of free system memory",
        "one allocation is a large part of the free memory: an early hint, no error",
        "gh:tensorflow/tensorflow/issues/18736"),
    Signature("shell_killed", "JETSAM", ("zsh: ", "Killed: 9"), r"zsh: killed|Killed: 9",
        "a shell reports a SIGKILL that stallguard did not send: macOS, for lack of memory",
        "gh:tensorflow/tensorboard/issues/5658, gh:candle-org/candle/issues/327"),
)  # fmt: skip

# An error of a kernel ends the CUDA context: each later call of the process returns it again, and only a new process
# helps (CUDA runtime API, cudaError_t: "To continue using CUDA, the process must be terminated and relaunched").
_CUDA = (
    Signature("cuda_assert", "CUDA_ASSERT", (" error", "ERROR"),
        r"CUDA error: device-side assert|CUDA_ERROR_ASSERT",
        "a check inside a CUDA kernel failed: an index, a label or a probability is out of range",
        "CUDA runtime API: cudaErrorAssert, gh:huggingface/trl/issues/2996"),
    Signature("cuda_assert_line", "CUDA_ASSERT", ("ailed",), r"\.cuh?:\d+: .{0,300}Assertion .{1,200} failed",
        "the check inside a CUDA kernel that failed: its file and condition", "gh:NVIDIA/garak/issues/199"),
    Signature("cuda_fault", "CUDA_FAULT", (" error", "ERROR"),
        r"CUDA error: (?:an illegal|unspecified launch|misaligned address|invalid program counter|hardware stack error"
        r"|operation not supported on global/shared|the launch timed out|unknown error)"
        r"|CUDA_ERROR_(?:ILLEGAL|LAUNCH_FAILED|LAUNCH_TIMEOUT|MISALIGNED|INVALID_PC|INVALID_ADDRESS_SPACE|HARDWARE)",
        "a CUDA kernel failed; the process' context is lost",
        "CUDA runtime API: cudaErrorIllegalAddress, cudaErrorLaunchFailure, gh:ModelTC/LightX2V/issues/480, "
        "gh:openxla/xla/issues/15945"),
    Signature("cuda_library", "CUDA_FAULT", (" error", "ailed"), r"CU(?:BLAS|DNN)_STATUS_EXECUTION_FAILED",
        "a kernel of a CUDA library failed", "CUDA cuDNN API: CUDNN_STATUS_EXECUTION_FAILED"),
    Signature("cuda_ecc", "GPU_MEMORY_FAULT", (" error", "ERROR"),
        r"uncorrectable (?:ECC|NVLink) error|CUDA_ERROR_(?:ECC|NVLINK)_UNCORRECTABLE",
        "the hardware of the GPU reported an error that it cannot correct",
        "CUDA runtime API: cudaErrorECCUncorrectable, gh:vllm-project/vllm/issues/5222"),
    Signature("gpu_lost", "GPU_LOST", ("GPU",),
        r"Unable to determine the device handle for GPU|GPU is lost|GPU has fallen off the bus",
        "the machine does not reach the GPU any more", "gh:JosephKJ/OWOD/issues/81, gh:haotian-liu/LLaVA/issues/1466"),
    # Not "CUDA_ERROR_NO_DEVICE": TensorFlow prints it on each machine without a GPU.
    Signature("cuda_no_device", "NO_DEVICE", (" error", "GPU"),
        r"CUDA error: no CUDA-capable device|No CUDA GPUs are available",
        "CUDA found no device", "CUDA runtime API: cudaErrorNoDevice, gh:AlexeyAB/darknet/issues/86"),
    Signature("nccl", "NCCL", ("collective", " error", "ailed"),
        r"Watchdog caught collective operation timeout|nccl(?:RemoteError|SystemError|UnhandledCudaError): "
        r"|NCCL (?:error|operation).{0,300}(?:remote process exited|unhandled (?:cuda|system) error)",
        "a collective operation did not end, or a process that takes part in it died",
        "gh:pytorch/pytorch/issues/118369, gh:NVIDIA/nccl/issues/2076"),
    Signature("ring_peer", "NCCL", (" peer",), r"\[ring\] connection to a peer was lost",
        "a process that takes part in the training ended, or its connection did", "gh:ml-explore/mlx/pull/4060"),
    Signature("gloo_peer", "NCCL", ("gloo/transport/",),
        r"gloo/transport/\w+/\w+\.cc:\d+\] (?:Connection closed by peer|(?:Read|Write) error .{1,80}: Connection reset"
        r"|Timed out waiting \d+ ?ms|Application timeout caused pair closure)",
        "a process that takes part in the training ended, or does not answer",
        "strings of torch/lib/libtorch_cpu.so 2.13, gh:pytorch/pytorch/issues/75512, "
        "gh:RVC-Project/Retrieval-based-Voice-Conversion-WebUI/issues/1882"),
)  # fmt: skip

_CRASHES = (
    Signature("mutex_lock_blocking", "HOST_DEADLOCK", ("mutex",),
        r"\[mutex\.cc : \d+\] RAW: (?:Reader)?Lock blocking 0x[0-9a-f]+",
        "two copies of abseil block each other (TensorFlow 2.20 with pyarrow): pin one, or import pyarrow later",
        "gh:tensorflow/tensorflow/issues/99464, gh:Blaizzy/mlx-vlm/issues/468"),
    Signature("mutex_invalid", "FATAL", ("mutex",),
        r"system_error: (?:recursive_)?mutex lock failed: Invalid argument",
        "a destroyed mutex was locked: the same clash at import, or a native bug after many iterations",
        "gh:tensorflow/tensorflow/issues/99464, gh:DeepLabCut/DeepLabCut/issues/2427"),
    Signature("libcxxabi", "FATAL", ("terminat",), r"libc\+\+abi: terminating due to uncaught exception",
        "a C++ exception ended the process (SIGABRT)", "gh:ml-explore/mlx/pull/479"),
    Signature("libstdcxx", "FATAL", ("terminat",),
        r"terminate called (?:after throwing an instance of|without an active exception)",
        "a C++ exception ended the process (SIGABRT), as Linux words it",
        "gh:gcc-mirror/gcc libstdc++-v3/libsupc++/vterminate.cc"),
    Signature("python_fatal", "FATAL", (" error",), r"Fatal Python error: .{1,80}",
        "the interpreter's fatal error; the stacks follow", "gh:python/cpython Python/pylifecycle.c"),
    Signature("shell_abort", "FATAL", ("zsh: ",), r"zsh: (?:abort|segmentation fault|trace trap|bus error)",
        "a shell reports how the process ended: SIGABRT, SIGSEGV, SIGTRAP, SIGBUS",
        "gh:DeepLabCut/DeepLabCut/issues/2427, gh:apple/tensorflow_macos/issues/19"),
    Signature("tf_sigtrace", "FATAL", ("**",), r"\*\*\* Received signal \d+ \*\*\*",
        "TensorFlow's handler of a fatal signal; its frames follow", "gh:DeepLabCut/DeepLabCut/pull/1970"),
    Signature("malloc_free", "FATAL", ("**",),
        r"malloc: \*\*\* error for object 0x[0-9a-f]+: pointer being freed was not allocated",
        "the heap is corrupt; seen with TensorFlow 2.16 and its plug-in on an M3 Max",
        "gh:tensorflow/tensorflow/issues/83371"),
    Signature("pb_fatal", "FATAL", ("ailed",),
        r"\[libprotobuf FATAL google/protobuf/message_lite\.cc:\d+\] CHECK failed: target \+ size == res",
        "protobuf gave up while writing; TensorFlow 2.16.1 on macOS", "gh:tensorflow/tensorflow/issues/64507"),
    Signature("omp_two", "FATAL", ("Error",),
        r"OMP: Error #15: Initializing lib\S{1,40}, but found lib\S{1,40} already",
        "two runtimes of OpenMP in one process: KMP_DUPLICATE_LIB_OK lets both run, and they can wait for ever",
        "gh:pytorch/pytorch/issues/78490, gh:pytorch/pytorch/issues/193520"),
    Signature("leaked_sem", "AFTERMATH", ("leaked sem",),
        r"resource_tracker: There appear to be \d+ leaked semaphore objects",
        "printed after the end of a process that had workers: a result of the end, not its cause",
        "gh:apple/tensorflow_macos/issues/19, gh:mattmireles/gemma-tuner-multimodal/issues/19"),
    Signature("plugin_rpath", "ABI_MISMATCH", (" not ",),
        r"Library not loaded: @rpath/_pywrap_tensorflow_internal\.so",
        "this tensorflow-metal was built for an older TensorFlow: `import tensorflow` itself fails",
        "gh:tensorflow/tensorflow/pull/126360"),
    Signature("plugin_symbol", "ABI_MISMATCH", (" not ",),
        r"libmetal_plugin\.dylib[^\n]{0,400}\n?[^\n]{0,400}Symbol not found: \S+",
        "this tensorflow-metal and this TensorFlow do not fit each other",
        "gh:tensorflow/tensorflow/issues/81987, gh:tensorflow/tensorflow/issues/50541", span=2),
    Signature("no_platform", "ABI_MISMATCH", (" not ",), r"could not find registered platform with id: 0x[0-9a-f]+",
        "XLA compiled for a device that Metal is not: a legacy optimizer, or jit_compile=False, helps",
        "gh:rstudio/tensorflow.rstudio.com/issues/47"),
    Signature("panic_watchdogd", "MACHINE", ("watchdogd",),
        r"watchdog timeout: no checkins from watchdogd in \d+ seconds", "the whole Mac froze and restarted",
        "gh:ml-explore/mlx/issues/3267, gh:atomantic/PortOS/pull/1254"),
    Signature("panic_iogpu", "MACHINE", ("GPU", "count underflow"),
        r"IOGPUMemory\.cpp:\d+|completeMemory\(\) prepare count underflow",
        "a fault of the GPU driver restarted the whole Mac", "gh:ml-explore/mlx/issues/3186"),
)  # fmt: skip

_PROGRESS = (
    Signature("optimizer_slow", "SLOW_HINT", ("slowly on",),
        r"the v2\.11\+ optimizer `tf\.keras\.optimizers\.\w+` runs slowly on M1/M2 Macs",
        "this optimizer is about three times slower than its legacy twin (Keras 2 only)",
        "gh:tensorflow/tensorflow/issues/61092, gh:tensorflow/tensorflow/issues/59438"),
    Signature("tf_retrace", "SLOW_HINT", ("retracing",), r"triggered tf\.function retracing\. Tracing is expensive",
        "the step is traced again and again: shapes or Python values change",
        "TensorFlow 2.21 python/eager/polymorphic_function/polymorphic_function.py"),
    Signature("keras_out_of_data", "DATA_END", ("ran out",), r"[Yy]our input ran out of data; interrupting training",
        "the data ended before the epochs did: not a stall", "keras 3.15.1 src/trainers/epoch_iterator.py"),
    Signature("metal_device", "PHASE", ("Metal device",), r"Metal device set to: .{1,60}",
        "tensorflow-metal starts, on this device", "gh:tensorflow/tensorflow/issues/60267"),
    Signature("metal_sysmem", "PHASE", ("systemMemory",), r"systemMemory: [\d.]+ GB",
        "memory as tensorflow-metal sees it", "gh:tensorflow/tensorflow/issues/60267"),
    Signature("metal_cache", "PHASE", ("maxCacheSize",), r"maxCacheSize: [\d.]+ GB",
        "tensorflow-metal's cache limit; MPS_DEVICE_CACHE_SIZE (GiB) sets it",
        "gh:tensorflow/tensorflow/issues/60267, libmetal_plugin.dylib 1.2.0"),
    Signature("tf_device_created", "PHASE", ("GPU",),
        r"Created TensorFlow device \(.{0,200}\) -> physical PluggableDevice \(device: \d+, name: METAL",
        "TensorFlow has the Metal device", "gh:tensorflow/tensorflow/issues/60267"),
    Signature("tf_grappler", "PHASE_TRACE", ("GPU",), r"Plugin optimizer for device_type GPU is enabled\.",
        "a new graph is being made: first batch, first validation, or a retrace",
        "gh:tensorflow/tensorflow/issues/57058"),
    Signature("tf_shuffle_fill", "PHASE_GRACE", ("huffle buffer",),
        r"Filling up shuffle buffer \(this may take a while\): \d+ of \d+",
        "a shuffle buffer is being filled: a normal pause", "gh:keras-team/keras/issues/17515"),
    Signature("tf_shuffle_done", "PHASE_END", ("huffle buffer",), r"Shuffle buffer filled\.",
        "the shuffle buffer is full", "gh:keras-team/keras/issues/17515"),
    Signature("xla_slow", "PHASE_GRACE", ("slow compile",), r"Very slow compile\?",
        "XLA reports a slow compilation: a normal pause", "strings of libtensorflow_cc 2.18.1"),
    Signature("xla_once", "PHASE_END", ("using XLA",), r"Compiled cluster using XLA!", "XLA has compiled",
        "strings of libtensorflow_cc 2.18.1"),
    Signature("tf_numa", "BENIGN", ("GPU",), r"Could not identify NUMA node of platform GPU ID \d+, defaulting to 0",
        "always printed on macOS", "gh:tensorflow/tensorflow/issues/60267"),
    Signature("tf_cpufreq", "BENIGN", ("ailed",), r"Failed to get CPU frequency: 0 Hz",
        "always printed on Apple silicon",
        "gh:tensorflow/tensorflow/issues/60267, gh:apple/tensorflow_macos/issues/77"),
    Signature("tf_cache_partial", "BENIGN", (" not ",),
        r"The calling iterator did not fully read the dataset being cached",
        "cache() starts again each epoch: slow epochs, no error", "strings of libtensorflow_cc 2.18.1"),
    Signature("tf_end_seq", "BENIGN", ("rendezvous",),
        r"Local rendezvous is aborting with status: OUT_OF_RANGE: End of sequence",
        "how TensorFlow 2.16 and later end a finite dataset", "strings of libtensorflow_cc 2.18.1"),
)  # fmt: skip

# Reasons come before the lines that only announce them: the first match of a line says most.
TABLE: tuple[Signature, ...] = METAL + _MEMORY + _CUDA + _CRASHES + _PROGRESS


# Families without a problem: for the journal only.
QUIET = frozenset({"BENIGN", "PHASE", "PHASE_TRACE", "PHASE_GRACE", "PHASE_END", "INFO_MEM", "AFTERMATH"})
# Families that say why a Metal command buffer failed; they stand inside a block that GPU_FAULT_HEADER opens.
REASONS = frozenset({"GPU_FAULT", "GPU_FAULT_STICKY", "GPU_OOM", "GPU_WATCHDOG"})
# After an error of these families CUDA refuses each further call of the process.
ENDS_CONTEXT = ("CUDA_FAULT", "CUDA_ASSERT", "GPU_MEMORY_FAULT")
TRACEBACK = "python_traceback"  # id and family of Python's traceback, which no single line shows
SCRIPT_ERROR = "SCRIPT_ERROR"

BY_ID = {signature.id: signature for signature in TABLE}


class Sight(NamedTuple):
    """A signature found in a line, and its first and last column."""

    signature: Signature
    begin: int
    end: int


def sights(line: str, before: str = "") -> list[Sight]:
    """Return all signatures that `line` shows, the most significant first.  `before`: the line before it."""
    found = []
    for signature in TABLE:
        if any(key in line for key in signature.keys):
            text = line if signature.span == 1 else f"{before}\n{line}"
            match = signature.pattern.search(text)
            if match:
                lead = len(text) - len(line)
                found.append(Sight(signature, max(0, match.start() - lead), match.end() - lead))
    return found


def matches(line: str, before: str = "") -> list[Signature]:
    """Return the signatures alone."""
    return [sight.signature for sight in sights(line, before)]


def reason(line: str) -> Signature | None:
    """Return why a Metal command buffer failed, if `line` says so."""
    return next((signature for signature in matches(line) if signature.family in REASONS), None)


def keys() -> tuple[str, ...]:
    """Return the texts of which every line that means something contains one."""
    return tuple(sorted({key for signature in TABLE for key in signature.keys}))
