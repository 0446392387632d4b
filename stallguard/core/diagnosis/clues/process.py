"""Clues from the processes of the training: their processor, their state, their stacks, and how they ended."""

# ruff: noqa: D103 - a clue is documented by its sentence

from __future__ import annotations

from stallguard.core.diagnosis import metrics
from stallguard.core.diagnosis.clues import Clue, Facts, Scene, clue, gigabytes, progress, seen_stack
from stallguard.core.text import duration, in_words

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
save_frames = seen_stack("save_frames", "a stack shows a checkpoint or a data file being handled", "checkpoint_io")
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
    shown = scene.stacks("library_callback", "lock") and scene.stacks("tf_wait")
    return shown and cpu_idle.ask(scene) is not None


@clue("two OpenMP runtimes are loaded: {runtimes}")
def two_openmp(scene: Scene) -> Facts | None:
    """In native code: the training's thread is in a call that is no lock, sleep or input of Python's."""
    in_native = progress.waits_in_library.test(scene) or progress.waits_in_call.test(scene)
    return {"runtimes": scene.history.openmp} if scene.history.openmp and in_native else None


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
    rate = metrics.rate(scene.history.process, lambda seen: seen.major_faults, scene.now, 20.0)
    return {"rate": f"{rate:.0f}"} if rate is not None and rate >= PAGING else None


@clue("the process is in the stopped state (SIGSTOP, Ctrl-Z or a debugger)")
def stopped(scene: Scene) -> bool:
    process = metrics.newest(scene.history.process, scene.now)
    return process is not None and process.state == "stopped"


uninterruptible = Clue("uninterruptible",
    "the process hangs in a system call that no signal interrupts, for {duration}",
    lambda scene: _held(scene, "uninterruptible"))  # fmt: skip
stuck_exiting = Clue("stuck_exiting", "the process has been exiting for {duration} and does not end",
    lambda scene: _held(scene, "exiting"))  # fmt: skip


def _held(scene: Scene, state: str) -> Facts | None:
    held = metrics.state_held(scene.history, state, scene.now)
    if held < STUCK or metrics.cpu(scene.history, scene.now, STUCK):
        return None
    return {"duration": duration(held)}


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


# Numbers of Linux and macOS together: SIGILL TRAP ABRT BUS(Linux) FPE BUS(macOS) SEGV.
CRASHES = {4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 10: "SIGBUS", 11: "SIGSEGV"}
ASKED = {1: "SIGHUP", 2: "SIGINT", 15: "SIGTERM"}
# Their numbers differ between systems; no program is ended by them but on purpose.
USERS = ("SIGUSR1", "SIGUSR2")
WORKER = "worker"  # of events.Exited
KILL, SHELL = 9, 128  # a shell reports a signal as 128 + number
QUIET = 20.0  # seconds without progress before the end that were more than a pause


def _signal(scene: Scene) -> int:
    """Return the signal that ended the process, 0 if none did; not one of USERS, whose numbers can be a crash's."""
    code = scene.exited.code if scene.exited else 0
    number = code - SHELL
    if scene.exited and scene.exited.signal in USERS:
        return 0
    return -code if code < 0 else number if number in {KILL, *CRASHES, *ASKED} else 0


# fmt: off
ended_well = Clue("ended_well", "it ended with exit code 0",
    lambda scene: scene.exited is not None and scene.exited.known and scene.exited.code == 0)
killed = Clue("killed", "it was ended by SIGKILL, which stallguard did not send",
    lambda scene: scene.exited is not None and _signal(scene) == KILL)
killed_for_memory = Clue("killed_for_memory", "the kernel reports that it killed the process for lack of memory",
    lambda scene: scene.exited is not None and scene.exited.memory_kill is True)
not_for_memory = Clue("not_for_memory", "the kernel reports no kill for lack of memory",
    lambda scene: scene.exited is not None and scene.exited.memory_kill is False)
# fmt: on


@clue("it ended with exit code {code}")
def ended_badly(scene: Scene) -> Facts | None:
    if scene.exited is None or scene.exited.code <= 0 or _signal(scene):
        return None
    return {"code": str(scene.exited.code)}


@clue("native code crashed ({signal})")
def crashed(scene: Scene) -> Facts | None:
    name = CRASHES.get(_signal(scene))
    return {"signal": name} if scene.exited is not None and name else None


@clue("{how}")
def failed(scene: Scene) -> Facts | None:
    """It ended with an error, of Python or of native code."""
    how = ended_badly.ask(scene) or crashed.ask(scene)
    return {"how": how} if how else None


@clue("the crash was in {line}")
def crash_line(scene: Scene) -> Facts | None:
    end = scene.exited
    if end is None or not end.where or end.process == WORKER:
        return None
    return {"line": in_words(end.where) + (f" ({end.process})" if end.process else "")}


@clue("a worker process of it had crashed, in {line}")
def worker_crash(scene: Scene) -> Facts | None:
    end = scene.exited
    return {"line": in_words(end.where)} if end and end.where and end.process == WORKER else None


@clue("it was ended by {signal}, sent from outside")
def asked_to_go(scene: Scene) -> Facts | None:
    name = ASKED.get(_signal(scene))
    if scene.exited and scene.exited.signal in USERS:
        name = scene.exited.signal
    return {"signal": name} if scene.exited is not None and name else None


@clue("its process vanished: it was killed, or it crashed; the program that started it ended with exit code {code}")
def killed_inside(scene: Scene) -> Facts | None:
    left = scene.history.left
    if left is None or left.how != "vanished" or not ended_badly.test(scene):
        return None
    return {"code": str(scene.exited.code if scene.exited else 0)}


@clue("all epochs were trained")
def all_trained(scene: Scene) -> bool:
    heartbeat = scene.history.heartbeat
    if heartbeat is None:
        return False
    last_epoch = 0 <= heartbeat.epochs <= heartbeat.epoch + 1
    return heartbeat.phase in ("idle", "finishing") or (last_epoch and heartbeat.batch >= heartbeat.batches)


@clue("the training was not over: {where}")
def cut_short(scene: Scene) -> Facts | None:
    heartbeat = scene.history.heartbeat
    if scene.exited is None or heartbeat is None or heartbeat.beats == 0 or all_trained.test(scene):
        return None
    if heartbeat.epochs > 0:
        return {"where": f"epoch {heartbeat.epoch + 1} of {heartbeat.epochs}, batch {heartbeat.batch}"}
    return {"where": f"batch {heartbeat.beats}"} if heartbeat.phase in ("step", "input") else None


@clue("it had made no progress for {duration}")
def quiet_before(scene: Scene) -> Facts | None:
    gap = scene.judgement.gap
    return {"duration": duration(gap)} if scene.exited is not None and gap >= QUIET else None
