"""The checks of the machine: GPU, memory, power, heat, disk, directories, and other processes.

Functions of facts; a check whose facts are not known finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from stallguard import notify
from stallguard.agent import due_starts
from stallguard.agent.job import Schedule
from stallguard.core.text import counted
from stallguard.doctor.facts import CheckText, Heavy, MachineFacts, fail, note, ok, warn
from stallguard.report import trace

GB = 10**9
NO_ROOM, LITTLE_ROOM = 1 * GB, 10 * GB  # bytes free; a checkpoint and its successor must both fit
LOW, EMPTY = 0.15, 0.05  # of the memory, available
SWAPPED = 0.5  # of the memory, in swap
TAKEN = 0.3  # of the GPU, the cores or the memory, by others


def gpu(facts: MachineFacts) -> Iterator[CheckText]:
    """Is there a GPU, and is it free?"""
    listed, device = facts.preferences.gpus, facts.device
    if device is not None and device.name and not listed:
        yield ok(device.name)
    for one in listed or ():
        if one.virtual:
            words = f"{one.name}: the GPU of a virtual machine, which cannot compute"
            yield warn(words, "train on the physical machine")
        else:
            yield ok(f"{one.name}, {one.cores} cores" if one.cores else one.name)
    if listed == ():
        yield warn("the system lists no GPU", "restart the machine; a headless one may need a display")
    if device is None:
        return
    if device.utilisation is not None and device.utilisation > TAKEN:
        cure = "end the processes that use it: GPU time is shared, and both can fail"
        yield warn(f"the GPU is {device.utilisation:.0%} busy already", cure)
    if device.recoveries:
        yield note(
            f"the GPU was restarted {counted(device.recoveries, 'time')} since the machine booted",
            "restart the machine",
        )


def reach(facts: MachineFacts) -> Iterator[CheckText]:
    """On Linux: an NVIDIA GPU that the installed TensorFlow cannot use."""
    here = facts.environment.installed
    if here is None or facts.system != "Linux" or facts.device is None:
        return
    if "tensorflow-cpu" in here.packages and "tensorflow" not in here.packages:
        cure = "pip uninstall tensorflow-cpu && pip install 'tensorflow[and-cuda]'"
        yield warn("tensorflow-cpu is installed: it does not use the GPU", cure)


def memory(facts: MachineFacts) -> Iterator[CheckText]:
    """Is there memory for a training?"""
    reading = facts.memory
    if reading.pressure == "critical":
        yield fail("memory pressure is critical before the training starts", "end other programs, or restart")
    elif reading.total and reading.available is not None:
        words = f"{_size(reading.available)} of {_size(reading.total)} available"
        if reading.available < EMPTY * reading.total:
            yield fail(words, "end other programs, or restart the machine")
        elif reading.available < LOW * reading.total:
            yield warn(words, "end other programs; swapping makes a training look stalled")
        else:
            yield ok(words)
    if reading.limit and reading.total and reading.limit < reading.total:
        used = f", {_size(reading.limit_used)} of it used" if reading.limit_used is not None else ""
        yield note(f"a limit of {_size(reading.limit)} holds for this session{used}")


def swap(facts: MachineFacts) -> Iterator[CheckText]:
    """Is the machine swapping already, and is there disk space for more?"""
    used, total = facts.memory.swap_used, facts.memory.total
    if used and total and used > SWAPPED * total:
        yield warn(f"{_size(used)} are in swap", "restart the machine before the training")
    root = next((place for place in facts.places if place.what == "swap"), None)
    if root is not None and root.free is not None and total and root.free < total / 2:
        cure = f"free {_size(total)} on that disk"
        yield warn(f"swap may grow, and only {_size(root.free)} are free on its volume", cure)


def power(facts: MachineFacts) -> Iterator[CheckText]:
    """Is the machine on mains power, at full speed?"""
    machine = facts.machine
    if machine.power == "battery":
        yield fail("running on battery", "connect mains power: a training empties a battery in hours")
    elif machine.power == "ac":
        yield ok("on mains")
    sleep = facts.preferences.sleep
    if machine.low_power or (sleep is not None and sleep.low_power):
        yield warn("low-power mode is on: about 60 % of the speed", "switch it off in the system settings")
    if machine.cpu_limit is not None and machine.cpu_limit < 1:
        yield warn(
            f"the processor is limited to {machine.cpu_limit:.0%} of its speed", "check temperature and power settings"
        )


def heat(facts: MachineFacts) -> Iterator[CheckText]:
    """Is the machine hot before the training starts?"""
    if facts.machine.thermal in ("serious", "critical"):
        yield warn(f"the thermal level is {facts.machine.thermal}", "let it cool down")
    elif facts.machine.thermal is not None:
        yield ok(f"the thermal level is {facts.machine.thermal}")


def sleep(facts: MachineFacts) -> Iterator[CheckText]:
    """Will the machine sleep?"""
    if facts.machine.lid_closed:
        yield warn("the lid is closed: without a display and mains power the machine sleeps", "open the lid")
    settings = facts.preferences.sleep
    if settings is None or settings.after is None:
        return
    minutes = f"sleeps after {settings.after / 60:.0f} min of idleness"
    if not settings.after:
        yield ok("does not sleep by itself")
    elif facts.let_sleep:
        yield warn(f"{minutes}, and run.let_sleep allows that during a run", "set run.let_sleep = false")
    else:
        yield ok(f"{minutes}; `stallguard run` prevents that during a training")
    for name, times in facts.jobs:
        time = due_starts.asleep_at(Schedule(at=times), settings, facts.preferences.wakes)
        if time is not None:
            wakes = due_starts.wake_command(time, settings.after)
            cure = wakes if facts.system == "Darwin" else due_starts.AWAKE_ON_LINUX
            yield warn(f"{minutes}: if it is asleep at {time}, the job {name} does not start then", cure)


def disk(facts: MachineFacts) -> Iterator[CheckText]:
    """Is there room for checkpoints, journals and evidence?"""
    seen: set[int | None] = set()
    for place in facts.places:
        if place.free is None or (place.device in seen and place.device is not None):
            continue
        seen.add(place.device)
        words = f"{_size(place.free)} free for {place.what} ({place.path})"
        if place.free < NO_ROOM:
            yield fail(words, "free space, or move the directory: a full disk ends a training at its next checkpoint")
        elif place.free < LITTLE_ROOM:
            yield warn(words, "free space: checkpoints, journals and evidence need it")
        else:
            yield ok(words)


def places(facts: MachineFacts) -> Iterator[CheckText]:
    """Are all directories of a run writable?"""
    shut = [place for place in facts.places if not place.writable and place.what != "swap"]
    for place in shut:
        yield fail(
            f"cannot write {place.path}, where {place.what} go", "change its permissions, or choose another directory"
        )
    if facts.socket_trouble:
        yield fail(f"no socket can be made: {facts.socket_trouble}", "set TMPDIR to a short writable directory")
    if not shut and not facts.socket_trouble:
        yield ok("all directories of a run are writable")


def permissions(facts: MachineFacts) -> Iterator[CheckText]:
    """On macOS: folders that a launchd job cannot read."""
    if facts.guarded:
        yield note(
            f"{facts.working} is in a folder that background jobs cannot read ({facts.guarded})",
            "move the project elsewhere before `stallguard agent install`",
        )


def notifications(facts: MachineFacts) -> Iterator[CheckText]:
    """Do notifications work?"""
    if facts.notifies_addresses and not facts.has_apprise:
        yield fail(notify.NO_APPRISE, "install the extra, or unset notify.urls; then: stallguard notify test")
    if facts.unusable_addresses:
        yield fail(
            f"Apprise does not understand an address of notify.urls: {', '.join(facts.unusable_addresses)}",
            "see docs/notifications.md for its form; then: stallguard notify test",
        )
    if facts.notifies_desktop and facts.system == "Darwin":
        yield note(
            "macOS shows desktop notifications only if Script Editor is allowed to send them, which cannot be checked",
            f"see: stallguard notify test; {notify.ALLOW_ON_MAC}",
        )


def traces(facts: MachineFacts) -> Iterator[CheckText]:
    """Can the trace of a run be sent?"""
    if facts.wants_traces and not facts.has_otel:
        yield fail(trace.NO_SDK, "install the extra, or unset metrics.otlp")


def others(facts: MachineFacts) -> Iterator[CheckText]:
    """Which other processes use the machine?"""
    cores, total = facts.about.get("cores") or 1, facts.memory.total or 0
    loud = [one for one in facts.heavy if one.cores > TAKEN * cores or (total and one.memory > TAKEN * total)]
    for one in loud:
        yield warn(
            f"{one.name}{_processes(one)}: {one.cores:.1f} cores busy, {_size(one.memory)} of memory",
            "end those that you do not need, or expect a slower training",
        )
    quiet = [f"{one.name}{_processes(one)}" for one in facts.heavy if one not in loud]
    if quiet:
        yield note(f"also running: {', '.join(quiet)}")
    if facts.runs:
        yield warn(
            f"another run is alive: {', '.join(facts.runs)}",
            "two trainings slow each other down on one GPU; stallguard status",
        )


def _processes(one: Heavy) -> str:
    """Return the processes of that name: the first by script and pid, the others by their number."""
    more = one.count - len(one.who)
    if not one.who:
        return f" ({one.count} processes)" if one.count > 1 else ""
    return f" ({'; '.join(one.who)}{f'; and {more} more' if more > 0 else ''})"


def added(facts: MachineFacts) -> Iterator[CheckText]:
    """What do plug-ins add to stallguard itself?"""
    for name, points_to, package in facts.added:
        yield note(f"{name} ({points_to}) of {package} is part of every run")


def store(facts: MachineFacts) -> Iterator[CheckText]:
    """Can several machines use the store?"""
    if facts.store is None:
        return
    cure = facts.store.cure or "see docs/fleet.md: which stores are known to work, and with which options"
    if facts.store.trouble:
        yield fail(f"the store cannot be used: {facts.store.trouble}", cure)
    for one in facts.store.promises:
        if one.kept:
            yield ok(f"{facts.store.url}: {one.promise} ({one.seen})")
        else:
            yield fail(f"{facts.store.url} must not be used: {one.promise}: {one.seen}", cure)


def _size(amount: int | None) -> str:
    return "unknown" if amount is None else f"{amount / GB:.1f} GB"
