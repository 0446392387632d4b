"""Classifies the frames of a stack: one table for Python, one for native code, each row with its source.

core.diagnosis.clues reads the classes.  Strong rows decide at once; weak ones only if no strong one lies further
out, because every wait ends in some lock.  Pure; must not depend on how a stack was taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

METAL_WAIT, COMPILE, MPS_COMPILE, TF_WAIT = "metal_wait", "compile", "mps_compile", "tf_wait"
ITERATOR, GENERATOR, CHECKPOINT, LOCK = "iterator", "generator", "checkpoint_io", "lock"
USER, CALLBACK, IMPORTING, GIL_NATIVE = "user", "library_callback", "importing", "gil_native"
# If the main thread is in one of these, the cause can be in another thread.
WAITS_FOR_OTHERS = frozenset({TF_WAIT, ITERATOR, GENERATOR, LOCK})


class Frame(NamedTuple):
    """A Python frame; `line` is 0 if unknown."""

    file: str
    line: int
    function: str


class FrameRule(NamedTuple):
    """`where` and `function` are matched against a frame's file and function."""

    kind: str
    where: re.Pattern[str]
    function: re.Pattern[str]
    source: str


def _row(kind: str, where: str, function: str, source: str) -> FrameRule:
    return FrameRule(kind, re.compile(where + "$"), re.compile(function), source)


STRONG = (
    _row(METAL_WAIT, r"torch/mps/(__init__|event)\.py", "synchronize", "PyTorch: waitUntilCompleted in C++"),
    _row(CHECKPOINT, r"(tf_)?keras/(src/)?saving/.*\.py", "", "Keras 2 and 3: save_model, load_weights"),
    _row(CHECKPOINT, r"(tf_)?keras/src/engine/training\.py", "^(save|load)_", "Keras 2.15: Model.save_weights"),
    _row(CHECKPOINT, r"tensorflow/python/(checkpoint|saved_model)/.*\.py|tensorflow/python/training/saver\.py", "",
         "TensorFlow: Checkpoint, SavedModel, Saver"),
    _row(CHECKPOINT, r"(h5py/.*|torch/serialization|numpy/lib/(_?npyio(_impl)?|format))\.py", "", "file formats"),
    _row(CHECKPOINT, r"orbax/checkpoint/.*\.py", "", "JAX: checkpoints"),
    _row(GENERATOR, r"tensorflow/python/data/ops/from_generator_op\.py", "generator_py_func",
         "seen in a generator that blocks, TF 2.15 and 2.21"),
    _row(ITERATOR, r"tensorflow/python/data/ops/(iterator_ops|multi_device_iterator_ops)\.py", "next|^get_next",
         "TensorFlow: OwnedIterator.__next__ of an eager loop"),
    _row(ITERATOR, r"keras/src/trainers/data_adapters/\w+\.py", "^(get|__next__|_get_iterator)", "seen, Keras 3.15"),
    _row(ITERATOR, r"(tf_)?keras/(src/)?(utils/data_utils|engine/data_adapter)\.py", "^(get|__next__)",
         "Keras 2.15: OrderedEnqueuer.get"),
    _row(ITERATOR, r"torch/utils/data/(dataloader|_utils/\w+)\.py", "next|get_data", "PyTorch: DataLoader"),
    _row(COMPILE, r"tensorflow/python/framework/func_graph\.py", "func_graph_from_py_func", "a graph is traced"),
    _row(COMPILE, r"jax/_src/(compiler|interpreters/(pxla|mlir))\.py", "compile|lower", "JAX: XLA compilation"),
    _row(COMPILE, r"torch/_(inductor|dynamo)/.*\.py", "compile", "PyTorch: torch.compile"),
    _row(IMPORTING, r"<frozen importlib\._bootstrap(_external)?>", "", "an import is under way"),
)  # fmt: skip
LOCKS = (
    _row(LOCK, r"/threading\.py", "^(wait|acquire|join|_wait_for_tstate_lock|_shutdown|__enter__)$", "CPython"),
    _row(LOCK, r"/queue\.py", "^(get|put|join)$", "CPython"),
    _row(LOCK, r"/multiprocessing/\w+\.py", "^(get|wait|join|poll|acquire|_wait_for_updates|recv\\w*)$",
         "CPython; seen in a pool whose workers were killed"),
    _row(LOCK, r"/concurrent/futures/\w+\.py", "^(result|wait|shutdown)$", "CPython"),
)  # fmt: skip
FRAMEWORK = re.compile(r"(?:^|/)(tensorflow|keras|tf_keras|tensorflow_probability|torch|jax|jaxlib)/")
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d[\d.]*t?/|/python\d+\.zip/|^<frozen |^<built-in>"
    r"|^<__array_function__"
    r"|/stallguard/probe/|__autograph_generated_file"
    # Training libraries outside of such a directory, a clone for instance: paths that no script has by chance.
    r"|/(?:tf_)?keras/src/|/tensorflow/python/|/jax/_src/|/jaxlib/"
    r"|/torch/(?:nn/modules/|optim/(?:optimizer|sgd|adamw?)\.py|autograd/(?:graph|function|__init__)\.py"
    r"|utils/data/(?:dataloader\.py|_utils/)|_\w+(?:/|\.py)|(?:cuda|mps)/__init__\.py)"
)
# Frames in which a framework calls the script's code in another thread.
_CALLS_BACK = re.compile(
    r"tensorflow/python/ops/script_ops\.py$|tensorflow/python/data/ops/from_generator_op\.py$"
    r"|keras/src/trainers/data_adapters/py_dataset_adapter\.py$|keras/(src/)?utils/data_utils\.py$"
    r"|torch/utils/data/_utils/(?:worker|fetch)\.py$|jax/_src/(?:buffer_)?callback\.py$"
)
_EXECUTES = tuple(
    (re.compile(where + "$"), re.compile(f"^({function})$"))
    for where, function in (
        (r"tensorflow/python/eager/execute\.py", "quick_execute|execute_with_cancellation"),
        (r"tensorflow/python/eager/context\.py", "call_function|sync_executors|async_wait"),
        (r"tensorflow/python/framework/ops\.py", "_numpy_internal|_numpy"),
        (r"tensorflow/python/client/session\.py", "_call_tf_sessionrun"),
        (
            r"jax/_src/(array|interpreters/pxla|pjit)\.py",
            "_value|block_until_ready|__call__|_python_pjit_helper",
        ),
        (r"torch/(autograd/graph|cuda/__init__|mps/__init__)\.py", "_engine_run_backward|synchronize"),
    )
)
_FEEDS = re.compile(r"from_generator_op|py_dataset_adapter|data_utils|torch/utils/data/")


def is_own(frame: Frame) -> bool:
    """Return whether a frame is the script's code: not a package's, Python's or stallguard's."""
    return not _LIBRARY.search(frame.file) and frame.file != "?"


def executes(frame: Frame) -> bool:
    """Return whether the innermost frame of a stack is a call into the native code of a training library."""
    return any(where.search(frame.file) and function.search(frame.function) for where, function in _EXECUTES)


def is_called_by_library(frames: Sequence[Frame]) -> bool:
    """Return whether a framework called the script's code in this stack."""
    return _called_back(frames) is not None


def _called_back(frames: Sequence[Frame]) -> Frame | None:
    own = next((index for index, frame in enumerate(frames) if is_own(frame)), len(frames))
    return next((frame for frame in frames[own:] if _CALLS_BACK.search(frame.file)), None)


def _match(frame: Frame, rows: Iterable[FrameRule]) -> str:
    hits = (row.kind for row in rows if row.where.search(frame.file) and row.function.search(frame.function))
    return next(hits, "")


def classify(frames: Sequence[Frame]) -> str:
    """Return what a Python thread does, frames innermost first; empty if no row fits."""
    weak = ""
    for index, frame in enumerate(frames):
        strong = _match(frame, STRONG)
        if strong:
            return strong
        if is_own(frame):
            caller = _called_back(frames[index:])
            if caller and _FEEDS.search(caller.file):
                return GENERATOR
            return weak or (CALLBACK if caller else USER)
        weak = TF_WAIT if FRAMEWORK.search(frame.file) else weak or _match(frame, LOCKS)
    return weak


def speaks(frames: Sequence[Frame]) -> bool:
    """Return whether a thread other than the main one is relevant: it runs the script's code, or it saves."""
    return is_called_by_library(frames) or classify(frames) in (CHECKPOINT, METAL_WAIT)


class Native(NamedTuple):
    """A row for native code: `symbol` is searched in "symbol (in image)"."""

    kind: str
    symbol: re.Pattern[str]
    source: str


def _native(kind: str, symbol: str, source: str) -> Native:
    return Native(kind, re.compile(symbol), source)


# Order matters: a compilation runs below the Metal plug-in, which runs below TensorFlow.
NATIVE = (
    _native(MPS_COMPILE, r"MPSGraphCache::(CreateCachedGraph|LookUp)|MTLCompilerService|compileWithDevice"
            r"|MPSGraphExecutable.*[cC]ompil|-\[_MTLLibrary|newComputePipelineState",
            "symbols of libmetal_plugin 1.2.0; Metal framework"),
    _native(METAL_WAIT, r"waitUntilCompleted|metal_plugin::|MetalStream|\bIOGPU|MPSStream::synchronize"
            r"|_MTLCommandQueue _submitAvailableCommandBuffers|metal gpu stream",
            "pytorch#141296, tensorflow#59780, symbols of libmetal_plugin 1.2.0"),
    _native(COMPILE, r"xla::.*[cC]ompil|\bllvm::|tensorflow::grappler::", "XLA and Grappler"),
    _native(CHECKPOINT, r"\bH5[FD]\w*(write|flush|close)|tensorflow::.*(SaveV2|BundleWriter)|\b(fsync|pwrite)\b",
            "HDF5, TensorFlow's tensor bundle, POSIX"),
    _native(TF_WAIT, r"absl::.*Notification::WaitForNotification|nsync::|DirectSession::WaitForNotification"
            r"|ProcessFunctionLibraryRuntime::RunSync|TFE_Py_Execute", "tensorflow#59722, BirdNET-Analyzer#995"),
    _native(GIL_NATIVE, r"\btake_gil\b|_PyThreadState_Attach|PyEval_RestoreThread", "CPython 3.9-3.13"),
    _native(LOCK, r"lock_PyThread_acquire_lock|_PyMutex_LockTimed|PyThread_acquire_lock_timed"
            r"|__psynch_mutexwait|pthread_mutex_lock", "CPython; seen in a hung multiprocessing parent"),
)  # fmt: skip
# An idle thread of a pool: Grand Central Dispatch, Eigen.
IDLE = re.compile(r"__workq_kernreturn|Eigen::EventCount::CommitWait|\bWaitForWork\b")


def classify_native(path: Sequence[str]) -> str:
    """Return what a native thread does; `path`: "symbol (in image)" from the outermost to the innermost."""
    if any(IDLE.search(symbol) for symbol in path):
        return ""
    text = "\n".join(path)
    return next((row.kind for row in NATIVE if row.symbol.search(text)), "")
