"""Stacks as text, read as values: threads, frames, what each thread waits for, and the script's line at which it hangs.

faulthandler's text of Python stacks is the same in Python 3.9 to 3.13 (Python/traceback.c, _Py_DumpTracebackThreads);
3.14 adds thread names.  Threads come newest first, frames innermost first, at most 100 of each.  Of native stacks,
`sample` of macOS and `thread apply all bt` of gdb, each thread has its heaviest path.

Two tables classify the frames, one for Python, one for native code, each row with its source; core.diagnosis.clues
reads the classes.  Strong rows decide at once; weak ones only if no strong one lies further out, because every wait
ends in some lock.

Pure: text in, values out; a truncated text gives the threads that it contains.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec

from stallguard.core.text import at

_THREAD = re.compile(r"(?P<current>Current thread|Thread) (?P<ident>0x[0-9a-f]+)(?: \[(?P<name>.*)\])? \(most recent")
_FRAME = re.compile(r'  File (?:"(?P<file>.*)"|\?\?\?), line (?P<line>\d+|\?\?\?) in (?P<function>.*)')
DIGITS = 9  # of a number of a line, at most
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")

METAL_WAIT, COMPILE, MPS_COMPILE, TF_WAIT = "metal_wait", "compile", "mps_compile", "tf_wait"
ITERATOR, GENERATOR, CHECKPOINT, LOCK = "iterator", "generator", "checkpoint_io", "lock"
USER, CALLBACK, IMPORTING, GIL_NATIVE = "user", "library_callback", "importing", "gil_native"
# If the main thread is in one of these, the cause can be in another thread.
WAITS_FOR_OTHERS = frozenset({TF_WAIT, ITERATOR, GENERATOR, LOCK})

STUCK = 0.95  # of a thread's samples in its innermost frame: it waits there, or spins

_SAMPLED = re.compile(r"(?P<lead>[ +!:|]*)(?P<count>\d{1,9}) (?P<what>\S.*)")
_TAIL = re.compile(r"(\s+\+ [\d,. ]+)?(\s+\[0x[0-9a-f,x.]+\])?\s*$")
_GDB_THREAD = re.compile(r"Thread (?P<number>\d{1,9}) \((?P<name>.*)\)")
_GDB_FRAME = re.compile(r"#\d+\s+(?:0x[0-9a-f]+ in )?(?P<symbol>.+?) \(.*?(?: from (?P<image>\S+))?$")


class Thread(msgspec.Struct, frozen=True):
    """A thread of a dump; frames innermost first.  `current`: the one that took the signal."""

    ident: str
    frames: tuple[Frame, ...] = ()
    current: bool = False
    name: str = ""


class StackDump(msgspec.Struct, frozen=True):
    """The content of a dump.  `classes`: see below, the main thread's first; `where`: the script's line."""

    threads: int
    where: str = ""
    classes: tuple[str, ...] = ()
    fingerprint: str = ""


def parse(text: str) -> list[Thread]:
    """Return the threads of a dump, as written."""
    threads: list[Thread] = []
    found: list[Frame] = []
    for line in text.splitlines():
        head, frame = _THREAD.match(line), _FRAME.match(line)
        if head:
            found = []
            current = head["current"].startswith("Current")
            threads.append(Thread(head["ident"], current=current, name=head["name"] or ""))
        elif frame and threads:
            number = int(frame["line"]) if frame["line"].isdecimal() and len(frame["line"]) <= DIGITS else 0
            found.append(Frame(_unescaped(frame["file"] or "?"), number, _unescaped(frame["function"])))
            threads[-1] = msgspec.structs.replace(threads[-1], frames=tuple(found))
    return threads


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1] or match[2] or match[3], 16)), text)


def main_thread(threads: Sequence[Thread]) -> Thread | None:
    """Return the main thread: the one whose outermost frame runs a module, else the oldest."""
    for thread in reversed(threads):
        if thread.frames and thread.frames[-1].function in ("<module>", "_run_module_as_main"):
            return thread
    return threads[-1] if threads else None


def hung_at(threads: Sequence[Thread], main_wait: str = "") -> Frame | None:
    """Return the frame of the script at which the training waits.

    That is the main thread's innermost frame of the script, unless the main thread waits for code of the script in
    another thread (a generator, a py_function, a dataset's __getitem__): inside the library, or for the interpreter's
    lock.  Who waits for that lock wakes every 5 ms (take_gil in Python/ceval_gil.c); `main_wait` shows it as "timed".
    """
    main = main_thread(threads)
    if main is None:
        return None
    waits_for_lock = main_wait == "timed" and any(is_own(frame) for frame in main.frames[:1])
    if waits_for_lock or classify(main.frames) in WAITS_FOR_OTHERS:
        for thread in threads:
            if thread is not main and is_called_by_library(thread.frames):
                return _innermost_own(thread)
    return _innermost_own(main)


def _innermost_own(thread: Thread) -> Frame | None:
    return next((frame for frame in thread.frames if is_own(frame)), None)


def classes(threads: Sequence[Thread]) -> tuple[str, ...]:
    """Return what the threads do, each class once, the main thread's first, without idle threads."""
    main = main_thread(threads)
    order = [main] if main else []
    order += [thread for thread in threads if thread is not main and speaks(thread.frames)]
    found = [classify(thread.frames) for thread in order]
    return tuple(dict.fromkeys(kind for kind in found if kind))


def runs_the_script(threads: Sequence[Thread]) -> bool:
    """Return whether the script's own code can be running: the main thread's, or what a framework called."""
    main = main_thread(threads)
    relevant = [thread for thread in threads if thread is main or is_called_by_library(thread.frames)]
    return any(classify(thread.frames) in (USER, CALLBACK, GENERATOR) for thread in relevant)


def common(dumps: Sequence[Sequence[Thread]]) -> list[Thread]:
    """Return the threads of the first dump with the calls that they have in all dumps, from the outermost on.

    Of a loop that calls functions these are the calls down to the loop, with none of those that only some dumps met.  A
    thread of a dump that was cut off, or that is missing there, does not count.
    """
    found = []
    for thread in dumps[0] if dumps else ():
        shared = thread.frames
        for dump in dumps[1:]:
            other = next((one.frames for one in dump if one.ident == thread.ident), ())
            pairs = zip(reversed(shared), reversed(other), strict=False)
            same = sum(1 for _ in takewhile(_is_same_call, pairs))
            shared = shared[len(shared) - same :] if same else shared
        found.append(msgspec.structs.replace(thread, frames=shared))
    return found


def _is_same_call(pair: tuple[Frame, Frame]) -> bool:
    return (pair[0].file, pair[0].function) == (pair[1].file, pair[1].function)


def fingerprint(threads: Sequence[Thread]) -> str:
    """Return a text that is equal for two dumps of a training that has not moved in between.

    It contains the main thread, and the script's code in the library's threads.
    """
    main = main_thread(threads)
    kept = [thread.frames for thread in threads if thread is main or is_called_by_library(thread.frames)]
    return hashlib.sha256(repr(kept).encode()).hexdigest()[:16] if kept else ""


def read(text: str, cwd: str = "", main_wait: str = "") -> StackDump:
    """Return the content of a dump.

    `cwd`: the script's working directory, for a short name of its file; `main_wait`: EVIDENCE_TOOLS.main_wait().
    """
    threads = parse(text)
    at = hung_at(threads, main_wait)
    return StackDump(len(threads), place(at, cwd) if at else "", classes(threads), fingerprint(threads))


def place(frame: Frame, cwd: str) -> str:
    """Return a frame as "file.py:12 in function", of a notebook's cell as "cell 2, line 7 in function"."""
    inside = bool(cwd) and frame.file.startswith(cwd.rstrip("/") + "/")
    name = os.path.relpath(frame.file, cwd) if inside else frame.file
    function = "" if frame.function == "<module>" else f" in {frame.function}"
    return at(name, frame.line) + function


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
    _row(TF_WAIT, r"stallguard/probe/frameworks/mlx\.py( \(as importlib\._bootstrap\))?", "^(evaluate|item)$",
         "seen, MLX 0.32: mx.eval and array.item are in C++, below the probe's wrapper"),
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
FRAMEWORK = re.compile(r"(?:^|/)(tensorflow|keras|tf_keras|tensorflow_probability|torch|jax|jaxlib|mlx|mlx_lm)/")
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
        (r"jax/_src/(array|interpreters/pxla|pjit)\.py", "_value|block_until_ready|__call__|_python_pjit_helper"),
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


class NativePath(msgspec.Struct, frozen=True):
    """A thread's heaviest path, outermost first.  `share` of the samples that were in its last frame."""

    thread: str
    symbols: tuple[str, ...] = ()
    share: float = 1.0


def parse_sample(text: str) -> list[NativePath]:
    """Return the threads of a `sample` report.  Children are indented below their caller, the heaviest first."""
    threads: list[list[_Sampled]] = [[]]
    for line in text.partition("\nTotal number in stack")[0].splitlines():
        match = _SAMPLED.fullmatch(line)
        if not match or match["what"].startswith("Thread_"):
            threads.append([])
        if match:
            threads[-1].append(_Sampled(len(match["lead"]), int(match["count"]), match["what"]))
    return [_heaviest(block) for block in threads if block]


class _Sampled(NamedTuple):
    depth: int
    hits: int
    what: str


def _heaviest(block: Sequence[_Sampled]) -> NativePath:
    """Return the path of the first rows, each of which is deeper than the one before: the heaviest child is first."""
    path = [block[0]]
    for row in block[1:]:
        if row.depth <= path[-1].depth:
            break
        path.append(row)
    thread = path[0].what if path[0].what.startswith("Thread_") else ""
    symbols = tuple(" ".join(_TAIL.sub("", row.what).split()) for row in path[bool(thread) :])
    return NativePath(thread, symbols, path[-1].hits / path[0].hits if path[0].hits else 1.0)


def parse_gdb(text: str) -> list[NativePath]:
    """Return the threads of gdb's `thread apply all bt`, whose frames are innermost first."""
    paths: list[NativePath] = []
    for line in text.splitlines():
        head, frame = _GDB_THREAD.match(line), _GDB_FRAME.match(line)
        if head:
            paths.append(NativePath(f"Thread {head['number']} ({head['name']})"))
        elif frame and paths:
            symbol = f"{frame['symbol']} (in {frame['image']})" if frame["image"] else frame["symbol"]
            paths[-1] = msgspec.structs.replace(paths[-1], symbols=(symbol, *paths[-1].symbols))
    return paths


def native_classes(paths: Iterable[NativePath], *, sampled: bool = True) -> tuple[str, ...]:
    """Return what the waiting threads do, each class once.

    Every wait ends in a lock, so a lock counts only if there is no other class.  `sampled`: over several seconds;
    a single dump (gdb) of a healthy program can show threads that wait for the interpreter's lock.
    """
    stuck = [path for path in paths if path.symbols and path.share >= STUCK]
    found = dict.fromkeys(kind for path in stuck if (kind := classify_native(path.symbols)))
    if not sampled:
        found.pop(GIL_NATIVE, None)
    specific = tuple(kind for kind in found if kind != LOCK)
    return specific or tuple(found)
