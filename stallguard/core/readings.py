"""What the sensors read, as values.  Units: seconds, bytes, counts; None means "not known", never zero.

Counters are cumulative and belong to the child's whole process tree unless a name says otherwise; rates are
made from two readings by the modules that need them.  This module must not read anything itself.
"""

from __future__ import annotations

import msgspec


class Reading(msgspec.Struct, frozen=True, tag_field="sensor", omit_defaults=True):
    """Base of all readings; the tag names the sensor in the journal."""


class Process(Reading, frozen=True, tag="process"):
    """A process tree: the child's, or that below one training.  `state` is that of the process at its root."""

    pid: int = 0  # of the training whose tree this is; 0: the child's whole tree
    state: str | None = None  # running sleeping uninterruptible stopped zombie exiting gone
    # User + system seconds; exited members included.
    cpu: float | None = msgspec.field(default=None, name="cpu_seconds")
    # The system's part of it: page-ins, decompression and reclaim of memory are in it.
    system: float | None = msgspec.field(default=None, name="system_seconds")
    members: int | None = None  # live processes in the tree, the child included
    threads: int | None = None
    switches: int | None = None  # context switches
    io: int | None = msgspec.field(default=None, name="io_bytes")  # bytes read + written through system calls
    disk: int | None = msgspec.field(default=None, name="disk_bytes")  # bytes that reached the disk
    minor_faults: int | None = None
    major_faults: int | None = None  # page-ins on macOS
    instructions: int | None = None
    # phys_footprint on macOS; PSS (or RSS) + swap on Linux.
    footprint: int | None = msgspec.field(default=None, name="footprint_bytes")
    # Highest footprint so far: the present one, and by how much that of one process was higher once.
    peak: int | None = msgspec.field(default=None, name="peak_bytes")
    rss: int | None = msgspec.field(default=None, name="rss_bytes")
    swap: int | None = msgspec.field(default=None, name="swap_bytes")
    # Seconds runnable but not running, summed over live threads.
    run_queue: float | None = msgspec.field(default=None, name="run_queue_seconds")
    # Threads by wait site (Linux): futex timed sleep poll sock read write sync wait run disk driver other.
    census: dict[str, int] | None = None
    main_site: str | None = None  # where the training process' main thread waits; with each census
    remote: bool | None = None  # a remote socket or a network file system is in use
    workers: int | None = None  # children that died since the last reading
    nice: int | None = None  # of the training process; above 0, others go first
    background: bool | None = None  # macOS ran it mostly as background work, on its slow cores
    # Seconds for which a control group's quota kept it from running; null: no quota.
    throttled: float | None = msgspec.field(default=None, name="throttled_seconds")


class Device(Reading, frozen=True, tag="device"):
    """The accelerator.  `moved` says whether this run's own GPU time advanced since the last reading.

    Several devices of a run are one reading: shares are those of the busiest, power, memory and errors are summed up,
    and the clock is that of the slowest.

    `pid`: of the training whose use of it is read, if there are several; 0: the whole run.
    """

    pid: int = 0

    name: str | None = None
    utilisation: float | None = None  # 0..1 of the whole device
    moved: bool | None = None
    power: float | None = msgspec.field(default=None, name="power_watts")
    # Bytes in use on the device (unified memory: driver's "in use").
    memory: int | None = msgspec.field(default=None, name="memory_bytes")
    recoveries: int | None = None  # GPU restarts since boot
    # This run's processes hold a context on it.
    used_by_run: bool | None = msgspec.field(default=None, name="mine")
    # Share of the time in which its memory was read or written, 0..1: a kernel that never ends can leave it at 0.
    memory_utilisation: float | None = None
    # Share of its multiprocessors that had work, 0..1, by the performance counters (NVIDIA's from Hopper on).
    sm_activity: float | None = None
    compute: float | None = None  # share of the time in which this run's own processes computed on it, 0..1
    others_compute: float | None = None  # at least, of all other processes, by their own counters (macOS)
    power_limit: float | None = msgspec.field(default=None, name="power_limit_watts")  # the most that it can draw
    clock: int | None = msgspec.field(default=None, name="clock_mhz")  # of its multiprocessors, now
    clock_limit: int | None = msgspec.field(default=None, name="clock_limit_mhz")  # the highest that it can have
    # What keeps the clock low: power (its limit), heat, hardware, setting, other devices; empty: nothing.
    slowed_by: tuple[str, ...] | None = None
    ecc_errors: int | None = None  # memory errors that could not be corrected, since its driver was loaded
    xid: int | None = None  # number of the newest critical error that the driver reported (NVIDIA's Xid)
    xid_count: int | None = None  # how many there were since stallguard has read it
    # Processes that are not this run's and have a context on it; on macOS, that computed since the reading before.
    others: int | None = None
    lost: int | None = None  # devices of the run that the driver has lost: off the bus, or to be restarted


class Memory(Reading, frozen=True, tag="memory"):
    """Memory of the machine (and of the cgroup if there is one)."""

    total: int | None = msgspec.field(default=None, name="total_bytes")
    available: int | None = msgspec.field(default=None, name="available_bytes")
    pressure: str | None = None  # normal warn critical
    swap_used: int | None = msgspec.field(default=None, name="swap_used_bytes")
    swap_outs: int | None = msgspec.field(default=None, name="swap_out_bytes")  # bytes, cumulative
    compressed: int | None = msgspec.field(default=None, name="compressed_bytes")
    paged: int | None = msgspec.field(default=None, name="paged_bytes")  # bytes compressed and in swap
    # The most that can be compressed and in swap.
    paged_limit: int | None = msgspec.field(default=None, name="paged_limit_bytes")
    stall_some: float | None = None  # PSI avg10, 0..1
    stall_full: float | None = None
    limit: int | None = msgspec.field(default=None, name="limit_bytes")  # cgroup or rlimit in force
    limit_used: int | None = msgspec.field(default=None, name="limit_used_bytes")
    oom_kills: int | None = None  # cumulative, of the cgroup

    @property
    def held(self) -> int | None:
        """The bytes in use, in memory, compressed and in swap; None if that is not known."""
        if self.total is None or self.available is None:
            return None
        return self.total - self.available + (self.paged or 0 if self.paged_limit is not None else 0)

    @property
    def most(self) -> int | None:
        """The bytes that can be in use; None if that is not known."""
        return None if self.total is None else self.total + (self.paged_limit or 0)


class Machine(Reading, frozen=True, tag="machine"):
    """The machine as a whole."""

    idle: float | None = None  # 0..1 of all cores, since the last reading
    busiest: tuple[str, ...] = ()  # names of up to three busy processes that are not ours
    cores: int | None = None  # of the machine
    load: float | None = None
    power: str | None = None  # ac battery
    thermal: str | None = None  # nominal fair serious critical
    low_power: bool | None = None
    cpu_limit: float | None = None  # 0..1, speed limit that the system reports
    # Seconds slept since boot (difference of two clocks).
    asleep: float | None = msgspec.field(default=None, name="asleep_seconds")
    lid_closed: bool | None = None


class Files(Reading, frozen=True, tag="files"):
    """Files that the training writes."""

    writing: bool | None = None  # a checkpoint grew within the last seconds
    path: str | None = None
    age: float | None = msgspec.field(default=None, name="age_seconds")  # seconds since the newest write
    size: int | None = msgspec.field(default=None, name="size_bytes")


AnyReading = Process | Device | Memory | Machine | Files
