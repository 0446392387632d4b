"""Clues from the process tree: what its processor, its state and its stacks say."""

# ruff: noqa: D103 - a clue is documented by its sentence

from __future__ import annotations

from stallguard.core.diagnosis import metrics
from stallguard.core.diagnosis.clues import Facts, Scene, clue, gigabytes, progress, seen_stack

IDLE = 0.10  # cores, all threads of the tree together; a wedged TensorFlow's own timers take 0.02
BUSY = 0.60  # cores wanted, whether the machine has them or not
ONE_CORE = (0.8, 1.25)
QUIET_IO = 65536.0  # bytes a second
PAGING = 50.0  # major faults a second
STUCK = 60.0  # seconds uninterruptible without a break; shorter is a disk at work

metal_frames = seen_stack("metal_frames", "a thread waits inside Metal for the GPU to finish", "metal_wait")
runtime_frames = seen_stack("runtime_frames", "the main thread waits inside the training library", "tf_wait")
compile_frames = seen_stack("compile_frames", "a kernel is being compiled", "mps_compile", "compile")
input_frames = seen_stack("input_frames", "a stack shows the input pipeline waiting", "iterator", "generator")
save_frames = seen_stack(
    "save_frames", "a stack shows a checkpoint or a data file being handled", "checkpoint_io"
)
lock_frames = seen_stack("lock_frames", "the script's own code waits for a lock", "lock")
user_frames = seen_stack("user_frames", "the script's own code runs", "user", "library_callback")
native_frames = seen_stack("native_frames", "threads wait for the interpreter's lock", "gil_native")


@clue("it is inside the training library")
def in_library(scene: Scene) -> bool:
    # A call of the library for the next batch waits for the input, not for the device.
    by_frame = progress.waits_in_library.test(scene) and not progress.waits_for_batch.test(scene)
    return scene.stacks("tf_wait", "metal_wait") or bool(by_frame or progress.in_step.test(scene))


@clue("it waits in a line of the script's own code")
def waits_in_script(scene: Scene) -> bool:
    return scene.stacks("user", "library_callback") and cpu_idle.ask(scene) is not None


@clue()
def starts_an_epoch(scene: Scene) -> bool:
    """Callbacks run before the first batch is asked for, in the same phase: the stack shows which of them waits."""
    own = scene.stacks("user") and not scene.stacks("iterator", "generator")
    return scene.judgement.phase == "epoch start" and own and cpu_idle.ask(scene) is not None


@clue("the library waits for a function of the script that it called, and that function waits")
def callback_waits(scene: Scene) -> bool:
    # A py_function, a pure_callback: the thread in the library is idle because this one is.
    return (
        scene.stacks("library_callback", "lock")
        and scene.stacks("tf_wait")
        and cpu_idle.ask(scene) is not None
    )


@clue("the processor is idle ({cores} of a core)")
def cpu_idle(scene: Scene) -> Facts | None:
    used = metrics.cpu(scene.history, scene.now, scene.window)
    return {"cores": f"{used:.2f}"} if used is not None and used < IDLE else None


@clue("the process wants {cores} cores")
def cpu_busy(scene: Scene) -> Facts | None:
    used = metrics.demand(scene.history, scene.now, scene.window)
    return {"cores": f"{used:.1f}"} if used is not None and used >= BUSY else None


@clue("that is the load of one thread")
def one_core(scene: Scene) -> bool | None:
    used = metrics.demand(scene.history, scene.now, scene.window)
    return None if used is None else ONE_CORE[0] <= used <= ONE_CORE[1]


@clue("nothing is read or written")
def no_io(scene: Scene) -> bool | None:
    moved = metrics.io(scene.history, scene.now, scene.window)
    return None if moved is None else moved < QUIET_IO


@clue("{rate} pages a second come back from disk")
def paging(scene: Scene) -> Facts | None:
    rate = metrics.page_ins(scene.history, scene.now)
    return {"rate": f"{rate:.0f}"} if rate is not None and rate >= PAGING else None


@clue("the process is in the stopped state (SIGSTOP, Ctrl-Z or a debugger)")
def stopped(scene: Scene) -> bool:
    process = metrics.newest(scene.history.process, scene.now)
    return process is not None and process.state == "stopped"


@clue("the process hangs in a system call that no signal interrupts, for {seconds} s")
def uninterruptible(scene: Scene) -> Facts | None:
    return _held(scene, "uninterruptible")


@clue("the process has been exiting for {seconds} s and does not end")
def stuck_exiting(scene: Scene) -> Facts | None:
    return _held(scene, "exiting")


def _held(scene: Scene, state: str) -> Facts | None:
    held = metrics.state_held(scene.history, state, scene.now)
    if held < STUCK or metrics.processor_moved(scene.history, STUCK, scene.now):
        return None
    return {"seconds": f"{held:.0f}"}


@clue("SIGKILL was sent, and the process is still there ({state})")
def survived_kill(scene: Scene) -> Facts | None:
    found = scene.history.unkillable
    return None if found is None else {"state": found.state or "state unknown"}


@clue("worker processes of the training died")
def workers_died(scene: Scene) -> bool:
    died = scene.history.workers_died_at
    return died is not None and died >= scene.judgement.since


@clue("it has worker processes, or had")
def has_workers(scene: Scene) -> bool:
    process = metrics.newest(scene.history.process, scene.now)
    return scene.history.workers_died_at is not None or (process is not None and (process.members or 0) > 1)


@clue("its memory grew by {grown} while it trained ({hourly} an hour)")
def growing(scene: Scene) -> Facts | None:
    trend = metrics.growth(scene.history)
    if trend is None or trend.rising < STEADY_RISE or trend.total < LEAST_GROWTH:
        return None
    first = scene.history.growth.points[0][1]
    if trend.total < GROWTH_SHARE * first:
        return None
    return {"grown": gigabytes(trend.total), "hourly": gigabytes(trend.slope * 3600)}


STEADY_RISE = 0.7  # share of steps that went up: a leak climbs, a cache jumps and rests
LEAST_GROWTH = 150_000_000  # bytes
GROWTH_SHARE = 0.15  # of what it had at first
