"""The log signatures of Metal, as data: what Apple's driver, MPS and tensorflow-metal print.

This module holds data only; signature.py describes the columns.
"""

from __future__ import annotations

from stallguard.core.diagnosis.signature import Signature

METAL = (
    Signature(
        "iogpu_ignored", "GPU_FAULT_STICKY", ("GPU",),
        r"Ignored \(for causing prior/excessive GPU errors\)",
        "the driver drops all further work of this process; its results are wrong until it is restarted",
        "gh:apple/tensorflow_macos/issues/202, gh:jundot/omlx/issues/3706",
    ),
    Signature(
        "iogpu_timeout", "GPU_FAULT", ("GPU",),
        r"Caused GPU Timeout Error \(0*2:kIO(?:GPU|Accel)CommandBufferCallbackErrorTimeout\)",
        "one command buffer ran longer than the driver allows (reported as 5 to 10 s)",
        "gh:VincentGourbin/flux-2-swift-mlx/issues/126, gh:pytorch/pytorch/issues/125954",
    ),
    Signature(
        "iogpu_hang", "GPU_FAULT", ("GPU",),
        r"Caused GPU Hang Error \(0*3:kIOGPUCommandBufferCallbackErrorHang\)",
        "the GPU's firmware found a kernel hung and reset the GPU; the buffer's results are lost",
        "gh:Blaizzy/mlx-vlm/issues/1064, gh:tinygrad/tinygrad/issues/7172",
    ),
    Signature(
        "iogpu_victim", "GPU_FAULT", ("GPU",),
        r"Discarded \(victim of GPU error/recovery\)",
        "other work made the GPU reset and this buffer was lost with it: not this batch's fault",
        "gh:flutter/flutter/issues/155538, gh:tinygrad/tinygrad/issues/3857",
    ),
    Signature(
        "iogpu_bg", "GPU_FAULT", ("GPU",),
        r"Insufficient Permission \(to submit GPU work from background\)",
        "the system refuses GPU work from a background process; reported on iOS only",
        "gh:ggml-org/llama.cpp/pull/20306",
    ),
    Signature(
        "iogpu_oom", "GPU_OOM", ("GPU",),
        r"Insufficient Memory \(0*8:kIOGPUCommandBufferCallbackErrorOutOfMemory\)",
        "Metal could not make the buffer's memory resident: a smaller batch helps",
        "gh:ml-explore/mlx/pull/479, gh:instructlab/instructlab/issues/1721",
    ),
    Signature(
        "iogpu_invalid", "GPU_FAULT", ("Error",),
        r"Invalid Resource \(0*9:kIO(?:GPU|Accel)CommandBufferCallbackErrorInvalidResource\)",
        "a buffer was freed while the GPU used it: the framework's fault, or memory pressure",
        "gh:ml-explore/mlx/issues/3689",
    ),
    Signature(
        "iogpu_pagefault", "GPU_FAULT", ("GPU",),
        r"Caused GPU Address Fault Error \(0*b:kIOGPUCommandBufferCallbackErrorPageFault\)",
        "the GPU touched unmapped memory: the framework's or the driver's fault",
        "gh:flutter/flutter/issues/155538, gh:Blaizzy/mlx-vlm/issues/1064",
    ),
    Signature(
        "iogpu_interactivity", "GPU_WATCHDOG", ("GPU",),
        r"Impacting Interactivity \(0*e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity\)",
        "the display's watchdog killed GPU work; only with a display that is on; batch size is a weak lever",
        "gh:ml-explore/mlx/issues/3267, gh:dgrauet/ltx-2-mlx/issues/75",
    ),
    Signature(
        "iogpu_internal", "GPU_WATCHDOG", ("Error",),
        r"Internal Error \(0*e:Internal Error\)",
        "the same code 0xe as macOS 12 to 14 word it; training goes on with lost results",
        "gh:tensorflow/tensorflow/issues/57058, gh:pytorch/pytorch/issues/123171",
    ),
    Signature(
        "mps_cb_error", "GPU_FAULT_HEADER", ("Error",),
        r"Error: command buffer exited with error status\.",
        "first line of a Metal error; its reason follows four lines later; tensorflow-metal goes on",
        "gh:tensorflow/tensorflow/issues/57058",
    ),
    Signature(
        "mps_cb_incomplete", "GPU_FAULT_HEADER", (" not ",),
        r"The Metal Performance Shaders operations encoded on it may not have completed\.",
        "second line of the same block",
        "gh:tensorflow/tensorflow/issues/57058",
    ),
    Signature(
        "iogpu_exec_abort", "GPU_FAULT_HEADER", (" error",),
        r"Execution of the command buffer was aborted due to an error during execution\.",
        "the same as worded by the driver; possibly only in the unified log",
        "gh:ddalcu/mlx-serve/issues/321",
    ),
    Signature(
        "mlx_cb_failed", "FATAL", ("ailed",),
        r"\[METAL\] Command buffer execution failed: ",
        "MLX ends the process with the reason that follows",
        "gh:ml-explore/mlx/pull/479",
    ),
    Signature(
        "mtl_domain", "GPU_FAULT", ("Error",),
        r"Error Domain=MTLCommandBufferErrorDomain Code=\d+",
        "a Metal error as Objective-C prints it",
        "gh:tinygrad/tinygrad/issues/3857",
    ),
    Signature(
        "mpsndarray_2_32", "FATAL_SIZE", ("**",),
        r"total bytes of NDArray > 2\*\*32",
        "one tensor is larger than 4 GiB; the process aborts; a smaller batch helps",
        "gh:pytorch/pytorch/issues/143859",
    ),
    Signature(
        "mpsndarray_2_31", "FATAL_SIZE", ("**",),
        r"product of dimension sizes > 2\*\*31",
        "one tensor has more than 2^31 elements; a smaller batch helps",
        "gh:pytorch/pytorch/issues/84039",
    ),
    Signature(
        "mpsndarray_intmax", "FATAL_SIZE", ("INT_MAX",),
        r"NDArray dimension length > INT_MAX",
        "one dimension is longer than 2^31-1",
        "gh:pytorch/pytorch/pull/158824",
    ),
    Signature(
        "mps_volume", "FATAL", ("ew volume",),
        r"New volume:\s?\S{1,40} should match old volume",
        "a reshape that MPSGraph refuses; the model trains on the CPU only",
        "gh:tensorflow/models/issues/10995",
    ),
    Signature(
        "mps_assert", "FATAL", ("ailed",),
        r"MetalPerformanceShaders\S{0,200}\.mm:\d+: failed assertion",
        "an assertion inside Metal Performance Shaders: the same shapes will abort again",
        "gh:pytorch/pytorch/issues/101251",
    ),
    Signature(
        "torch_mps_oom", "GPU_OOM", (" memory",),
        r"MPS backend out of memory \(MPS allocated: [\d.]+ [KMG]i?B",
        "PyTorch's limit on Metal memory was reached",
        "gh:instructlab/instructlab/issues/2568",
    ),
    Signature(
        "mlx_malloc", "GPU_OOM", ("alloc",),
        r"\[metal::malloc\] Attempting to allocate \d+ bytes which is greater than the maximum allowed buffer",
        "one buffer is larger than Metal allows",
        "gh:ml-explore/mlx/issues/3327",
    ),
    Signature(
        "metal_no_gpu", "NO_GPU", ("GPU",),
        r"No supported GPU was found\.",
        "tensorflow-metal found no device (virtual machine, sandbox, remote session): training runs on the CPU",
        "strings of libmetal_plugin.dylib 1.2.0",
    ),
    Signature(
        "metal_no_queue", "GPU_FAULT", (" not ",),
        r"could not allocate Metal command queue for context",
        "tensorflow-metal got no command queue",
        "strings of libmetal_plugin.dylib 1.2.0",
    ),
    Signature(
        "metal_event_fail", "GPU_FAULT", ("ailed", "Unaligned"),
        r"Failed to record completion event|AsynchronousMemcpyD2H: Unaligned blit request",
        "an error of tensorflow-metal's stream",
        "strings of libmetal_plugin.dylib 1.2.0",
    ),
)  # fmt: skip
