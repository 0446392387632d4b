"""The record that the probe sends and the supervisor reads: its layout, and the one codec for it.

A record is 43 little-endian signed 64-bit numbers (344 bytes; one datagram should stay below 512 on macOS), the same in
the mapped page and in a datagram:

    slot  0 magic        "STLG" << 32 | version
          1 token        identity of the attempt, so that a process of another one is not counted
          2 pid          3 sequence (records sent)    4 sent_ns    5 kind (KINDS)
          6 beats        training batches finished since the process started      7 beat_ns
          8 phase        index into PHASES            9 phase_ns (when it was entered)
         10 progress_ns  last event of any kind      11 changes (how many events there were)
         12 longest_ns   longest pause between two events since the previous record
         13 longest_phase  the phase in which that pause fell
         14 fits         15 fit_beats (since this fit began)    16 epoch    17 epochs
         18 batch        batches finished in this epoch          19 batches (of the epoch)
         20 checks       validation and prediction batches       21 traces (graphs traced)
         22 iterations   of the optimizer, read by the poll thread     23 iterations_ns (last change)
         24 poll_ns      when that read last returned: old while beats go on = the device is stuck
         25 source       index into SOURCES: the hook that counts the beats
         26 hooks        bit mask over HOOKS          27 flags (FLAG_*)
         28 saves        checkpoints finished         29 slices (of a batch; 1 = whole)
         30 loss_bits    float64 of the last loss that was known without waiting for the device
         31 input_ns     time spent waiting for input, summed   32 step_ns  time inside steps, summed
         33 expect_ns    end of a long operation that the script announced (0: none)
         34 skipped      batches passed over while resuming
         35 began_ns     when this program began: with the pid, which program of which process this is
         36 wait         index into WAITS: what the training's thread waits for, if it stands still
         37 wait_ns      since when it is seen at this same instruction (wait_evidence.py)
         38 wakers       other Python threads that could end that wait; -1: not known
         39 command      written by the supervisor into the page, read by the hooks: index into COMMANDS
         40 stacks       written by the supervisor too: how often it asked for the stacks
         41 micro        micro-batches, if the library makes several of a batch and says so; else 0
         42 total        batches of this fit in all, those of earlier attempts included; 0: not known

Every number is absolute, so a lost record does no harm.  A number not known is -1, a time not known is 0.
All times are CLOCK_MONOTONIC nanoseconds, one clock for every process of the machine.

The supervisor imports this module too: one codec for both ends.  Inside the user's process it is loaded by path:
standard library only, Python 3.9 grammar, no other module of stallguard.  It does no I/O.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = 3
MAGIC = (0x53544C47 << 32) | VERSION
FIELDS = (
    "magic token pid sequence sent_ns kind beats beat_ns phase phase_ns progress_ns changes longest_ns "
    "longest_phase fits fit_beats epoch epochs batch batches checks traces iterations iterations_ns poll_ns "
    "source hooks flags saves slices loss_bits input_ns step_ns expect_ns skipped "
    "began_ns wait wait_ns wakers command stacks micro total"
).split()
SLOTS = 43
SIZE = SLOTS * 8
SLOT = {name: index for index, name in enumerate(FIELDS)}
_CODEC = struct.Struct("<%dq" % SLOTS)
_FLOAT = struct.Struct("<d")
_INT = struct.Struct("<q")
# A file in a checkpoint generation whose values, or whose loss, were not finite when it was made.
NOT_FINITE = "NOT_FINITE"
# The file of sampled stacks (stack_sampler.py), beside the page: two numbers, how often a write began or ended (odd: it
# is being written) and the length of the text, then the text.  Its last number is the supervisor's: when it last judged
# a stall, CLOCK_MONOTONIC ns.
# Files of processes that send no record yet: they wait for a training library; they import one, as a worker of a pool.
WAITING, LOADING = "%d.waiting", "%d.loading"
CELLS = "%d.cells"  # lines of a cell's number in a notebook, a tabulator, and the name of the file of its code
PROFILE = "%d.profile"  # its name; the number is the process'
PROFILE_SIZE = 128 << 10  # bytes
_PROFILE = struct.Struct("<2q")
PROFILE_HEAD = _PROFILE.size
PROFILE_STALLED = PROFILE_SIZE - 8  # where the last number is, bytes
# Phases of samples that no slot of the record has.
NO_PROGRESS = "no progress"  # in a stall, or in a gap that is still open
OWN_WORK = "stallguard"  # work of the probe in the training's thread

KINDS = ("none", "state", "pulse", "hello", "bye")
PHASES = (
    "importing",  # 0 until the first event of a training
    "idle",  # 1 between fits, in the script's own code
    "tracing",  # 2 a graph is being traced
    "first run",  # 3 first call of a traced graph: Grappler, XLA, kernel compilation
    "step",  # 4 inside a training step
    "between",  # 5 callbacks and the loop between two steps
    "input",  # 6 waiting for the next batch, if that happens in Python
    "epoch start",  # 7
    "epoch end",  # 8
    "validation",  # 9
    "prediction",  # 10
    "checkpoint",  # 11 saving or loading
    "finishing",  # 12 the interpreter ends
    "named",  # 13 set by the script: stallguard.phase("...")
)
SOURCES = (
    "none",
    "callbacks",  # keras CallbackList
    "on_batch",  # train_on_batch
    "function",  # outermost call of a tf.function or ConcreteFunction
    "tape",  # eager GradientTape.gradient
    "optimizer",  # eager apply
    "session",  # tf.compat.v1 Session.run
    "torch",  # optimizer step hook
    "poll",  # optimizer.iterations, read by a thread
    "hand",  # stallguard.beat()
    "mlx",  # update of an optimizer, or an iteration of mlx-lm's trainer
)
WAITS = (
    "none",  # 0 it does not stand still, or it is not known what it waits for
    "lock",  # 1 a lock, an event, a condition, a queue or another thread, without a timeout
    "timed",  # 2 the same with a timeout
    "sleep",  # 3 a time to pass
    "io",  # 4 a socket, a pipe, a file or another process
    "library",  # 5 a call of the training library to return
    "place",  # 6 not known; it stays in a few lines outside of the library
    "call",  # 7 not known; it stays at one instruction there
    "device",  # 8 a value of a device, or the end of its work
)
HOOKS = (
    "callbacks", "on_batch", "function", "concrete", "iterator", "tape", "optimizer", "trace", "first_run",
    "generator", "session", "torch_step", "torch_loader", "poll", "fit", "save", "train_step", "checkpoint",
)  # fmt: skip
COMMANDS = (
    "none",
    "stop",  # end the training cleanly after this batch, with a checkpoint
    "save",  # make a checkpoint after this batch, whenever the next one is due
    "caches",  # give back the memory that libraries only keep for later arrays (caches.py)
)
# What a sound record has: a process, numbers that only grow from 0, and indices of what exists.
PID_MAX = (1 << 31) - 1
_PID = SLOT["pid"]
_COUNTED = tuple(SLOT[name] for name in "sequence sent_ns beats beat_ns phase_ns progress_ns changes began_ns".split())
_INDICES = (
    (SLOT["kind"], len(KINDS)),
    (SLOT["phase"], len(PHASES)),
    (SLOT["source"], len(SOURCES)),
    (SLOT["wait"], len(WAITS)),
)
FLAG_STACKS_ARMED = 1  # the stack-dump signal is registered: it can be sent
FLAG_SMALLER_BATCH = 2  # slices, or smaller batches, are in effect
FLAG_STOP_ASKED = 4  # the script was asked to end at the next batch
FLAG_STEPPED_ASIDE = 8  # the probe removed its hooks after internal errors
FLAG_TRAINS = 16  # this process has trained; without it, it can be one that only launches others
FLAG_FAILED = 32  # in the last record: an exception ended the script
FLAG_LOSS_OF_EPOCH = 64  # loss_bits are Keras' own result of the epoch that ended last
FLAG_LOSS_BROKEN = 128  # loss_bits are not finite; without this flag NaN means that no loss is known


def pack(values: Sequence[int]) -> bytes:
    """Return the record as bytes.  `values`: SLOTS integers."""
    return _CODEC.pack(*values)


def unpack(data: bytes) -> dict[str, int] | None:
    """Return the record as a dict by field name, None if `data` is no record of this version, or not a sound one."""
    if len(data) != SIZE:
        return None
    values = _CODEC.unpack(data)
    if values[0] != MAGIC or not 0 < values[_PID] <= PID_MAX:
        return None
    for slot in _COUNTED:
        if values[slot] < 0:
            return None
    for slot, most in _INDICES:
        if not 0 <= values[slot] < most:
            return None
    return dict(zip(FIELDS, values))


def profile_text(data: bytes) -> bytes | None:
    """Return the text in the bytes of a PROFILE file; None during a write of it, or before the first."""
    if len(data) < PROFILE_HEAD:
        return None
    writes, length = _PROFILE.unpack_from(data)
    return data[PROFILE_HEAD : PROFILE_HEAD + length] if writes and writes % 2 == 0 else None


def asked(data: bytes) -> bytes:
    """Return the number in slot `stacks` of a page, as bytes, for one more request.  `data`: those of the page."""
    return _INT.pack(_INT.unpack_from(data, SLOT["stacks"] * 8)[0] + 1)


def float_bits(value: float) -> int:
    """Return the bits of a float64 as a signed integer, to fit a slot."""
    bits: int = _INT.unpack(_FLOAT.pack(value))[0]
    return bits


def bits_float(bits: int) -> float:
    """Return the float64 whose bits `float_bits` stored."""
    value: float = _FLOAT.unpack(_INT.pack(bits))[0]
    return value
