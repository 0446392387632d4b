"""The patterns by which causes are recognised: a table that can be read beside the collected reports.

A row fits if all its `requires` hold and none of `excludes` does.  It starts at `base`; each of its `proofs`
that holds adds 0.3, each of `supports` 0.08, and each of `against` takes 0.2.  Several rows can name one cause:
the one with the highest confidence counts.  `mode` is the failure mode F1..F13 of the reports on Metal training.
The clues are in core/diagnosis/clues.  This module must not judge a scene.
"""

from __future__ import annotations

from typing import NamedTuple

from stallguard.core.diagnosis import causes
from stallguard.core.diagnosis.clues import Clue, device, machine, process, progress, script

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
EXPLAINED = (process.stopped, progress.finishing)

GAP = (progress.silent, progress.alive)  # no progress, and the process lives

# Of a GPU that is busy: why it can be so without being stuck.
OTHERWISE = (device.gpu_works, device.gpu_taken, device.gpu_slowed)

PATTERNS: tuple[Pattern, ...] = (
    # ---- a gap, and the process lives -----------------------------------------------------------------------
    Pattern(causes.DEVICE_WAIT, "F1", 0.45, requires=(*GAP, process.cpu_idle, process.in_library),
        proofs=(process.metal_frames, progress.waits_for_device),
        supports=(progress.waits_in_library, process.runtime_frames, progress.pulses, machine.gpu_idle,
            progress.deadlocked, machine.gpu_sensor_blocked),
        against=(process.input_frames, process.lock_frames, process.waits_in_script, process.callback_waits,
            process.native_frames, progress.waits_for_lock, progress.no_pulses, progress.waits_outside,
            machine.swapping, machine.memory_waits, machine.critical, process.workers_died, machine.slept,
            script.data_ended),
        excludes=EXPLAINED),
    Pattern(causes.DEVICE_WAIT, "F1", 0.6, requires=(*GAP, progress.device_behind),
        proofs=(process.metal_frames,), supports=(machine.gpu_idle,), excludes=(progress.finishing,)),
    # The stack proves it in other phases too: reading a loss or weights also waits for Metal.
    Pattern(causes.DEVICE_WAIT, "F1", 0.6, requires=(*GAP, process.cpu_idle, process.metal_frames),
        supports=(progress.pulses, machine.gpu_idle, machine.on_metal),
        against=(machine.swapping, machine.memory_waits, machine.critical, script.data_ended), excludes=EXPLAINED),
    # Not idle at the device, and yet no progress: one kernel that does not end.
    Pattern(causes.DEVICE_WAIT, "F1", 0.55, requires=(*GAP, process.cpu_idle, machine.gpu_busy, progress.in_step),
        proofs=(process.metal_frames,), supports=(progress.pulses, device.gpu_rests),
        against=(process.lock_frames, progress.waits_for_lock, progress.no_pulses, *OTHERWISE), excludes=EXPLAINED),
    # The thread spins in the driver, and only the GPU's own report says that it works.
    Pattern(causes.DEVICE_WAIT, "F1", 0.7, requires=(*GAP, progress.waits_for_busy_device),
        supports=(progress.waits_in_library, progress.pulses, machine.gpu_busy, device.gpu_rests), against=OTHERWISE,
        excludes=EXPLAINED),
    # It spins, or sleeps, for a GPU to which nothing comes: a function of the host that its work waits for.
    Pattern(causes.DEVICE_WAIT, "F1", 0.7, requires=(*GAP, progress.waits_for_idle_device),
        supports=(progress.waits_in_library, progress.pulses, machine.gpu_idle), excludes=EXPLAINED),
    # The same in the first steps, before their pace is known.
    Pattern(causes.DEVICE_WAIT, "F1", 0.45,
        requires=(*GAP, progress.waits_in_library, machine.uses_gpu, machine.gpu_busy), proofs=(process.metal_frames,),
        supports=(progress.pulses, device.gpu_rests),
        against=(process.input_frames, process.native_frames, *OTHERWISE), excludes=EXPLAINED),
    Pattern(causes.HOST_DEADLOCK, "F8", 0.3, requires=(*GAP, process.cpu_idle),
        proofs=(process.lock_frames, process.workers_died, process.waits_in_script, process.callback_waits,
            progress.waits_for_lock),
        supports=(progress.deadlocked, progress.outside_step, progress.pulses),
        against=(process.metal_frames, process.input_frames, progress.in_step, progress.waits_for_batch,
            progress.waits_for_device, progress.saving, progress.no_pulses, progress.waits_outside, machine.swapping,
            machine.slept, script.data_ended),
        excludes=(*EXPLAINED, progress.waits_for_busy_device, progress.waits_for_idle_device)),
    Pattern(causes.OUTSIDE_WAIT, "F8", 0.45, requires=(*GAP, process.cpu_idle, progress.waits_outside),
        proofs=(process.callback_waits,), supports=(process.waits_in_script, progress.outside_step, progress.pulses),
        against=(process.input_frames, process.lock_frames, process.workers_died, progress.in_step,
            progress.waits_for_batch, progress.no_pulses),
        excludes=EXPLAINED),
    Pattern(causes.OPENMP_CLASH, "F8", 0.75, requires=(*GAP, process.cpu_idle, process.two_openmp),
        supports=(progress.deadlocked, progress.pulses),
        against=(process.metal_frames, process.input_frames, progress.waits_outside, machine.swapping, machine.slept),
        excludes=EXPLAINED),
    Pattern(causes.MUTEX_CLASH, "F8", 0.8, requires=(script.mutex_clash, progress.alive),
        supports=(progress.silent, process.cpu_idle, progress.never_trained)),
    # Metal's own handlers can hold that lock.
    Pattern(causes.GIL_HELD, "F8", 0.6, requires=(*GAP, progress.no_pulses), proofs=(process.native_frames,),
        supports=(process.cpu_idle, process.one_core, progress.deadlocked, process.lock_frames),
        against=(machine.swapping, machine.memory_waits, process.paging, machine.slept, process.uninterruptible,
            process.stuck_exiting),
        excludes=(*EXPLAINED, process.metal_frames)),
    Pattern(causes.BUSY_LOOP, "F8", 0.45, requires=(*GAP, process.cpu_busy),
        supports=(progress.spinning, process.one_core, process.no_io, process.user_frames, progress.in_step),
        against=(progress.working, progress.waits_for_busy_device, progress.waits_for_idle_device, progress.compiling,
            progress.waits_for_peers, progress.no_pulses, progress.saving, progress.waits_for_batch,
            process.compile_frames, process.input_frames, process.paging, script.filling)),
    Pattern(causes.INPUT_STARVATION, "F8", 0.5, requires=(*GAP, process.input_frames),
        supports=(progress.waits_for_batch, progress.much_input, process.cpu_idle, script.filling,
            process.workers_died),
        against=(process.metal_frames, progress.no_pulses), excludes=EXPLAINED),
    Pattern(causes.INPUT_STARVATION, "F8", 0.5, requires=(*GAP, progress.waits_for_batch),
        supports=(progress.much_input, progress.pulses, script.filling, process.workers_died),
        against=(process.metal_frames, process.lock_frames, progress.no_pulses, progress.spinning, machine.slept),
        excludes=(process.stopped, process.starts_an_epoch)),
    Pattern(causes.INPUT_STARVATION, "F11", 0.55, requires=(progress.slow, progress.slow_by_input),
        supports=(progress.much_input, process.input_frames, machine.gpu_idle),
        against=(machine.swapping, machine.crowded), excludes=(progress.silent,)),
    # ---- memory ----------------------------------------------------------------------------------------------
    Pattern(causes.MEMORY_THRASH, "F2", 0.6, requires=(progress.hindered, progress.alive, machine.swapping),
        supports=(machine.pressed, machine.near_ram, process.paging, progress.slowed_down, machine.memory_waits,
            process.growing),
        against=(machine.unpressed,), excludes=(process.stopped, script.object_grows)),
    Pattern(causes.MEMORY_THRASH, "F2", 0.5, requires=(progress.hindered, progress.alive, machine.memory_waits),
        supports=(machine.pressed, machine.near_ram, machine.near_limit, process.paging, progress.slowed_down),
        against=(machine.unpressed,), excludes=(process.stopped, script.object_grows)),
    Pattern(causes.MEMORY_THRASH, "F2", 0.42, requires=(progress.hindered, progress.alive, machine.critical),
        supports=(machine.pressed, machine.near_ram, process.paging, progress.slowed_down, process.growing,
            process.metal_frames),
        excludes=(process.stopped, script.object_grows)),
    Pattern(causes.MEMORY_GROWTH, "F2", 0.55, requires=(progress.alive, process.growing),
        supports=(progress.rebuilt, machine.pressed, machine.near_limit, machine.near_ram, progress.slow),
        excludes=(script.object_grows,)),
    # A smaller batch does not change what the script keeps, so none of the causes with that remedy is named beside it.
    Pattern(causes.OBJECT_GROWS, "F2", 0.6, requires=(progress.alive, process.growing, script.object_grows),
        supports=(machine.pressed, machine.near_limit, machine.near_ram, machine.swapping, progress.slow)),
    Pattern(causes.OBJECT_GROWS, "F6", 0.9, requires=(script.died_of_it,), supports=(process.growing, machine.pressed)),
    Pattern(causes.OUT_OF_MEMORY_KILL, "F6", 0.95, requires=(process.killed_for_memory,),
        excludes=(script.object_grows,)),
    Pattern(causes.OUT_OF_MEMORY_KILL, "F6", 0.55, requires=(process.killed,),
        proofs=(machine.oom_counted, machine.near_limit),
        supports=(machine.pressed, machine.near_ram, machine.swapping, process.growing, script.killed_line,
            machine.on_metal),
        against=(machine.unpressed, machine.plenty), excludes=(process.not_for_memory, script.object_grows)),
    Pattern(causes.OUT_OF_MEMORY_KILL, "F6", 0.4, requires=(process.killed_inside,),
        proofs=(machine.oom_counted, machine.near_limit),
        supports=(machine.pressed, machine.near_ram, machine.swapping, process.growing, script.killed_line),
        against=(machine.unpressed, machine.plenty), excludes=(process.not_for_memory, script.object_grows)),
    Pattern(causes.OUT_OF_MEMORY, "F6", 0.75, requires=(process.ended_badly, script.host_memory),
        supports=(process.growing, machine.near_limit, machine.near_ram, machine.pressed),
        excludes=(script.object_grows,)),
    # ---- what the GPU reported ------------------------------------------------------------------------------
    Pattern(causes.GPU_ERROR, "F4", 0.6, requires=(script.gpu_fault, progress.alive),
        supports=(script.gpu_fault_header, machine.gpu_reset, progress.silent, machine.gpu_idle)),
    Pattern(causes.GPU_ERROR, "F4", 0.5, requires=(script.gpu_fault_header, progress.alive),
        supports=(machine.gpu_reset, progress.silent)),
    Pattern(causes.GPU_ERROR, "F4", 0.4, requires=(machine.gpu_reset, machine.uses_gpu, progress.alive),
        supports=(progress.silent, machine.gpu_idle)),
    Pattern(causes.GPU_ERROR, "F4", 0.7, requires=(*GAP, device.gpu_xid, machine.uses_gpu),
        supports=(device.gpu_memory_errors, machine.gpu_idle), against=(device.gpu_taken,)),
    Pattern(causes.GPU_ERROR, "F5", 0.75, requires=(process.crashed, script.gpu_fault),
        supports=(machine.gpu_reset, script.fatal, device.gpu_xid)),
    Pattern(causes.GPU_ERROR_STICKY, "F4", 0.85, requires=(script.gpu_ignored,),
        supports=(script.gpu_fault, machine.gpu_idle, machine.gpu_reset)),
    Pattern(causes.GPU_OUT_OF_MEMORY, "F4", 0.8, requires=(script.gpu_memory, progress.alive),
        supports=(machine.pressed, machine.near_ram, progress.silent)),
    Pattern(causes.GPU_OUT_OF_MEMORY, "F5", 0.85, requires=(process.crashed, script.gpu_memory),
        supports=(machine.pressed, script.fatal)),
    Pattern(causes.GPU_OUT_OF_MEMORY, "F6", 0.85, requires=(process.ended_badly, script.gpu_memory),
        supports=(machine.pressed, script.memory_error)),
    Pattern(causes.GPU_INTERACTIVITY, "F4", 0.75, requires=(script.gpu_watchdog, progress.alive),
        supports=(script.gpu_fault_header, machine.gpu_reset, progress.silent)),
    # Where it crashed proves no more than the crash: so that it does not speak for another cause alone.
    Pattern(causes.GPU_INTERACTIVITY, "F5", 0.85, requires=(process.crashed, script.gpu_watchdog),
        proofs=(process.crash_line,), supports=(script.fatal, progress.trained)),
    # ---- what CUDA reported ------------------------------------------------------------------------------------
    Pattern(causes.CUDA_FAULT, "", 0.8, requires=(process.failed, script.cuda_fault), supports=(progress.trained,),
        against=(device.gpu_lost, device.gpu_memory_errors)),
    Pattern(causes.CUDA_FAULT, "", 0.8, requires=(script.context_lost, script.cuda_fault)),
    # The error of a library, or a lack of memory, can follow from it.
    Pattern(causes.CUDA_ASSERT, "", 0.9, requires=(process.failed, script.cuda_assert)),
    Pattern(causes.CUDA_ASSERT, "", 0.9, requires=(script.context_lost, script.cuda_assert)),
    Pattern(causes.GPU_MEMORY_FAULT, "", 0.9, requires=(process.failed, script.gpu_memory_fault)),
    Pattern(causes.GPU_MEMORY_FAULT, "", 0.7, requires=(process.failed, script.cuda_fault, device.gpu_memory_errors)),
    Pattern(causes.GPU_MEMORY_FAULT, "", 0.9, requires=(script.context_lost, script.gpu_memory_fault)),
    Pattern(causes.GPU_MEMORY_FAULT, "", 0.9, requires=(*GAP, device.gpu_memory_errors), excludes=EXPLAINED),
    # A line of the output alone does not end a process that lives.
    Pattern(causes.GPU_LOST, "", 0.9, requires=(process.failed, script.lost_line)),
    Pattern(causes.GPU_LOST, "", 0.9, requires=(process.failed, script.no_device)),
    Pattern(causes.GPU_LOST, "", 0.9, requires=(*GAP, device.gpu_lost), supports=(script.lost_line, device.gpu_xid)),
    Pattern(causes.GPU_LOST, "", 0.9, requires=(process.failed, device.gpu_lost), supports=(script.lost_line,)),
    Pattern(causes.NCCL, "", 0.85, requires=(process.failed, script.nccl)),
    Pattern(causes.NCCL, "", 0.7, requires=(*GAP, script.nccl), excludes=EXPLAINED),
    # Of MLX's JACCL and ring, and of gloo: nothing is printed, and a rank that waits can keep a core busy.
    Pattern(causes.NCCL, "", 0.7, requires=(*GAP, progress.waits_for_peers),
        supports=(progress.spinning, progress.in_step, progress.pulses),
        against=(process.metal_frames, process.input_frames, progress.waits_for_batch, progress.saving, machine.slept),
        excludes=EXPLAINED),
    Pattern(causes.NCCL, "", 0.45, requires=(*GAP, progress.asks_for_peers, progress.in_step),
        supports=(progress.pulses,), against=(process.input_frames, progress.saving, machine.slept),
        excludes=EXPLAINED),
    # ---- slow or wrong, but no gap: nothing here must explain a gap away --------------------------------------
    # A slower clock makes the same batch cost more processor time: that it does speaks against nothing.
    Pattern(causes.THROTTLED, "F3", 0.3, requires=(progress.slow,),
        proofs=(machine.hot, machine.clocked_down, progress.slow_by_neighbours, device.gpu_slowed, device.gpu_taken),
        supports=(machine.crowded, machine.low_power, machine.on_battery),
        against=(progress.slow_by_input, machine.swapping, machine.memory_waits), excludes=(progress.silent,)),
    Pattern(causes.TRANSIENT, "F3", 0.65, requires=(progress.came_back, progress.alive),
        supports=(machine.uses_gpu, machine.on_metal), against=(machine.slept, machine.swapping, progress.much_input)),
    Pattern(causes.CPU_FALLBACK, "F11", 0.8, requires=(script.no_gpu, progress.alive),
        supports=(progress.trained, process.cpu_busy), excludes=(machine.hidden_gpu, progress.silent)),
    Pattern(causes.CPU_FALLBACK, "F11", 0.55, requires=(machine.gpu_unused, progress.alive, process.cpu_busy),
        supports=(machine.on_metal,), excludes=(machine.hidden_gpu, progress.silent)),
    Pattern(causes.RETRACING, "F11", 0.6, requires=(progress.rebuilt, progress.alive),
        supports=(script.retrace_hint, process.growing), excludes=(progress.silent,)),
    Pattern(causes.RETRACING, "F11", 0.5, requires=(script.retrace_hint, progress.alive), excludes=(progress.silent,)),
    Pattern(causes.SLOW_OPTIMIZER, "F11", 0.75, requires=(script.optimizer_hint, progress.alive),
        excludes=(progress.silent,)),
    Pattern(causes.ROSETTA, "F11", 0.85, requires=(machine.translated, progress.alive), excludes=(progress.silent,)),
    Pattern(causes.WRONG_NUMBERS, "F13", 0.9, requires=(progress.loss_broken, progress.alive),
        excludes=(progress.silent,)),
    # ---- a gap for a reason that is no fault --------------------------------------------------------------------
    Pattern(causes.STOPPED, "", 0.97, requires=(*GAP, process.stopped)),
    Pattern(causes.ASLEEP, "", 0.8, requires=(*GAP, machine.slept)),
    Pattern(causes.SAVING, "", 0.5, requires=(*GAP, progress.saving),
        proofs=(progress.file_grows,), supports=(process.save_frames, progress.working),
        against=(progress.deadlocked, progress.spinning, process.cpu_idle, process.no_io),
        excludes=(process.stopped,)),
    Pattern(causes.COMPILING, "", 0.4, requires=(*GAP, progress.compiling),
        proofs=(process.compile_frames,), supports=(process.cpu_busy, progress.working), against=(progress.spinning,),
        excludes=(process.stopped, process.cpu_idle, progress.waits_for_busy_device)),
    Pattern(causes.DATA_ENDED, "", 0.75, requires=(*GAP, script.data_ended)),
    # ---- at the end, and after it ---------------------------------------------------------------------------------
    Pattern(causes.EXIT_HANG, "F8", 0.8, requires=(*GAP, progress.finishing),
        supports=(process.cpu_idle, progress.deadlocked, progress.trained, process.lock_frames, process.workers_died),
        against=(progress.working,), excludes=(process.stopped, script.device_error)),
    Pattern(causes.FINISHED, "", 0.9, requires=(process.ended_well,), supports=(process.all_trained,),
        against=(process.cut_short, script.gpu_fault, script.gpu_memory)),
    Pattern(causes.SILENT_EXIT, "", 0.75, requires=(process.ended_well, process.cut_short),
        supports=(process.quiet_before,), against=(script.data_ended,)),
    Pattern(causes.SILENT_EXIT, "", 0.6, requires=(process.ended_badly, process.quiet_before),
        supports=(process.cut_short,), against=(script.fatal,), excludes=(script.traceback,)),
    Pattern(causes.SCRIPT_ERROR, "", 0.5, requires=(process.ended_badly,), proofs=(script.traceback,),
        supports=(process.worker_crash, progress.never_trained),
        against=(script.gpu_memory, script.host_memory, script.mismatch, script.too_large, script.device_error),
        excludes=(script.memory_error, process.killed_inside)),
    Pattern(causes.NATIVE_CRASH, "F7", 0.7, requires=(process.crashed,), proofs=(process.crash_line,),
        supports=(script.fatal, progress.trained),
        against=(script.gpu_memory, script.gpu_fault, script.gpu_watchdog, script.too_large, script.mismatch),
        excludes=(script.device_error, device.gpu_lost)),
    Pattern(causes.SIZE_LIMIT, "F7", 0.85, requires=(script.too_large,), supports=(process.crashed,)),
    Pattern(causes.KILLED, "", 0.5, requires=(process.killed,), proofs=(process.not_for_memory,),
        supports=(machine.unpressed, machine.plenty),
        against=(machine.pressed, machine.near_limit, machine.oom_counted, script.killed_line),
        excludes=(process.killed_for_memory,)),
    # The exit code of a grandchild is not known.
    Pattern(causes.KILLED, "", 0.5, requires=(process.killed_inside,), proofs=(process.not_for_memory,),
        supports=(machine.unpressed, machine.plenty),
        against=(machine.pressed, machine.near_limit, machine.oom_counted, script.killed_line, script.fatal),
        excludes=(process.killed_for_memory, script.device_error)),
    Pattern(causes.NATIVE_CRASH, "F7", 0.55, requires=(process.killed_inside, script.fatal)),
    Pattern(causes.NATIVE_CRASH, "F7", 0.75, requires=(process.killed_inside, process.crash_line)),
    Pattern(causes.ENDED_BY_REQUEST, "", 0.95, requires=(process.asked_to_go,)),
    Pattern(causes.STUCK_IN_KERNEL, "F10", 0.95, requires=(process.survived_kill,)),
    Pattern(causes.STUCK_IN_KERNEL, "F10", 0.7, requires=(*GAP, process.uninterruptible),
        supports=(process.cpu_idle, progress.no_pulses), against=(machine.swapping, process.paging)),
    Pattern(causes.STUCK_IN_KERNEL, "F10", 0.8, requires=(process.stuck_exiting,)),
    Pattern(causes.GPU_BUSY_AFTER_KILL, "F10", 0.85, requires=(machine.busy_without_us, machine.on_metal)),
    Pattern(causes.MACHINE_FROZE, "F9", 0.9, requires=(script.machine_died,), excludes=(progress.silent,)),
    Pattern(causes.PLUGIN_MISMATCH, "F12", 0.9, requires=(script.mismatch,),
        supports=(process.ended_badly, progress.never_trained)),
)  # fmt: skip
