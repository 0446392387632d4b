"""Native stacks are read from what `sample` and gdb print, and classified as the reports have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallguard.collectors import native
from stallguard.collectors.frames import classify_native

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


def test_the_heaviest_path_of_each_thread_is_read():
    main, pool, eigen, busy = native.parse_sample(SAMPLE)
    assert main.thread.startswith("Thread_901")
    assert main.symbols[-1] == "__psynch_cvwait (in libsystem_kernel.dylib)"
    assert len(main.symbols) == 6
    assert main.share == pytest.approx(1690 / 1700)
    assert pool.symbols[0] == "start_wqthread (in libsystem_pthread.dylib)"
    assert len(eigen.symbols) == 2
    assert busy.share == pytest.approx(900 / 1700)


def test_a_wait_in_metal_is_reported_and_idle_pools_and_passing_work_are_not():
    assert native.classes(native.parse_sample(SAMPLE)) == ("metal_wait",)


def test_recorded_excerpts_are_read():
    blocked = native.parse_sample((MACOS / "sample_python_blocked_lock_excerpt.txt").read_text())
    assert native.classes(blocked) == ("lock",)
    assert native.parse_sample((MACOS / "sample_header_python313_macos27.txt").read_text()) == []


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
    pool, main = native.parse_gdb(GDB)
    assert main.symbols[0] == "_start"
    assert main.symbols[1].endswith("(in /env/libtensorflow_framework.so.2)")
    assert native.classes([pool, main], sampled=False) == ("tf_wait",)


def test_a_single_look_says_nothing_about_the_interpreters_lock():
    waiting = native.Path("Thread 3", ("take_gil", "futex"))
    assert native.classes([waiting], sampled=False) == ()
    assert native.classes([waiting]) == ("gil_native",)
