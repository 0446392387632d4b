"""Days on Linux, with the wait sites of all threads, and most without a GPU: name -> (cause, story)."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from stallguard.core.diagnosis import causes
from stallguard.core.readings import Device, Files, Machine, Memory
from tests.core.scenarios import device_errors
from tests.core.scenarios.training import training
from tests.simulation.program import GIB
from tests.simulation.simulation import Simulation


def box(seconds: int = 120, *, launched: bool = False) -> Simulation:
    """A Linux machine with 16 GB on which a training has run for a while."""
    memory = Memory(total=16 * GIB, available=9 * GIB, swap_outs=0, stall_some=0.0, stall_full=0.0)
    return training(linux=True, memory=memory, machine=Machine(idle=0.5), launched=launched).train(seconds)


def idle(story: Simulation, seconds: int = 60) -> Simulation:
    return story.be(cores=0.0, faults=0, run_queue=0.0).silent(seconds)


def blocked_op() -> Simulation:
    """A step waits in TensorFlow's runtime for a queue that nobody fills."""
    return idle(box().enter("step"))


def blocked_op_with_stacks() -> Simulation:
    return idle(box().enter("step")).stacks("tf_wait")


def blocked_generator() -> Simulation:
    """Keras 3 fetches inside the step: only the other thread's stack tells."""
    return idle(box().enter("step")).stacks("tf_wait", "iterator")


def blocked_fetch() -> Simulation:
    return idle(box().enter("input"))


def busy_generator() -> Simulation:
    return box().train(30, input_share=0.8).enter("input").be(cores=0.3).silent(950)


def lock_in_a_callback() -> Simulation:
    return idle(box().enter("between"), 400)


def lock_in_a_callback_with_stacks() -> Simulation:
    return idle(box().enter("between"), 400).stacks("lock", "user")


def lock_inside_the_step() -> Simulation:
    """A Python function that the graph calls waits for a lock."""
    return idle(box().enter("step")).stacks("tf_wait", "lock")


def python_function_waits() -> Simulation:
    """The same by a plain acquire(), which leaves no frame of its own; the training's thread is in the library."""
    story = box().enter("step").be(cores=0.0, faults=0, run_queue=0.0)
    return story.silent(60, frame=("library", 0)).stacks("tf_wait", "library_callback")


def python_function_waits_among_new_timers() -> Simulation:
    """The same, and the census shows more timers than are known of the runtime."""
    story = box().enter("step").be(cores=0.0, faults=0, run_queue=0.0, census={"futex": 12, "sleep": 3, "timed": 1})
    return story.silent(60, frame=("library", 0)).stacks("tf_wait", "library_callback")


def python_function_waits_outside() -> Simulation:
    story = box().enter("step").be(cores=0.0, faults=0, run_queue=0.0, sock=1)
    return story.silent(400, frame=("library", 1)).stacks("tf_wait", "library_callback")


def peer_awaited() -> Simulation:
    """A rank of torch waits in the script's own `work.wait()`: another rank does not answer."""
    story = box().note("peers", "", peers="yes").enter("step").be(cores=0.0, faults=0, run_queue=0.0, sock=1)
    return story.silent(400, frame=("call", -1)).stacks("user")


def acquire_in_a_callback() -> Simulation:
    return idle(box().enter("between"), 400).stacks("user")


def socket_in_a_callback() -> Simulation:
    return idle(box().enter("between").be(sock=1), 1000).stacks("user")


def dead_workers() -> Simulation:
    story = box().enter("between")
    story.second()
    story.sampled(replace(story.tree, workers=2))
    return idle(story, 60)


def gil_in_native_code() -> Simulation:
    return idle(box().enter("between").be(pulses=False), 60)


def gil_in_a_busy_native_call() -> Simulation:
    return box().enter("step").be(pulses=False, cores=1.0, faults=0).silent(400)


def endless_python_loop() -> Simulation:
    return box().enter("between").be(cores=1.0, faults=0).silent(1000)


def endless_step() -> Simulation:
    return box().enter("step").be(cores=1.0, faults=0).silent(200)


def sigstop() -> Simulation:
    return idle(box().enter("step").be(pulses=False, state="stopped"), 20)


def retraced() -> Simulation:
    return box().line("tf_retrace", "triggered tf.function retracing. Tracing is expensive").train(60)


def starved_batches() -> Simulation:
    story = box(300)
    story.be(batch=2.0, cores=0.05)
    for _ in range(120):
        story.second()
        heartbeat = story.heartbeat
        story.train(1, longest=2.0, input_s=heartbeat.input_s + 1.8, step_s=heartbeat.step_s + 0.2)
    return story


def neighbours() -> Simulation:
    story = box(300).be(machine_idle=0.02, machine_busiest=("stress",))
    return _slower(story.be(cores=0.8, run_queue=1.2))


def _slower(story: Simulation) -> Simulation:
    """Four minutes of batches that take 2 s each."""
    story.be(batch=2.0)
    for _ in range(120):
        story.second()
        story.train(1, longest=2.0, step_s=story.heartbeat.step_s + 2.0)
    return story


def waits_for_memory() -> Simulation:
    story = box().be(memory_stall_some=0.6, memory_stall_full=0.4, cores=0.05, page_ins=500)
    return story.enter("step").silent(700)


def stuck_on_a_dead_disk() -> Simulation:
    return idle(box().enter("step").be(state="uninterruptible", pulses=False), 200)


def long_save() -> Simulation:
    return box().be(cores=0.3, io=20e6).enter("checkpoint").silent(650)


def long_compile() -> Simulation:
    return box(20).be(cores=1.0, faults=6000).enter("tracing").silent(1000)


def long_save_of_a_growing_file() -> Simulation:
    story = long_save()
    return story.stacks("checkpoint_io").sampled(Files(writing=True))


def long_compile_with_stacks() -> Simulation:
    return long_compile().stacks("compile")


def shuffle_buffer() -> Simulation:
    filling = box().enter("epoch start").line("tf_shuffle_fill").be(cores=0.3, faults=0)
    return filling.silent(200).line("tf_shuffle_fill").silent(1700)


def gil_in_native_code_with_stacks() -> Simulation:
    return gil_in_native_code().stacks("gil_native", "user")


def limit_reached_silently() -> Simulation:
    """SIGKILL, and all that is known is that the limit was near."""
    return box().be(memory_limit=4 * GIB, memory_limit_used=4 * GIB - 1).train(10).exit(-9)


def data_ended() -> Simulation:
    return idle(box().line("keras_out_of_data").enter("epoch end"), 100)


def oom_killed() -> Simulation:
    return box().exit(-9, memory_kill=True)


def keeping(story: Simulation, pid: int = 0) -> Simulation:
    """A callback keeps each batch, and two checkpoints have shown it."""
    for size in (300_000_000, 600_000_000):
        story.be(grown=1e6).train(60)
        story.note("grows", object="callbacks[0].seen of Keeps (train.py:4)", bytes=str(size), pid=pid)
    return story


def list_that_grows() -> Simulation:
    return keeping(box(300)).train(600)


def killed_with_a_list_that_grew() -> Simulation:
    return keeping(box()).exit(-9, memory_kill=True)


def out_of_memory_with_a_list_that_grew() -> Simulation:
    return keeping(box()).line("python_memory", "MemoryError").exit(1)


def killed_inside_with_a_list_that_grew() -> Simulation:
    story = keeping(box(launched=True), 42).be(memory_limit=4 * GIB, memory_limit_used=4 * GIB - 1)
    return story.train(10).leave(42, "vanished").exit(1)


def oom_counted() -> Simulation:
    return box().be(memory_oom_kills=0).train(4).be(memory_oom_kills=1).train(4).exit(-9)


def limit_reached() -> Simulation:
    return box().be(grown=20e6).train(60).line("python_memory", "MemoryError").exit(1)


def kill_9() -> Simulation:
    return box().exit(-9, memory_kill=False)


def kill_9_inside() -> Simulation:
    """The training of a launcher, which then ends with an error of its own."""
    return (
        box(launched=True)
        .leave(42, "vanished")
        .line("python_traceback", "CalledProcessError: died with SIGKILL")
        .exit(1)
    )


def limit_reached_inside() -> Simulation:
    return (
        box(launched=True)
        .be(memory_limit=4 * GIB, memory_limit_used=4 * GIB - 1)
        .train(10)
        .leave(42, "vanished")
        .exit(1)
    )


def segfault_inside() -> Simulation:
    return (
        box(launched=True).line("python_fatal", "Fatal Python error: Segmentation fault").leave(42, "vanished").exit(1)
    )


def segfault_inside_at_a_line() -> Simulation:
    return box(launched=True).leave(42, "vanished").exit(1, where="train.py:31 in on_train_batch_end")


def sigterm() -> Simulation:
    return box().exit(-15)


def segfault() -> Simulation:
    return box().exit(-11)


def segfault_in_a_shell() -> Simulation:
    return box().exit(139)


def exception() -> Simulation:
    return box().line("python_traceback", "ValueError: bad shape").exit(1)


def exit_code_without_a_word() -> Simulation:
    return idle(box().enter("step"), 25).exit(3)


def exit_0_in_the_middle() -> Simulation:
    return box().exit(0)


def finished() -> Simulation:
    return box().enter("finishing").exit(0)


def nothing_fits() -> Simulation:
    """A third of a core of something that also reads and writes."""
    return box().be(cores=0.3, io=200_000).enter("step").silent(1000)


# What an NVIDIA H200 showed of a training (tests/recordings/nvml), with what such a device shows beside it.
TRAINS = Device(
    name="NVIDIA H200", utilisation=0.9, moved=True, power=250.0, used_by_run=True, memory_utilisation=0.3,
    sm_activity=0.6, compute=0.9, power_limit=700.0, clock=1980, clock_limit=1980, slowed_by=(), ecc_errors=0,
    xid_count=0, others=0, lost=0,
)  # fmt: skip
SPINS = {
    "device_utilisation": 1.0, "device_power": 118.0, "device_memory_utilisation": 0.0, "device_sm_activity": 0.008,
    "device_compute": 1.0,
}  # fmt: skip


def cuda(**more: object) -> Simulation:
    """A training on a GPU of NVIDIA."""
    story = training(linux=True, memory=Memory(total=64 * GIB), machine=Machine(idle=0.9), device=TRAINS).train(300)
    return story.enter("step").be(faults=0, run_queue=0.0, **more)


def kernel_without_end() -> Simulation:
    """Its thread polls the driver; the device is busy, and all that would show work rests."""
    return cuda(cores=1.0, **SPINS).silent(100, frame=("library", 0))


def host_callback_without_end() -> Simulation:
    """Its thread polls the driver for work that waits for a function of the host; the device does nothing."""
    rests = {**SPINS, "device_utilisation": 0.0, "device_moved": False, "device_compute": 0.0}
    return cuda(cores=1.0, **rests).silent(100, frame=("device", 0))


def gpu_lost() -> Simulation:
    story = cuda(cores=0.0)
    story.system.device = replace(TRAINS, utilisation=None, moved=None, power=None, used_by_run=None, lost=1)
    return story.silent(400)


def gpu_reports_an_error() -> Simulation:
    return cuda(cores=0.0, device_utilisation=0.0, device_moved=False, device_xid=31, device_xid_count=1).silent(100)


def gpu_kept_cool() -> Simulation:
    return _slower(cuda(device_clock=600, device_slowed_by=("heat",)))


def gpu_shared() -> Simulation:
    return _slower(cuda(device_utilisation=1.0, device_others=1, device_compute=0.3))


MANY: dict[str, tuple[str, Callable[[], Simulation]]] = {
    "blocked op": (causes.DEVICE_WAIT, blocked_op),
    "blocked op, with stacks": (causes.DEVICE_WAIT, blocked_op_with_stacks),
    "blocked generator": (causes.INPUT_STARVATION, blocked_generator),
    "blocked fetch": (causes.INPUT_STARVATION, blocked_fetch),
    "busy generator": (causes.INPUT_STARVATION, busy_generator),
    "lock in a callback": (causes.HOST_DEADLOCK, lock_in_a_callback),
    "lock in a callback, with stacks": (causes.HOST_DEADLOCK, lock_in_a_callback_with_stacks),
    "lock inside the step": (causes.HOST_DEADLOCK, lock_inside_the_step),
    "Python function inside the step": (causes.HOST_DEADLOCK, python_function_waits),
    "Python function inside the step, new timers": (causes.HOST_DEADLOCK, python_function_waits_among_new_timers),
    "socket inside the step": (causes.OUTSIDE_WAIT, python_function_waits_outside),
    "peer awaited": (causes.NCCL, peer_awaited),
    "acquire in a callback": (causes.HOST_DEADLOCK, acquire_in_a_callback),
    "socket in a callback": (causes.OUTSIDE_WAIT, socket_in_a_callback),
    "dead workers": (causes.HOST_DEADLOCK, dead_workers),
    "interpreter's lock in native code": (causes.GIL_HELD, gil_in_native_code),
    "interpreter's lock, with stacks": (causes.GIL_HELD, gil_in_native_code_with_stacks),
    "interpreter's lock in a busy native call": (causes.GIL_HELD, gil_in_a_busy_native_call),
    "endless Python loop": (causes.BUSY_LOOP, endless_python_loop), "endless step": (causes.BUSY_LOOP, endless_step),
    "SIGSTOP": (causes.STOPPED, sigstop), "retraced": (causes.RETRACING, retraced),
    "starved batches": (causes.INPUT_STARVATION, starved_batches), "neighbours": (causes.THROTTLED, neighbours),
    "waits for memory": (causes.MEMORY_THRASH, waits_for_memory),
    "stuck on a dead disk": (causes.STUCK_IN_KERNEL, stuck_on_a_dead_disk), "long save": (causes.SAVING, long_save),
    "long compile": (causes.COMPILING, long_compile),
    "long save of a growing file": (causes.SAVING, long_save_of_a_growing_file),
    "long compile, with stacks": (causes.COMPILING, long_compile_with_stacks),
    "shuffle buffer": (causes.INPUT_STARVATION, shuffle_buffer), "data ended": (causes.DATA_ENDED, data_ended),
    "killed for memory": (causes.OUT_OF_MEMORY_KILL, oom_killed),
    "killed for memory, counted": (causes.OUT_OF_MEMORY_KILL, oom_counted),
    "list that grows": (causes.OBJECT_GROWS, list_that_grows),
    "list that grew, killed": (causes.OBJECT_GROWS, killed_with_a_list_that_grew),
    "list that grew, an allocation fails": (causes.OBJECT_GROWS, out_of_memory_with_a_list_that_grew),
    "list that grew, in a launcher": (causes.OBJECT_GROWS, killed_inside_with_a_list_that_grew),
    "limit reached": (causes.OUT_OF_MEMORY, limit_reached),
    "limit reached silently": (causes.OUT_OF_MEMORY_KILL, limit_reached_silently), "kill -9": (causes.KILLED, kill_9),
    "kill -9, in a launcher": (causes.KILLED, kill_9_inside),
    "limit reached, in a launcher": (causes.OUT_OF_MEMORY_KILL, limit_reached_inside),
    "SIGSEGV, in a launcher": (causes.NATIVE_CRASH, segfault_inside),
    "SIGSEGV at a known line, in a launcher": (causes.NATIVE_CRASH, segfault_inside_at_a_line),
    "SIGTERM": (causes.ENDED_BY_REQUEST, sigterm), "SIGSEGV": (causes.NATIVE_CRASH, segfault),
    "SIGSEGV, told by a shell": (causes.NATIVE_CRASH, segfault_in_a_shell),
    "exception": (causes.SCRIPT_ERROR, exception), "kernel without end": (causes.DEVICE_WAIT, kernel_without_end),
    "host callback without end": (causes.DEVICE_WAIT, host_callback_without_end),
    "GPU lost": (causes.GPU_LOST, gpu_lost), "GPU reports an error": (causes.GPU_ERROR, gpu_reports_an_error),
    "GPU kept cool": (causes.THROTTLED, gpu_kept_cool), "GPU shared": (causes.THROTTLED, gpu_shared),
    "exit code without a word": (causes.SILENT_EXIT, exit_code_without_a_word),
    "exit 0 in the middle": (causes.SILENT_EXIT, exit_0_in_the_middle), "finished": (causes.FINISHED, finished),
}  # fmt: skip
MANY |= {f"CUDA: {name}": row for name, row in device_errors.MANY.items()}
