"""The patterns by which causes are recognised: a table that can be read beside the collected reports.

A row fits if all its `requires` hold and none of `excludes` does.  It starts at `base`; each of its `proofs`
that holds adds 0.3, each of `supports` 0.08, and each of `against` takes 0.2.  Several rows can name one cause:
the one with the highest confidence counts.  `mode` is the failure mode F1..F13 of the reports on Metal training.
The clues are in core/diagnosis/clues.  This module must not judge a scene.
"""

from __future__ import annotations

from typing import NamedTuple

from stallguard.core.diagnosis import causes
from stallguard.core.diagnosis.clues import Clue, exits, gpu, machine, memory, printed, progress, script, tree

PROOF, SUPPORT, AGAINST = 0.3, 0.08, 0.2


class Pattern(NamedTuple):
    """One row.  `base`: the confidence, 0..1, if only the required clues are known."""

    cause: str
    mode: str
    base: float
    requires: tuple[Clue, ...]
    proofs: tuple[Clue, ...] = ()
    supports: tuple[Clue, ...] = ()
    against: tuple[Clue, ...] = ()
    excludes: tuple[Clue, ...] = ()


# Each is a cause of its own for any wait: the process is stopped; its training is over.
EXPLAINED = (tree.stopped, progress.finishing)

PATTERNS: tuple[Pattern, ...] = (
    # ---- a gap, and the process lives -----------------------------------------------------------------------
    Pattern(
        causes.DEVICE_WAIT, "F1", 0.45,
        requires=(progress.silent, progress.alive, tree.cpu_idle, tree.in_library),
        proofs=(tree.metal_frames,),
        supports=(
            progress.waits_in_library, tree.runtime_frames, progress.pulses, gpu.gpu_idle, progress.deadlocked,
            gpu.gpu_sensor_blocked,
        ),
        against=(
            tree.input_frames, tree.lock_frames, tree.waits_in_script, tree.callback_waits, tree.native_frames,
            progress.waits_for_lock, progress.no_pulses, progress.waits_outside, memory.swapping,
            memory.memory_waits, memory.critical, tree.workers_died, machine.slept, printed.data_ended,
        ),
        excludes=EXPLAINED,
    ),
    Pattern(
        causes.DEVICE_WAIT, "F1", 0.6,
        requires=(progress.silent, progress.alive, progress.device_behind),
        proofs=(tree.metal_frames,), supports=(gpu.gpu_idle,), excludes=(progress.finishing,),
    ),
    # The stack proves it in other phases too: reading a loss or weights also waits for Metal.
    Pattern(
        causes.DEVICE_WAIT, "F1", 0.6,
        requires=(progress.silent, progress.alive, tree.cpu_idle, tree.metal_frames),
        supports=(progress.pulses, gpu.gpu_idle, gpu.on_metal),
        against=(memory.swapping, memory.memory_waits, memory.critical, printed.data_ended),
        excludes=EXPLAINED,
    ),
    # Not idle at the device, and yet no progress: one kernel that does not end.
    Pattern(
        causes.DEVICE_WAIT, "F1", 0.55,
        requires=(progress.silent, progress.alive, tree.cpu_idle, gpu.gpu_busy, progress.in_step),
        proofs=(tree.metal_frames,),
        supports=(progress.pulses,),
        against=(tree.lock_frames, progress.waits_for_lock, progress.no_pulses),
        excludes=EXPLAINED,
    ),
    # The thread spins in the driver, and only the GPU's own report says that it works.
    Pattern(
        causes.DEVICE_WAIT, "F1", 0.7, requires=(progress.silent, progress.alive, progress.waits_for_busy_device),
        supports=(progress.waits_in_library, progress.pulses, gpu.gpu_busy),
        excludes=EXPLAINED,
    ),
    # The same in the first steps, before their pace is known.
    Pattern(
        causes.DEVICE_WAIT, "F1", 0.45,
        requires=(progress.silent, progress.alive, progress.waits_in_library, gpu.uses_gpu, gpu.gpu_busy),
        proofs=(tree.metal_frames,), supports=(progress.pulses,), against=(tree.input_frames, tree.native_frames),
        excludes=EXPLAINED,
    ),
    Pattern(
        causes.HOST_DEADLOCK, "F8", 0.3,
        requires=(progress.silent, progress.alive, tree.cpu_idle),
        proofs=(
            tree.lock_frames, tree.workers_died, tree.waits_in_script, tree.callback_waits, progress.waits_for_lock,
        ),
        supports=(progress.deadlocked, progress.outside_step, progress.pulses),
        against=(
            tree.metal_frames, tree.input_frames, progress.in_step, progress.waits_for_batch, progress.saving,
            progress.no_pulses, progress.waits_outside, memory.swapping, machine.slept, printed.data_ended,
        ),
        excludes=EXPLAINED,
    ),
    Pattern(
        causes.OUTSIDE_WAIT, "F8", 0.45,
        requires=(progress.silent, progress.alive, tree.cpu_idle, progress.waits_outside),
        proofs=(tree.callback_waits,),
        supports=(tree.waits_in_script, progress.outside_step, progress.pulses),
        against=(
            tree.input_frames, tree.lock_frames, tree.workers_died, progress.in_step, progress.waits_for_batch,
            progress.no_pulses,
        ),
        excludes=EXPLAINED,
    ),
    Pattern(
        causes.MUTEX_CLASH, "F8", 0.8,
        requires=(printed.mutex_clash, progress.alive),
        supports=(progress.silent, tree.cpu_idle, progress.never_trained),
    ),
    Pattern(
        causes.GIL_HELD, "F8", 0.6,
        requires=(progress.silent, progress.alive, progress.no_pulses),
        proofs=(tree.native_frames,),
        supports=(tree.cpu_idle, tree.one_core, progress.deadlocked, tree.lock_frames),
        against=(
            memory.swapping, memory.memory_waits, tree.paging, machine.slept, tree.uninterruptible,
            tree.stuck_exiting,
        ),
        excludes=(*EXPLAINED, tree.metal_frames),  # Metal's own handlers may hold that lock
    ),
    Pattern(
        causes.BUSY_LOOP, "F8", 0.45,
        requires=(progress.silent, progress.alive, tree.cpu_busy),
        supports=(progress.spinning, tree.one_core, tree.no_io, tree.user_frames, progress.in_step),
        against=(
            progress.working, progress.waits_for_busy_device, progress.compiling, progress.no_pulses, progress.saving,
            progress.waits_for_batch, tree.compile_frames, tree.input_frames, tree.paging, printed.filling,
        ),
    ),
    Pattern(
        causes.INPUT_STARVATION, "F8", 0.5,
        requires=(progress.silent, progress.alive, tree.input_frames),
        supports=(progress.waits_for_batch, progress.much_input, tree.cpu_idle, printed.filling, tree.workers_died),
        against=(tree.metal_frames, progress.no_pulses),
        excludes=EXPLAINED,
    ),
    Pattern(
        causes.INPUT_STARVATION, "F8", 0.5,
        requires=(progress.silent, progress.alive, progress.waits_for_batch),
        supports=(progress.much_input, progress.pulses, printed.filling, tree.workers_died),
        against=(
            tree.metal_frames, tree.lock_frames, progress.no_pulses, progress.spinning, machine.slept,
        ),
        excludes=(tree.stopped, tree.starts_an_epoch),
    ),
    Pattern(
        causes.INPUT_STARVATION, "F11", 0.55,
        requires=(progress.slow, progress.slow_by_input),
        supports=(progress.much_input, tree.input_frames, gpu.gpu_idle),
        against=(memory.swapping, machine.crowded),
        excludes=(progress.silent,),
    ),
    # ---- memory ----------------------------------------------------------------------------------------------
    Pattern(
        causes.MEMORY_THRASH, "F2", 0.6,
        requires=(progress.hindered, progress.alive, memory.swapping),
        supports=(
            memory.pressed, memory.near_ram, tree.paging, progress.slowed_down, memory.memory_waits, tree.growing,
        ),
        against=(memory.unpressed,),
        excludes=(tree.stopped, script.object_grows),
    ),
    Pattern(
        causes.MEMORY_THRASH, "F2", 0.5,
        requires=(progress.hindered, progress.alive, memory.memory_waits),
        supports=(memory.pressed, memory.near_ram, memory.near_limit, tree.paging, progress.slowed_down),
        against=(memory.unpressed,),
        excludes=(tree.stopped, script.object_grows),
    ),
    Pattern(
        causes.MEMORY_THRASH, "F2", 0.42,
        requires=(progress.hindered, progress.alive, memory.critical),
        supports=(
            memory.pressed, memory.near_ram, tree.paging, progress.slowed_down, tree.growing, tree.metal_frames,
        ),
        excludes=(tree.stopped, script.object_grows),
    ),
    Pattern(
        causes.MEMORY_GROWTH, "F2", 0.55,
        requires=(progress.alive, tree.growing),
        supports=(progress.rebuilt, memory.pressed, memory.near_limit, memory.near_ram, progress.slow),
        excludes=(script.object_grows,),
    ),
    # A smaller batch does not change what the script keeps, so none of the causes with that remedy is named beside it.
    Pattern(
        causes.OBJECT_GROWS, "F2", 0.6,
        requires=(progress.alive, tree.growing, script.object_grows),
        supports=(memory.pressed, memory.near_limit, memory.near_ram, memory.swapping, progress.slow),
    ),
    Pattern(causes.OBJECT_GROWS, "F6", 0.9, requires=(script.died_of_it,), supports=(tree.growing, memory.pressed)),
    Pattern(
        causes.OUT_OF_MEMORY_KILL, "F6", 0.95, requires=(exits.killed_for_memory,), excludes=(script.object_grows,),
    ),
    Pattern(
        causes.OUT_OF_MEMORY_KILL, "F6", 0.55,
        requires=(exits.killed,),
        proofs=(memory.oom_counted, memory.near_limit),
        supports=(
            memory.pressed, memory.near_ram, memory.swapping, tree.growing, printed.killed_line, gpu.on_metal,
        ),
        against=(memory.unpressed, memory.plenty),
        excludes=(exits.not_for_memory, script.object_grows),
    ),
    Pattern(
        causes.OUT_OF_MEMORY_KILL, "F6", 0.4,
        requires=(exits.killed_inside,),
        proofs=(memory.oom_counted, memory.near_limit),
        supports=(memory.pressed, memory.near_ram, memory.swapping, tree.growing, printed.killed_line),
        against=(memory.unpressed, memory.plenty),
        excludes=(exits.not_for_memory, script.object_grows),
    ),
    Pattern(
        causes.OUT_OF_MEMORY, "F6", 0.75,
        requires=(exits.ended_badly, printed.host_memory),
        supports=(tree.growing, memory.near_limit, memory.near_ram, memory.pressed),
        excludes=(script.object_grows,),
    ),
    # ---- what the GPU reported ------------------------------------------------------------------------------
    Pattern(
        causes.GPU_ERROR, "F4", 0.6,
        requires=(printed.gpu_fault, progress.alive),
        supports=(printed.gpu_fault_header, gpu.gpu_reset, progress.silent, gpu.gpu_idle),
    ),
    Pattern(
        causes.GPU_ERROR, "F4", 0.5,
        requires=(printed.gpu_fault_header, progress.alive),
        supports=(gpu.gpu_reset, progress.silent),
    ),
    Pattern(
        causes.GPU_ERROR, "F4", 0.4,
        requires=(gpu.gpu_reset, gpu.uses_gpu, progress.alive),
        supports=(progress.silent, gpu.gpu_idle),
    ),
    Pattern(
        causes.GPU_ERROR, "F5", 0.75,
        requires=(exits.crashed, printed.gpu_fault),
        supports=(gpu.gpu_reset, printed.fatal),
    ),
    Pattern(
        causes.GPU_ERROR_STICKY, "F4", 0.85,
        requires=(printed.gpu_ignored,),
        supports=(printed.gpu_fault, gpu.gpu_idle, gpu.gpu_reset),
    ),
    Pattern(
        causes.GPU_OUT_OF_MEMORY, "F4", 0.8,
        requires=(printed.gpu_memory, progress.alive),
        supports=(memory.pressed, memory.near_ram, progress.silent),
    ),
    Pattern(
        causes.GPU_OUT_OF_MEMORY, "F5", 0.85,
        requires=(exits.crashed, printed.gpu_memory),
        supports=(memory.pressed, printed.fatal),
    ),
    Pattern(
        causes.GPU_OUT_OF_MEMORY, "F6", 0.85,
        requires=(exits.ended_badly, printed.gpu_memory),
        supports=(memory.pressed, printed.memory_error),
    ),
    Pattern(
        causes.GPU_INTERACTIVITY, "F4", 0.75,
        requires=(printed.gpu_watchdog, progress.alive),
        supports=(printed.gpu_fault_header, gpu.gpu_reset, progress.silent),
    ),
    Pattern(
        causes.GPU_INTERACTIVITY, "F5", 0.85,
        requires=(exits.crashed, printed.gpu_watchdog),
        supports=(printed.fatal,),
    ),
    # ---- slow or wrong, but no gap: nothing here must explain a gap away --------------------------------------
    Pattern(
        causes.THROTTLED, "F3", 0.3,
        requires=(progress.slow,),
        proofs=(machine.hot, machine.clocked_down, progress.slow_by_neighbours),
        supports=(machine.crowded, machine.low_power, machine.on_battery),
        # A slower clock makes the same batch cost more processor time: that it does speaks against nothing.
        against=(progress.slow_by_input, memory.swapping, memory.memory_waits),
        excludes=(progress.silent,),
    ),
    Pattern(
        causes.TRANSIENT, "F3", 0.65,
        requires=(progress.came_back, progress.alive),
        supports=(gpu.uses_gpu, gpu.on_metal),
        against=(machine.slept, memory.swapping, progress.much_input),
    ),
    Pattern(
        causes.CPU_FALLBACK, "F11", 0.8,
        requires=(printed.no_gpu, progress.alive),
        supports=(progress.trained, tree.cpu_busy),
        excludes=(gpu.hidden_gpu, progress.silent),
    ),
    Pattern(
        causes.CPU_FALLBACK, "F11", 0.55,
        requires=(gpu.gpu_unused, progress.alive, tree.cpu_busy),
        supports=(gpu.on_metal,),
        excludes=(gpu.hidden_gpu, progress.silent),
    ),
    Pattern(
        causes.RETRACING, "F11", 0.6,
        requires=(progress.rebuilt, progress.alive),
        supports=(printed.retrace_hint, tree.growing),
        excludes=(progress.silent,),
    ),
    Pattern(
        causes.RETRACING, "F11", 0.5, requires=(printed.retrace_hint, progress.alive), excludes=(progress.silent,),
    ),
    Pattern(
        causes.SLOW_OPTIMIZER, "F11", 0.75,
        requires=(printed.optimizer_hint, progress.alive),
        excludes=(progress.silent,),
    ),
    Pattern(causes.ROSETTA, "F11", 0.85, requires=(machine.translated, progress.alive), excludes=(progress.silent,)),
    Pattern(
        causes.WRONG_NUMBERS, "F13", 0.9,
        requires=(progress.loss_broken, progress.alive),
        excludes=(progress.silent,),
    ),
    # ---- a gap for a reason that is no fault --------------------------------------------------------------------
    Pattern(causes.STOPPED, "", 0.97, requires=(progress.silent, progress.alive, tree.stopped)),
    Pattern(causes.ASLEEP, "", 0.8, requires=(progress.silent, progress.alive, machine.slept)),
    Pattern(
        causes.SAVING, "", 0.5,
        requires=(progress.silent, progress.alive, progress.saving),
        proofs=(progress.file_grows,),
        supports=(tree.save_frames, progress.working),
        against=(progress.deadlocked, tree.cpu_idle, tree.no_io),
        excludes=(tree.stopped,),
    ),
    Pattern(
        causes.COMPILING, "", 0.4,
        requires=(progress.silent, progress.alive, progress.compiling),
        proofs=(tree.compile_frames,),
        supports=(tree.cpu_busy, progress.working),
        against=(progress.spinning,),
        excludes=(tree.stopped, tree.cpu_idle),
    ),
    Pattern(causes.DATA_ENDED, "", 0.75, requires=(progress.silent, progress.alive, printed.data_ended)),
    # ---- at the end, and after it ---------------------------------------------------------------------------------
    Pattern(
        causes.EXIT_HANG, "F8", 0.8,
        requires=(progress.silent, progress.alive, progress.finishing),
        supports=(tree.cpu_idle, progress.deadlocked, progress.trained, tree.lock_frames, tree.workers_died),
        against=(progress.working,),
        excludes=(tree.stopped,),
    ),
    Pattern(
        causes.FINISHED, "", 0.9,
        requires=(exits.ended_well,),
        supports=(exits.all_trained,),
        against=(exits.cut_short, printed.gpu_fault, printed.gpu_memory),
    ),
    Pattern(
        causes.SILENT_EXIT, "", 0.75,
        requires=(exits.ended_well, exits.cut_short),
        supports=(exits.quiet_before,),
        against=(printed.data_ended,),
    ),
    Pattern(
        causes.SILENT_EXIT, "", 0.6,
        requires=(exits.ended_badly, exits.quiet_before),
        supports=(exits.cut_short,),
        against=(printed.fatal,),
        excludes=(printed.traceback,),
    ),
    Pattern(
        causes.SCRIPT_ERROR, "", 0.5,
        requires=(exits.ended_badly,),
        proofs=(printed.traceback,),
        supports=(exits.worker_crash, progress.never_trained),
        against=(printed.gpu_memory, printed.host_memory, printed.mismatch, printed.too_large),
        excludes=(printed.memory_error, exits.killed_inside),
    ),
    Pattern(
        causes.NATIVE_CRASH, "F7", 0.7,
        requires=(exits.crashed,),
        proofs=(exits.crash_line,),
        supports=(printed.fatal, progress.trained),
        against=(printed.gpu_memory, printed.gpu_fault, printed.gpu_watchdog, printed.too_large, printed.mismatch),
    ),
    Pattern(causes.SIZE_LIMIT, "F7", 0.85, requires=(printed.too_large,), supports=(exits.crashed,)),
    Pattern(
        causes.KILLED, "", 0.5,
        requires=(exits.killed,),
        proofs=(exits.not_for_memory,),
        supports=(memory.unpressed, memory.plenty),
        against=(memory.pressed, memory.near_limit, memory.oom_counted, printed.killed_line),
        excludes=(exits.killed_for_memory,),
    ),
    Pattern(  # the exit code of a grandchild is not known
        causes.KILLED, "", 0.5,
        requires=(exits.killed_inside,),
        proofs=(exits.not_for_memory,),
        supports=(memory.unpressed, memory.plenty),
        against=(memory.pressed, memory.near_limit, memory.oom_counted, printed.killed_line, printed.fatal),
        excludes=(exits.killed_for_memory,),
    ),
    Pattern(causes.NATIVE_CRASH, "F7", 0.55, requires=(exits.killed_inside, printed.fatal)),
    Pattern(causes.NATIVE_CRASH, "F7", 0.75, requires=(exits.killed_inside, exits.crash_line)),
    Pattern(causes.ENDED_BY_REQUEST, "", 0.95, requires=(exits.asked_to_go,)),
    Pattern(causes.STUCK_IN_KERNEL, "F10", 0.95, requires=(tree.survived_kill,)),
    Pattern(
        causes.STUCK_IN_KERNEL, "F10", 0.7,
        requires=(progress.silent, progress.alive, tree.uninterruptible),
        supports=(tree.cpu_idle, progress.no_pulses),
        against=(memory.swapping, tree.paging),
    ),
    Pattern(causes.STUCK_IN_KERNEL, "F10", 0.8, requires=(tree.stuck_exiting,)),
    Pattern(causes.GPU_BUSY_AFTER_KILL, "F10", 0.85, requires=(gpu.busy_without_us, gpu.on_metal)),
    Pattern(causes.MACHINE_FROZE, "F9", 0.9, requires=(printed.machine_died,), excludes=(progress.silent,)),
    Pattern(
        causes.PLUGIN_MISMATCH, "F12", 0.9,
        requires=(printed.mismatch,),
        supports=(exits.ended_badly, progress.never_trained),
    ),
)  # fmt: skip
