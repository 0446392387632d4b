"""The patterns by which causes are recognised: a table that can be read beside the collected reports.

A row fits where all its `requires` hold and none of `excludes` does.  It starts at `base`; each of its `proofs`
that holds adds 0.3, each of `supports` 0.08, and each of `against` takes 0.2.  Several rows may name one cause:
the best one speaks for it.  `mode` is the failure mode F1..F13 of the reports on Metal training.  What a clue
asks is in core/clues.  This module may not judge a scene.
"""

from __future__ import annotations

from typing import NamedTuple

from stallguard.core import causes
from stallguard.core.clues import Clue, device, ending, machine, memory, output, process, silence

PROOF, SUPPORT, AGAINST = 0.3, 0.08, 0.2


class Pattern(NamedTuple):
    """One row.  `base`: the confidence, 0..1, where nothing but the required clues is known."""

    cause: str
    mode: str
    base: float
    requires: tuple[Clue, ...]
    proofs: tuple[Clue, ...] = ()
    supports: tuple[Clue, ...] = ()
    against: tuple[Clue, ...] = ()
    excludes: tuple[Clue, ...] = ()


PATTERNS: tuple[Pattern, ...] = (
    # ---- silent, and the process lives ----------------------------------------------------------------------
    Pattern(
        causes.DEVICE_WAIT, "F1", 0.45,
        requires=(silence.silent, silence.alive, process.cpu_idle, process.in_library),
        proofs=(process.metal_frames,),
        supports=(
            process.runtime_frames, silence.pulses, device.gpu_idle, silence.deadlocked, device.gpu_sensor_blocked,
        ),
        against=(
            process.input_frames, process.lock_frames, process.waits_in_script, process.native_frames,
            silence.no_pulses, silence.waits_outside, memory.swapping, memory.memory_waits, memory.critical,
            process.workers_died,
            machine.slept, output.data_ended,
        ),
        excludes=(process.stopped,),
    ),
    Pattern(
        causes.DEVICE_WAIT, "F1", 0.6,
        requires=(silence.silent, silence.alive, silence.device_behind),
        proofs=(process.metal_frames,),
        supports=(device.gpu_idle,),
    ),
    # The stack says it even where the phase does not: Metal is also waited for when a loss or weights are read.
    Pattern(
        causes.DEVICE_WAIT, "F1", 0.6,
        requires=(silence.silent, silence.alive, process.cpu_idle, process.metal_frames),
        supports=(silence.pulses, device.gpu_idle, device.on_metal),
        against=(memory.swapping, memory.memory_waits, memory.critical, output.data_ended),
        excludes=(process.stopped,),
    ),
    # Not idle at the device, and yet no progress: one kernel that does not end.
    Pattern(
        causes.DEVICE_WAIT, "F1", 0.55,
        requires=(silence.silent, silence.alive, process.cpu_idle, device.gpu_busy, silence.in_step),
        proofs=(process.metal_frames,),
        supports=(silence.pulses,),
        excludes=(process.stopped,),
    ),
    Pattern(
        causes.HOST_DEADLOCK, "F8", 0.3,
        requires=(silence.silent, silence.alive, process.cpu_idle),
        proofs=(process.lock_frames, process.workers_died, process.waits_in_script),
        supports=(silence.deadlocked, silence.outside_step, silence.pulses),
        against=(
            process.metal_frames, process.input_frames, silence.in_step, silence.waits_for_batch, silence.finishing,
            silence.saving, silence.no_pulses, silence.waits_outside, memory.swapping, machine.slept,
            output.data_ended,
        ),
        excludes=(process.stopped,),
    ),
    Pattern(
        causes.OUTSIDE_WAIT, "F8", 0.45,
        requires=(silence.silent, silence.alive, process.cpu_idle, silence.waits_outside),
        supports=(process.waits_in_script, silence.outside_step, silence.pulses),
        against=(
            process.input_frames, process.lock_frames, process.workers_died, silence.in_step, silence.waits_for_batch,
            silence.finishing, silence.no_pulses,
        ),
        excludes=(process.stopped,),
    ),
    Pattern(
        causes.MUTEX_CLASH, "F8", 0.8,
        requires=(output.mutex_clash, silence.alive),
        supports=(silence.silent, process.cpu_idle, silence.never_trained),
    ),
    Pattern(
        causes.GIL_HELD, "F8", 0.6,
        requires=(silence.silent, silence.alive, silence.no_pulses),
        proofs=(process.native_frames,),
        supports=(process.cpu_idle, process.one_core, silence.deadlocked, process.lock_frames),
        against=(
            memory.swapping, memory.memory_waits, process.paging, machine.slept, process.uninterruptible,
            process.stuck_exiting,
        ),
        excludes=(process.stopped, process.metal_frames),  # Metal's own handlers may hold that lock
    ),
    Pattern(
        causes.BUSY_LOOP, "F8", 0.45,
        requires=(silence.silent, silence.alive, process.cpu_busy),
        supports=(silence.spinning, process.one_core, process.no_io, process.user_frames, silence.in_step),
        against=(
            silence.working, silence.compiling, process.compile_frames, process.input_frames, silence.no_pulses,
            silence.waits_for_batch, silence.saving, process.paging, output.filling,
        ),
    ),
    Pattern(
        causes.INPUT_STARVATION, "F8", 0.5,
        requires=(silence.silent, silence.alive, process.input_frames),
        supports=(silence.waits_for_batch, silence.much_input, process.cpu_idle, output.filling, process.workers_died),
        against=(process.metal_frames, silence.finishing, silence.no_pulses),
        excludes=(process.stopped,),
    ),
    Pattern(
        causes.INPUT_STARVATION, "F8", 0.5,
        requires=(silence.silent, silence.alive, silence.waits_for_batch),
        supports=(silence.much_input, silence.pulses, output.filling, process.workers_died),
        against=(
            process.metal_frames, process.lock_frames, silence.no_pulses, silence.spinning, machine.slept,
        ),
        excludes=(process.stopped,),
    ),
    Pattern(
        causes.INPUT_STARVATION, "F11", 0.55,
        requires=(silence.slow, silence.slow_by_input),
        supports=(silence.much_input, process.input_frames, device.gpu_idle),
        against=(memory.swapping, machine.crowded),
        excludes=(silence.silent,),
    ),
    # ---- memory ----------------------------------------------------------------------------------------------
    Pattern(
        causes.MEMORY_THRASH, "F2", 0.6,
        requires=(silence.hindered, silence.alive, memory.swapping),
        supports=(
            memory.pressed, memory.near_ram, process.paging, silence.slowed_down, memory.memory_waits, process.growing,
        ),
        against=(memory.unpressed,),
        excludes=(process.stopped,),
    ),
    Pattern(
        causes.MEMORY_THRASH, "F2", 0.5,
        requires=(silence.hindered, silence.alive, memory.memory_waits),
        supports=(memory.pressed, memory.near_ram, memory.near_limit, process.paging, silence.slowed_down),
        against=(memory.unpressed,),
        excludes=(process.stopped,),
    ),
    Pattern(
        causes.MEMORY_THRASH, "F2", 0.42,
        requires=(silence.hindered, silence.alive, memory.critical),
        supports=(
            memory.pressed, memory.near_ram, process.paging, silence.slowed_down, process.growing, process.metal_frames,
        ),
        excludes=(process.stopped,),
    ),
    Pattern(
        causes.MEMORY_GROWTH, "F2", 0.55,
        requires=(silence.alive, process.growing),
        supports=(silence.rebuilt, memory.pressed, memory.near_limit, memory.near_ram, silence.slow),
    ),
    Pattern(
        causes.OUT_OF_MEMORY_KILL, "F6", 0.95,
        requires=(ending.killed_for_memory,),
    ),
    Pattern(
        causes.OUT_OF_MEMORY_KILL, "F6", 0.55,
        requires=(ending.killed,),
        proofs=(memory.oom_counted, memory.near_limit),
        supports=(
            memory.pressed, memory.near_ram, memory.swapping, process.growing, output.killed_line, device.on_metal,
        ),
        against=(memory.unpressed, memory.plenty),
        excludes=(ending.not_for_memory,),
    ),
    Pattern(
        causes.OUT_OF_MEMORY_KILL, "F6", 0.4,
        requires=(ending.killed_inside,),
        proofs=(memory.oom_counted, memory.near_limit),
        supports=(memory.pressed, memory.near_ram, memory.swapping, process.growing, output.killed_line),
        against=(memory.unpressed, memory.plenty),
        excludes=(ending.not_for_memory,),
    ),
    Pattern(
        causes.OUT_OF_MEMORY, "F6", 0.75,
        requires=(ending.ended_badly, output.host_memory),
        supports=(process.growing, memory.near_limit, memory.near_ram, memory.pressed),
    ),
    # ---- what the GPU reported ------------------------------------------------------------------------------
    Pattern(
        causes.GPU_ERROR, "F4", 0.6,
        requires=(output.gpu_fault, silence.alive),
        supports=(output.gpu_fault_header, device.gpu_reset, silence.silent, device.gpu_idle),
    ),
    Pattern(
        causes.GPU_ERROR, "F4", 0.5,
        requires=(output.gpu_fault_header, silence.alive),
        supports=(device.gpu_reset, silence.silent),
    ),
    Pattern(
        causes.GPU_ERROR, "F4", 0.4,
        requires=(device.gpu_reset, device.uses_gpu, silence.alive),
        supports=(silence.silent, device.gpu_idle),
    ),
    Pattern(
        causes.GPU_ERROR, "F5", 0.75,
        requires=(ending.crashed, output.gpu_fault),
        supports=(device.gpu_reset, output.fatal),
    ),
    Pattern(
        causes.GPU_ERROR_STICKY, "F4", 0.85,
        requires=(output.gpu_ignored,),
        supports=(output.gpu_fault, device.gpu_idle, device.gpu_reset),
    ),
    Pattern(
        causes.GPU_OUT_OF_MEMORY, "F4", 0.8,
        requires=(output.gpu_memory, silence.alive),
        supports=(memory.pressed, memory.near_ram, silence.silent),
    ),
    Pattern(
        causes.GPU_OUT_OF_MEMORY, "F5", 0.85,
        requires=(ending.crashed, output.gpu_memory),
        supports=(memory.pressed, output.fatal),
    ),
    Pattern(
        causes.GPU_OUT_OF_MEMORY, "F6", 0.85,
        requires=(ending.ended_badly, output.gpu_memory),
        supports=(memory.pressed, output.memory_error),
    ),
    Pattern(
        causes.GPU_INTERACTIVITY, "F4", 0.75,
        requires=(output.gpu_watchdog, silence.alive),
        supports=(output.gpu_fault_header, device.gpu_reset, silence.silent),
    ),
    Pattern(
        causes.GPU_INTERACTIVITY, "F5", 0.85,
        requires=(ending.crashed, output.gpu_watchdog),
        supports=(output.fatal,),
    ),
    # ---- slow or wrong, but not silent: nothing here may explain a silence away -------------------------------
    Pattern(
        causes.THROTTLED, "F3", 0.3,
        requires=(silence.slow,),
        proofs=(machine.hot, machine.clocked_down, silence.slow_by_neighbours),
        supports=(machine.crowded, machine.low_power, machine.on_battery),
        # A slower clock makes the same batch cost more processor time: that it does speaks against nothing.
        against=(silence.slow_by_input, memory.swapping, memory.memory_waits),
        excludes=(silence.silent,),
    ),
    Pattern(
        causes.TRANSIENT, "F3", 0.65,
        requires=(silence.came_back, silence.alive),
        supports=(device.uses_gpu, device.on_metal),
        against=(machine.slept, memory.swapping, silence.much_input),
    ),
    Pattern(
        causes.CPU_FALLBACK, "F11", 0.8,
        requires=(output.no_gpu, silence.alive),
        supports=(silence.trained, process.cpu_busy),
        excludes=(device.hidden_gpu, silence.silent),
    ),
    Pattern(
        causes.CPU_FALLBACK, "F11", 0.55,
        requires=(device.gpu_unused, silence.alive, process.cpu_busy),
        supports=(device.on_metal,),
        excludes=(device.hidden_gpu, silence.silent),
    ),
    Pattern(
        causes.RETRACING, "F11", 0.6,
        requires=(silence.rebuilt, silence.alive),
        supports=(output.retrace_hint, process.growing),
        excludes=(silence.silent,),
    ),
    Pattern(causes.RETRACING, "F11", 0.5, requires=(output.retrace_hint, silence.alive), excludes=(silence.silent,)),
    Pattern(
        causes.SLOW_OPTIMIZER, "F11", 0.75,
        requires=(output.optimizer_hint, silence.alive),
        excludes=(silence.silent,),
    ),
    Pattern(causes.ROSETTA, "F11", 0.85, requires=(machine.translated, silence.alive), excludes=(silence.silent,)),
    Pattern(
        causes.WRONG_NUMBERS, "F13", 0.9,
        requires=(silence.loss_broken, silence.alive),
        excludes=(silence.silent,),
    ),
    # ---- silent for a reason that is no fault -------------------------------------------------------------------
    Pattern(causes.STOPPED, "", 0.97, requires=(silence.silent, silence.alive, process.stopped)),
    Pattern(causes.ASLEEP, "", 0.8, requires=(silence.silent, silence.alive, machine.slept)),
    Pattern(
        causes.SAVING, "", 0.5,
        requires=(silence.silent, silence.alive, silence.saving),
        proofs=(silence.file_grows,),
        supports=(process.save_frames, silence.working),
        against=(silence.deadlocked, process.cpu_idle, process.no_io),
        excludes=(process.stopped,),
    ),
    Pattern(
        causes.COMPILING, "", 0.4,
        requires=(silence.silent, silence.alive, silence.compiling),
        proofs=(process.compile_frames,),
        supports=(process.cpu_busy, silence.working),
        against=(silence.spinning,),
        excludes=(process.stopped, process.cpu_idle),
    ),
    Pattern(causes.DATA_ENDED, "", 0.75, requires=(silence.silent, silence.alive, output.data_ended)),
    # ---- at the end, and after it ---------------------------------------------------------------------------------
    Pattern(
        causes.EXIT_HANG, "F8", 0.8,
        requires=(silence.silent, silence.alive, silence.finishing),
        supports=(process.cpu_idle, silence.deadlocked, silence.trained),
        against=(silence.working,),
        excludes=(process.stopped,),
    ),
    Pattern(
        causes.FINISHED, "", 0.9,
        requires=(ending.ended_well,),
        supports=(ending.all_trained,),
        against=(ending.cut_short, output.gpu_fault, output.gpu_memory),
    ),
    Pattern(
        causes.SILENT_EXIT, "", 0.75,
        requires=(ending.ended_well, ending.cut_short),
        supports=(ending.quiet_before,),
        against=(output.data_ended,),
    ),
    Pattern(
        causes.SILENT_EXIT, "", 0.6,
        requires=(ending.ended_badly, ending.quiet_before),
        supports=(ending.cut_short,),
        against=(output.fatal,),
        excludes=(output.traceback,),
    ),
    Pattern(
        causes.SCRIPT_ERROR, "", 0.5,
        requires=(ending.ended_badly,),
        proofs=(output.traceback,),
        supports=(silence.never_trained,),
        against=(output.gpu_memory, output.host_memory, output.mismatch, output.too_large),
        excludes=(output.memory_error, ending.killed_inside),
    ),
    Pattern(
        causes.NATIVE_CRASH, "F7", 0.7,
        requires=(ending.crashed,),
        supports=(output.fatal, silence.trained),
        against=(output.gpu_memory, output.gpu_fault, output.gpu_watchdog, output.too_large, output.mismatch),
    ),
    Pattern(causes.SIZE_LIMIT, "F7", 0.85, requires=(output.too_large,), supports=(ending.crashed,)),
    Pattern(
        causes.KILLED, "", 0.5,
        requires=(ending.killed,),
        proofs=(ending.not_for_memory,),
        supports=(memory.unpressed, memory.plenty),
        against=(memory.pressed, memory.near_limit, memory.oom_counted, output.killed_line),
        excludes=(ending.killed_for_memory,),
    ),
    Pattern(  # the exit code of a grandchild is not known
        causes.KILLED, "", 0.5,
        requires=(ending.killed_inside,),
        proofs=(ending.not_for_memory,),
        supports=(memory.unpressed, memory.plenty),
        against=(memory.pressed, memory.near_limit, memory.oom_counted, output.killed_line, output.fatal),
        excludes=(ending.killed_for_memory,),
    ),
    Pattern(causes.NATIVE_CRASH, "F7", 0.55, requires=(ending.killed_inside, output.fatal)),
    Pattern(causes.ENDED_BY_REQUEST, "", 0.95, requires=(ending.asked_to_go,)),
    Pattern(causes.STUCK_IN_KERNEL, "F10", 0.95, requires=(process.survived_kill,)),
    Pattern(
        causes.STUCK_IN_KERNEL, "F10", 0.7,
        requires=(silence.silent, silence.alive, process.uninterruptible),
        supports=(process.cpu_idle, silence.no_pulses),
        against=(memory.swapping, process.paging),
    ),
    Pattern(causes.STUCK_IN_KERNEL, "F10", 0.8, requires=(process.stuck_exiting,)),
    Pattern(causes.GPU_BUSY_AFTER_KILL, "F10", 0.85, requires=(device.busy_without_us, device.on_metal)),
    Pattern(causes.MACHINE_FROZE, "F9", 0.9, requires=(output.machine_died,), excludes=(silence.silent,)),
    Pattern(
        causes.PLUGIN_MISMATCH, "F12", 0.9,
        requires=(output.mismatch,),
        supports=(ending.ended_badly, silence.never_trained),
    ),
)  # fmt: skip
