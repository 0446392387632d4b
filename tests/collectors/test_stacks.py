"""A stack, of faulthandler, `sample` or gdb, says which line of the script hangs and what kind of wait it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.collectors import stacks
from stallguard.collectors.stacks import Frame, classify_native

RECORDINGS = Path(__file__).parent.parent / "recordings/stacks"
HOME = "/home/ada/project"

MACOS = Path(__file__).parent.parent / "recordings/macos"

# The layout of sample(1): children two columns deeper, the heaviest first, markers instead of some spaces.
SAMPLE = """\
Analysis of sampling python3.11 (pid 4242) every 1 millisecond
Call graph:
    1700 Thread_901   DispatchQueue_1: com.apple.main-thread  (serial)
    + 1700 start  (in dyld) + 6076  [0x18c0eb154]
    +   1700 TFE_Py_ExecuteCancelable  (in _pywrap_tensorflow_internal.so) + 88  [0x1]
    +     1690 metal_plugin::block_host_until_done(SP_Device const*, SP_Stream_st*)  (in libmetal_plugin.dylib) + 12
    +     ! 1690 -[_MTLCommandBuffer waitUntilCompleted]  (in Metal) + 104
    +     !   1690 _pthread_cond_wait  (in libsystem_pthread.dylib) + 984
    +     !     1690 __psynch_cvwait  (in libsystem_kernel.dylib) + 8
    +     10 _PyEval_EvalFrameDefault  (in python3.11) + 4
    +       10 something_else  (in python3.11) + 4
    1700 Thread_902
    + 1700 start_wqthread  (in libsystem_pthread.dylib) + 8
    +   1700 _pthread_wqthread  (in libsystem_pthread.dylib) + 364
    +     1700 __workq_kernreturn  (in libsystem_kernel.dylib) + 8
    1700 Thread_903: tf_Compute
      1700 Eigen::EventCount::CommitWait(Eigen::EventCount::Waiter*)  (in libtensorflow_framework.2.dylib) + 1
        1700 __psynch_cvwait  (in libsystem_kernel.dylib) + 8
    1700 Thread_904
    + 900 xla::cpu::Compiler::Compile()  (in x.so) + 1
    + ! 900 llvm::Pass::run()  (in x.so) + 1
    + 800 other  (in x.so) + 1

Total number in stack (recursive counted multiple, when >=5):
        7       metal_plugin::never_counted  (in libmetal_plugin.dylib) + 0
Sort by top of stack, same collapsed (when >= 5):
        __psynch_cvwait  (in libsystem_kernel.dylib)        3390
"""


def recorded(name):
    return (RECORDINGS / f"{name}.txt").read_text()


def read(name):
    return stacks.read(recorded(name), HOME)


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_every_python_is_read_the_same(version):
    threads = stacks.parse(recorded(f"plain-python{version}"))
    main = stacks.main_thread(threads)
    assert len(threads) == 3
    assert main.current
    assert main.frames == (Frame("/home/ada/trainé.py", 10, "__next__"), Frame("/home/ada/trainé.py", 17, "<module>"))
    assert stacks.read(recorded(f"plain-python{version}"), "/home/ada").where == "trainé.py:10 in __next__"


@pytest.mark.parametrize(
    ("name", "where", "classes"),
    [
        ("op-tf2.21", "train.py:30 in op", ("tf_wait",)),
        ("op-tf2.15", "train.py:30 in op", ("tf_wait",)),
        ("generator-tf2.21", "train.py:36 in rows", ("tf_wait", "generator")),
        ("generator-tf2.15", "train.py:36 in rows", ("tf_wait", "generator")),
        ("eager-tf2.21", "train.py:36 in rows", ("iterator", "generator")),
        ("pyfunc-tf2.21", "train.py:55 in load", ("tf_wait", "lock")),
        ("callback-tf2.21", "train.py:70 in on_train_batch_end", ("user",)),
        ("sequence-tf2.21", "train.py:92 in __getitem__", ("tf_wait", "generator")),
        ("sequence-tf2.15", "train.py:92 in __getitem__", ("tf_wait", "generator")),
        ("importing-tf2.21", "common.py:3", ("importing",)),
        ("exit-python3.11", "", ("lock",)),
    ],
)
def test_a_real_training_names_the_line_that_it_hangs_in_and_the_kind_of_wait(name, where, classes):
    seen = read(name)
    assert (seen.where, seen.classes) == (where, classes)


HELD = """Thread 0x2 (most recent call first):
  File "/home/ada/project/train.py", line 7 in held
  File "/home/ada/project/train.py", line 12 in __getitem__
  File "/env/site-packages/keras/src/trainers/data_adapters/py_dataset_adapter.py", line 264 in _finite_generator
  File "/env/site-packages/tensorflow/python/data/ops/from_generator_op.py", line 198 in generator_py_func

Current thread 0x1 (most recent call first):
  File "/home/ada/project/train.py", line 20 in on_train_batch_begin
  File "/env/site-packages/keras/src/callbacks/callback_list.py", line 176 in on_train_batch_begin
  File "/home/ada/project/train.py", line 30 in <module>
"""


@pytest.mark.parametrize(
    ("main_wait", "where"),
    [
        ("timed", "train.py:7 in held"),  # it waits for the interpreter's lock, which wakes it every 5 ms
        ("futex", "train.py:20 in on_train_batch_begin"),
        ("sleep", "train.py:20 in on_train_batch_begin"),
        ("", "train.py:20 in on_train_batch_begin"),
    ],
)
def test_a_script_that_waits_for_the_interpreters_lock_hangs_where_another_thread_has_it(main_wait, where):
    assert stacks.read(HELD, HOME, main_wait).where == where
    alone = HELD[HELD.index("Current") :]
    assert stacks.read(alone, HOME, main_wait).where == "train.py:20 in on_train_batch_begin"


def test_two_dumps_of_what_does_not_move_have_one_fingerprint():
    text = recorded("generator-tf2.21")
    assert stacks.read(text).fingerprint == stacks.read(text.replace("0x0000", "0x0001")).fingerprint
    assert stacks.read(text).fingerprint != stacks.read(text.replace("line 36 in rows", "line 37 in rows")).fingerprint


def test_a_thread_that_has_nothing_to_do_with_it_leaves_the_fingerprint_alone():
    text = recorded("op-tf2.21")
    other = 'Thread 0x00007f1 (most recent call first):\n  File "/x/monitor.py", line %d in run\n\n'
    assert stacks.read(other % 3 + text).fingerprint == stacks.read(other % 4 + text).fingerprint


@pytest.mark.parametrize("name", ["generator-tf2.21", "plain-python3.13"])
def test_a_dump_cut_at_any_byte_gives_what_there_is(name):
    data = recorded(name).encode()
    whole = stacks.read(data.decode(), HOME)
    for end in range(0, len(data), 7):
        seen = stacks.read(data[:end].decode(errors="replace"), HOME)
        assert seen.threads <= whole.threads
    assert stacks.read("").where == ""


@given(st.text())
def test_any_text_is_survived(text):
    stacks.read(text)
    stacks.read(f'Current thread 0x1 (most recent call first):\n  File "{text}", line 3 in f')


def test_long_dumps_and_names_of_threads_are_read():
    text = (
        "Thread 0x00007f2 [worker one] (most recent call first):\n  <no Python frame>\n\n"
        "Current thread 0x00007f1 [MainThread] (most recent call first):\n  Garbage-collecting\n"
        '  File "t.py", line ??? in f\n  File ???, line 3 in g\n  ...\n'
    )
    worker, main = stacks.parse(text)
    assert (worker.name, worker.frames) == ("worker one", ())
    assert main.frames == (Frame("t.py", 0, "f"), Frame("?", 3, "g"))


SITE = "/env/lib/python3.11/site-packages/"
OWN = Frame("/home/ada/train.py", 9, "main")


def frame(path, function):
    return Frame(path if path.startswith(("/", "<")) else SITE + path, 1, function)


@pytest.mark.parametrize(
    ("inner", "kind"),
    [
        ([("tensorflow/python/eager/execute.py", "quick_execute")], "tf_wait"),
        ([("torch/mps/__init__.py", "synchronize")], "metal_wait"),
        ([("h5py/_hl/files.py", "flush"), ("keras/src/saving/saving_lib.py", "save_model")], "checkpoint_io"),
        ([("tensorflow/python/eager/execute.py", "quick_execute"),
          ("tensorflow/python/checkpoint/checkpoint.py", "save")], "checkpoint_io"),
        ([("keras/src/engine/training.py", "save_weights")], "checkpoint_io"),
        ([("torch/serialization.py", "save")], "checkpoint_io"),
        ([("/usr/lib/python3.11/threading.py", "wait"), ("torch/utils/data/dataloader.py", "_next_data")], "iterator"),
        ([("/usr/lib/python3.11/threading.py", "wait"), ("/usr/lib/python3.11/queue.py", "get"),
          ("keras/src/utils/data_utils.py", "get")], "iterator"),
        ([("tensorflow/python/framework/ops.py", "create_op"),
          ("tensorflow/python/framework/func_graph.py", "func_graph_from_py_func")], "compile"),
        ([("jax/_src/compiler.py", "backend_compile")], "compile"),
        ([("<frozen importlib._bootstrap>", "_call_with_frames_removed")], "importing"),
        ([("/usr/lib/python3.11/threading.py", "join")], "lock"),
        ([("/usr/lib/python3.11/multiprocessing/connection.py", "_recv"),
          ("/usr/lib/python3.11/multiprocessing/pool.py", "get")], "lock"),
        ([("pandas/core/frame.py", "merge")], "user"),
        ([], "user"),
    ],
)  # fmt: skip
def test_the_innermost_telling_frame_decides(inner, kind):
    assert stacks.classify([*(frame(*each) for each in inner), OWN]) == kind


@pytest.mark.parametrize(
    ("inner", "caller", "kind"),
    [
        ([], "tensorflow/python/ops/script_ops.py", "library_callback"),
        ([], "jax/_src/callback.py", "library_callback"),
        ([("/usr/lib/python3.11/threading.py", "wait")], "tensorflow/python/ops/script_ops.py", "lock"),
        ([], "tensorflow/python/data/ops/from_generator_op.py", "generator"),
    ],
)
def test_code_of_the_script_that_the_library_called_is_known_as_such(inner, caller, kind):
    inner = [frame(*each) for each in inner]
    assert stacks.classify([*inner, OWN, frame(caller, "__call__")]) == kind


def test_own_code_is_neither_a_package_nor_python_nor_the_probe():
    for path in ("/venv/lib/python3.12/site-packages/x.py", "/usr/lib/python3.11/queue.py", "<frozen runpy>",
                 "/opt/x/stallguard/probe/frameworks/tensorflow.py", "/tmp/__autograph_generated_filex1.py",
                 "/home/ada/clones/keras/src/trainers/trainer.py", "/opt/target/torch/nn/modules/linear.py",
                 "/opt/target/torch/_tensor.py"):  # fmt: skip
        assert not stacks.is_own(Frame(path, 1, "f")), path
    for path in ("train.py", "/home/ada/lib/train.py", "<string>", "<ipython-input-3-x>", "/home/ada/keras/train.py",
                 "/home/ada/torch/utils/losses.py"):  # fmt: skip
        assert stacks.is_own(Frame(path, 1, "f")), path


def test_every_row_has_its_source_and_none_is_dead():
    for row in (*stacks.STRONG, *stacks.LOCKS):
        assert row.source or row.kind == stacks.IMPORTING
    kinds = {row.kind for row in (*stacks.STRONG, *stacks.LOCKS, *stacks.NATIVE)}
    assert {"metal_wait", "mps_compile", "compile", "tf_wait", "iterator", "checkpoint_io", "lock"} <= kinds


def test_the_heaviest_path_of_each_thread_is_read():
    main, pool, eigen, busy = stacks.parse_sample(SAMPLE)
    assert main.thread.startswith("Thread_901")
    assert main.symbols[-1] == "__psynch_cvwait (in libsystem_kernel.dylib)"
    assert len(main.symbols) == 6
    assert main.share == pytest.approx(1690 / 1700)
    assert pool.symbols[0] == "start_wqthread (in libsystem_pthread.dylib)"
    assert len(eigen.symbols) == 2
    assert busy.share == pytest.approx(900 / 1700)


def test_a_wait_in_metal_is_reported_and_idle_pools_and_passing_work_are_not():
    assert stacks.native_classes(stacks.parse_sample(SAMPLE)) == ("metal_wait",)


def test_recorded_excerpts_are_read():
    blocked = stacks.parse_sample((MACOS / "sample_python_blocked_lock_excerpt.txt").read_text())
    assert stacks.native_classes(blocked) == ("lock",)
    assert stacks.parse_sample((MACOS / "sample_header_python313_macos27.txt").read_text()) == []


@pytest.mark.parametrize(
    ("symbols", "kind"),
    [
        # frames that public reports show, outermost first
        (["tensorflow::DirectSession::RunInternal", "tensorflow::DirectSession::WaitForNotification",
          "nsync::nsync_cv_wait_with_deadline_generic", "__psynch_cvwait"], "tf_wait"),
        (["TFE_Py_ExecuteCancelable", "tensorflow::ProcessFunctionLibraryRuntime::RunSync",
          "absl::Notification::WaitForNotification", "absl::Mutex::Block"], "tf_wait"),
        (["torch::mps::MPSModule_deviceSynchronize", "-[_MTLCommandBuffer waitUntilCompleted]",
          "_pthread_cond_wait"], "metal_wait"),
        (["-[_MTLCommandQueue _submitAvailableCommandBuffers]", "_dispatch_semaphore_wait_slow",
          "semaphore_wait_trap"], "metal_wait"),
        (["metal_plugin::runMPSGraph", "metal_plugin::MPSGraphCache::CreateCachedGraph"], "mps_compile"),
        (["take_gil", "__psynch_cvwait"], "gil_native"),
        (["Eigen::EventCount::CommitWait", "nsync::x", "__psynch_cvwait"], ""),
        (["main", "poll"], ""),
    ],
)  # fmt: skip
def test_the_table_knows_what_reports_show(symbols, kind):
    assert classify_native(symbols) == kind


GDB = """\
Thread 2 (Thread 0x7f (LWP 12) "tf_Compute"):
#0  syscall () at ../sysdeps/unix/sysv/linux/x86_64/syscall.S:38
#1  0x00007f in Eigen::EventCount::CommitWait(Eigen::EventCount::Waiter*) () from /env/libtensorflow_framework.so.2

Thread 1 (Thread 0x7e (LWP 11) "python"):
#0  0x00007f2 in absl::Mutex::Block (this=0x1) at mutex.cc:3
#1  0x00007f1 in absl::lts_20230802::Notification::WaitForNotification() const () from /env/libtensorflow_framework.so.2
#2  _start ()
"""


def test_gdb_is_read_and_turned_around():
    pool, main = stacks.parse_gdb(GDB)
    assert main.symbols[0] == "_start"
    assert main.symbols[1].endswith("(in /env/libtensorflow_framework.so.2)")
    assert stacks.native_classes([pool, main], sampled=False) == ("tf_wait",)


def test_a_single_look_says_nothing_about_the_interpreters_lock():
    waiting = stacks.NativePath("Thread 3", ("take_gil", "futex"))
    assert stacks.native_classes([waiting], sampled=False) == ()
    assert stacks.native_classes([waiting]) == ("gil_native",)
