"""Nights on a Mac, as the reports and recordings of Metal trainings tell them: name -> (cause, mode, story).

The readings are recorded ones, or keep to what macOS really says: no wait sites, coarse GPU utilisation, a memory
pressure level, swap in bytes, thermal levels in words.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from stallguard.core.diagnosis import causes
from stallguard.core.events import ProbeConnected, SensorBlocked, Unkillable
from stallguard.core.readings import Machine, Memory
from tests.core.scenarios import recorded
from tests.core.scenarios.training import training
from tests.simulation.program import GIB
from tests.simulation.simulation import Simulation

WORKING = recorded.gpu("ioreg_ioaccelerator_g14x_41pct_trimmed.txt", moved=True, used_by_run=True)
IDLE = recorded.gpu("ioreg_perfstats_m1_2pct_trimmed.txt", moved=False)
RESTING = {"device_utilisation": IDLE.utilisation, "device_moved": False}
COOL = recorded.thermal("pmset_g_therm_apple_silicon_nominal.txt")
SWAPPED = recorded.memory("sysctl_vm_swapusage_heavy.txt", "vm_stat_m_series_32g_healthy.txt")
LOADED = recorded.memory("sysctl_memory_loaded_48g_18core.txt", "vm_stat_m_series_pressure_trimmed.txt")


def mac(**more: object) -> Simulation:
    """A Mac with 16 GB that has trained for five minutes."""
    story = training(
        device=WORKING,
        memory=Memory(total=16 * GIB, pressure="normal", swap_used=0, swap_outs=0, compressed=GIB),
        machine=Machine(idle=0.7, busiest=("WindowServer",), power="ac", thermal=COOL),
    )
    return printing(story.be(**more), "stdout_tensorflow_metal_device_init_m1pro.txt").train(300)


def printing(story: Simulation, recording: str) -> Simulation:
    """The script prints what was recorded."""
    for signature, line in recorded.signatures(recording):
        story.line(signature, line)
    return story


def quiet(story: Simulation, seconds: float = 150, **more: object) -> Simulation:
    """The processor and the GPU come to rest."""
    return story.be(cores=0.005, faults=0, **(RESTING | more)).silent(seconds)


def f1_lost_completion() -> Simulation:
    return quiet(mac().enter("step"))


def f1_stack_in_metal() -> Simulation:
    return quiet(mac().enter("step")).stacks("metal_wait", "tf_wait")


def f1_sensor_blocked() -> Simulation:
    """The registry read hangs with the driver: nothing is known of the GPU any more."""
    story = mac().enter("step")
    story.system.device = None
    return story.be(cores=0.005, faults=0).silent(5).tell(SensorBlocked, sensor="device", seconds=3.0).silent(320)


def f1_outside_of_a_step() -> Simulation:
    """A callback reads the loss, and with it waits for the device."""
    return quiet(mac().enter("between"), 1000).stacks("metal_wait", "user")


def f1_metal_holds_the_lock() -> Simulation:
    """The completion handlers run under the interpreter's lock: no thread can pulse."""
    return quiet(mac().enter("step").be(pulses=False)).stacks("metal_wait")


def f1_one_kernel_for_ever() -> Simulation:
    return quiet(mac().enter("step"), device_utilisation=0.99, device_moved=True).silent(500)


def f1_busy_without_end() -> Simulation:
    """The same beside a thread that stands in one call and polls the driver; nothing else happens."""
    story = mac().enter("step").be(cores=1.0, faults=0, device_utilisation=1.0, device_moved=True)
    return story.silent(100, frame=("library", 0))


def f1_busy_in_the_first_batch() -> Simulation:
    """The same in the first batch of another fit, whose pace is not known."""
    story = mac().enter("step", fits=2, fit_beats=0).be(cores=1.0, faults=0, device_utilisation=1.0, device_moved=True)
    return story.silent(920, frame=("library", 0))


def f1_batches_queue_up() -> Simulation:
    """A loop that never reads the loss beats on, while the device does nothing."""
    story = mac().be(cores=0.05, **RESTING)
    asked, done = story.heartbeat.poll_at, story.heartbeat.iterations
    for _ in range(400):
        story.train(1, poll_at=asked, iterations=done)
    return story


def f2_swap_crawl() -> Simulation:
    """Batches take ever longer; then nothing, with 21 GB in swap and more going there."""
    story = mac().be(
        grown=40e6, swapped=30e6, page_ins=400, cores=0.07, memory_pressure="critical", memory_swap_used=9 * GIB
    )
    for pause in (1, 3, 9, 27, 60):
        story.silent(pause).train(1, longest=float(pause))
    return story.silent(200)


def f2_pressure_only() -> Simulation:
    """The level is all that is known: the swap counters were not read."""
    story = mac().be(memory_pressure="critical", memory_swap_outs=None, page_ins=300, cores=0.08, **RESTING)
    story.system.memory = Memory(total=16 * GIB, pressure="critical")
    story.training.tree = replace(story.tree, footprint=15 * GIB)
    for pause in (2, 4, 8, 16):
        _without_swap(story, pause).train(1, longest=float(pause))
    return _without_swap(story.enter("step"), 200)


def _without_swap(story: Simulation, seconds: int) -> Simulation:
    for _ in range(seconds):
        story.system.memory = Memory(total=16 * GIB, pressure="critical")
        story.silent(1)
    return story


def f2_leak() -> Simulation:
    """+606 MB an epoch, at a constant batch."""
    return mac().be(grown=3e6).train(1500).be(memory=LOADED).train(60)


def f3_pause() -> Simulation:
    """75 s without a batch, and on as if nothing had been."""
    return quiet(mac().enter("step"), 75).be(cores=0.8, device_moved=True).train(5, longest=75.0)


def f3_heat() -> Simulation:
    return _slower(mac().be(machine_thermal="serious"), 4.0)


def f3_battery() -> Simulation:
    """Unplugged, in low-power mode, at half the clock."""
    saving = {"machine_power": "battery", "machine_low_power": True, "machine_cpu_limit": 0.5}
    return _slower(mac().be(**saving), 4.0)


def _slower(story: Simulation, factor: float, seconds: int = 240, **more: object) -> Simulation:
    """Batches take `factor` times as long: one record a batch."""
    batch = story.training.batch = story.training.batch * factor
    for _ in range(int(seconds / batch)):
        for _ in range(max(1, int(batch)) - 1):
            story.second()
        story.train(1, longest=batch, step_s=story.heartbeat.step_s + batch, **more)
    return story


def f4_error_and_on() -> Simulation:
    story = mac().line("mps_cb_error").line("iogpu_hang", "Caused GPU Hang Error (00000003:kIOGPU...)")
    return story.be(device_recoveries=1).train(20)


def f4_header_alone() -> Simulation:
    return mac().line("mps_cb_error").line("mps_cb_incomplete").train(20)


def f4_reset_without_words() -> Simulation:
    """The driver counts a restart of the GPU; nothing reaches the output."""
    return quiet(mac().enter("step").be(device_recoveries=1), 20).be(cores=0.8).train(5)


def f4_ignored() -> Simulation:
    return printing(mac(), "stderr_tf_m1_command_buffer_error.txt").be(**RESTING).train(20)


def f4_memory() -> Simulation:
    return mac().be(memory_pressure="warn").line("iogpu_oom").train(10)


def f4_interactivity() -> Simulation:
    return mac().line("mps_cb_error").line("iogpu_internal", "Internal Error (0000000e:Internal Error)").train(10)


def f5_memory() -> Simulation:
    return mac().be(memory_pressure="critical").line("iogpu_oom").line("libcxxabi").exit(-6)


def f5_timeout() -> Simulation:
    return mac().line("iogpu_timeout").line("libcxxabi").exit(-6)


def f5_victim() -> Simulation:
    """Another program's error reset the GPU, and took this one's work with it."""
    return printing(mac(), "stderr_mlx_innocent_victim.txt").exit(-6)


def f5_interactivity() -> Simulation:
    return mac().line("iogpu_interactivity").line("libcxxabi").exit(134)


def f6_jetsam() -> Simulation:
    """SIGKILL that nobody sent, pressure red just before; macOS does not tell the parent why."""
    return mac().be(memory_pressure="critical", swapped=50e6, grown=60e6).train(120).exit(-9)


def f6_killed_with_a_word() -> Simulation:
    """Started through a shell, which tells of the kill."""
    return mac().be(memory_pressure="warn").line("shell_killed", "Killed: 9").train(4).exit(137)


def killed_without_need() -> Simulation:
    return mac().exit(-9)


def f6_clean_exception() -> Simulation:
    return mac().line("torch_mps_oom").line("python_traceback", "RuntimeError: MPS backend out of memory").exit(1)


def f7_assertion() -> Simulation:
    return mac().line("mps_assert").exit(-6)


def f7_recursive_mutex() -> Simulation:
    return mac().line("mutex_invalid", "recursive_mutex lock failed: Invalid argument").exit(-5)


def f7_size() -> Simulation:
    return mac().line("mpsndarray_2_32").exit(-6)


def f8_host_deadlock() -> Simulation:
    """absl::Notification at the end of an epoch; the GPU has nothing to do with it."""
    found = recorded.stack_classes("sample_python_blocked_lock_excerpt.txt")
    return quiet(mac().enter("epoch end"), 700).stacks(*found)


def f8_python_function(wakers: int) -> Simulation:
    """A function of the script, called in the step, waits for a lock, or for a socket that its own frame shows."""
    story = mac().enter("step").be(cores=0.005, faults=0, **RESTING)
    return story.silent(150, frame=("library", wakers)).stacks("tf_wait", "library_callback")


def f8_two_openmp() -> Simulation:
    """An operation of torch waits at a barrier of OpenMP."""
    story = mac().note("openmp", "", openmp="torch/lib/libomp.dylib and env/lib/libomp.dylib").enter("step")
    return story.be(cores=0.005, faults=0, **RESTING).silent(150, frame=("library", 0))


def f8_lost_peer() -> Simulation:
    """A rank of MLX keeps a core busy in a collective operation: another rank does not answer."""
    story = mac().note("peers", "", peers="yes").enter("step")
    return story.be(cores=1.0, faults=0, **RESTING).silent(400, frame=("io", -1))


def f8_mutex() -> Simulation:
    story = training(device=IDLE)
    return story.be(cores=0.0).line("mutex_lock_blocking", "[mutex.cc : 452] RAW: Lock blocking 0x6000").silent(200)


def f8_busy() -> Simulation:
    """100 % of one core in pandas, between two epochs."""
    return mac().be(cores=1.0, faults=0, **RESTING).enter("epoch end").silent(1900).stacks("user")


def f9_panic() -> Simulation:
    text = "panic: watchdog timeout: no checkins from watchdogd in 93 seconds"
    return mac().line("panic_watchdogd", text)


def f10_busy_after_kill() -> Simulation:
    story = quiet(mac().enter("step"), 130).exit(-9)
    return story.be(device_utilisation=1.0, device_used_by_run=False, device_moved=None).silent(90)


def f10_exiting_for_ever() -> Simulation:
    return quiet(mac().enter("step"), 30).be(state="exiting", cores=0.0, pulses=False).silent(150)


def f10_survives_sigkill() -> Simulation:
    return quiet(mac().enter("step"), 30).tell(Unkillable, attempt=1, state="exiting")


def f11_cpu_training() -> Simulation:
    story = training(device=replace(IDLE, used_by_run=False))
    return story.be(cores=5.0).train(200)


def f11_no_gpu_found() -> Simulation:
    return training().line("metal_no_gpu", "No supported GPU was found.").be(cores=5.0).train(100)


def f11_slow_optimizer() -> Simulation:
    return mac().line("optimizer_slow").train(60)


def f11_rebuilt_each_batch() -> Simulation:
    story = mac()
    for _ in range(60):
        story.train(1, traces=story.heartbeat.traces + 4)
    return story


def f11_rosetta() -> Simulation:
    story = mac()
    versions = {"tensorflow": "2.18.1", "machine": "x86_64"}
    return story.tell(ProbeConnected, attempt=1, pid=42, versions=versions).train(10)


def f12_library() -> Simulation:
    text = "Library not loaded: @rpath/_pywrap_tensorflow_internal.so"
    return training().line("plugin_rpath", text).line("python_traceback", "tensorflow.python...NotFoundError").exit(1)


def f13_loss() -> Simulation:
    place = {"value": "nan", "where": "epoch 1, batch 3"}
    story = mac().train(5).note("nonfinite", "the loss is nan from epoch 1, batch 3 on", **place)
    return story.train(5, loss_not_finite="nan")


def stopped() -> Simulation:
    return quiet(mac().enter("step").be(pulses=False, state="stopped"), 30)


def asleep() -> Simulation:
    return quiet(mac().enter("step"), 130).sleep(3600).silent(12)


def exit_hang() -> Simulation:
    return quiet(mac().enter("finishing"), 320)


def exit_behind_a_dead_worker() -> Simulation:
    """An exit handler of the script waits for the answer of a worker that died."""
    story = mac().enter("finishing").be(cores=0.005, faults=0, workers=1, **RESTING)
    return story.silent(320, frame=("lock", 0)).stacks("user", "lock")


MANY: dict[str, tuple[str, str, Callable[[], Simulation]]] = {
    "F1 lost completion": (causes.DEVICE_WAIT, "F1", f1_lost_completion),
    "F1 stack in Metal": (causes.DEVICE_WAIT, "F1", f1_stack_in_metal),
    "F1 sensor blocked": (causes.DEVICE_WAIT, "F1", f1_sensor_blocked),
    "F1 outside of a step": (causes.DEVICE_WAIT, "F1", f1_outside_of_a_step),
    "F1 Metal holds the lock": (causes.DEVICE_WAIT, "F1", f1_metal_holds_the_lock),
    "F1 one kernel for ever": (causes.DEVICE_WAIT, "F1", f1_one_kernel_for_ever),
    "F1 busy without end": (causes.DEVICE_WAIT, "F1", f1_busy_without_end),
    "F1 busy in the first batch": (causes.DEVICE_WAIT, "F1", f1_busy_in_the_first_batch),
    "F1 batches queue up": (causes.DEVICE_WAIT, "F1", f1_batches_queue_up),
    "F2 swap crawl": (causes.MEMORY_THRASH, "F2", f2_swap_crawl),
    "F2 pressure only": (causes.MEMORY_THRASH, "F2", f2_pressure_only),
    "F2 leak": (causes.MEMORY_GROWTH, "F2", f2_leak), "F3 pause": (causes.TRANSIENT, "F3", f3_pause),
    "F3 heat": (causes.THROTTLED, "F3", f3_heat), "F3 battery": (causes.THROTTLED, "F3", f3_battery),
    "F4 error and on": (causes.GPU_ERROR, "F4", f4_error_and_on),
    "F4 header alone": (causes.GPU_ERROR, "F4", f4_header_alone),
    "F4 reset without words": (causes.GPU_ERROR, "F4", f4_reset_without_words),
    "F4 ignored": (causes.GPU_ERROR_STICKY, "F4", f4_ignored),
    "F4 memory": (causes.GPU_OUT_OF_MEMORY, "F4", f4_memory),
    "F4 interactivity": (causes.GPU_INTERACTIVITY, "F4", f4_interactivity),
    "F5 memory": (causes.GPU_OUT_OF_MEMORY, "F5", f5_memory), "F5 timeout": (causes.GPU_ERROR, "F5", f5_timeout),
    "F5 victim": (causes.GPU_ERROR, "F5", f5_victim),
    "F5 interactivity": (causes.GPU_INTERACTIVITY, "F5", f5_interactivity),
    "F6 jetsam": (causes.OUT_OF_MEMORY_KILL, "F6", f6_jetsam),
    "F6 killed with a word": (causes.OUT_OF_MEMORY_KILL, "F6", f6_killed_with_a_word),
    "F6 clean exception": (causes.GPU_OUT_OF_MEMORY, "F6", f6_clean_exception),
    "F7 assertion": (causes.NATIVE_CRASH, "F7", f7_assertion),
    "F7 recursive mutex": (causes.NATIVE_CRASH, "F7", f7_recursive_mutex),
    "F7 size": (causes.SIZE_LIMIT, "F7", f7_size), "F8 host deadlock": (causes.HOST_DEADLOCK, "F8", f8_host_deadlock),
    "F8 lock in the step": (causes.HOST_DEADLOCK, "F8", lambda: f8_python_function(0)),
    "F8 socket in the step": (causes.OUTSIDE_WAIT, "F8", lambda: f8_python_function(1)),
    "F8 two OpenMP": (causes.OPENMP_CLASH, "F8", f8_two_openmp),
    "F8 lost peer": (causes.NCCL, "", f8_lost_peer),
    "F8 mutex": (causes.MUTEX_CLASH, "F8", f8_mutex), "F8 busy": (causes.BUSY_LOOP, "F8", f8_busy),
    "F9 panic": (causes.MACHINE_FROZE, "F9", f9_panic),
    "F10 busy after the kill": (causes.GPU_BUSY_AFTER_KILL, "F10", f10_busy_after_kill),
    "F10 exiting for ever": (causes.STUCK_IN_KERNEL, "F10", f10_exiting_for_ever),
    "F10 survives SIGKILL": (causes.STUCK_IN_KERNEL, "F10", f10_survives_sigkill),
    "F11 CPU training": (causes.CPU_FALLBACK, "F11", f11_cpu_training),
    "F11 no GPU found": (causes.CPU_FALLBACK, "F11", f11_no_gpu_found),
    "F11 slow optimizer": (causes.SLOW_OPTIMIZER, "F11", f11_slow_optimizer),
    "F11 rebuilt each batch": (causes.RETRACING, "F11", f11_rebuilt_each_batch),
    "F11 Rosetta": (causes.ROSETTA, "F11", f11_rosetta), "F12 library": (causes.PLUGIN_MISMATCH, "F12", f12_library),
    "F13 loss": (causes.WRONG_NUMBERS, "F13", f13_loss),
    "killed without need": (causes.KILLED, "", killed_without_need), "stopped": (causes.STOPPED, "", stopped),
    "asleep": (causes.ASLEEP, "", asleep), "exit hang": (causes.EXIT_HANG, "F8", exit_hang),
    "exit behind a dead worker": (causes.EXIT_HANG, "F8", exit_behind_a_dead_worker),
}  # fmt: skip
