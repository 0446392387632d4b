"""The checks of the machine: GPU, memory, power, heat, disk, places, and who else is at work.

Functions of facts; a check that the facts say nothing about says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from stallguard import notify
from stallguard.agent import missed_starts
from stallguard.agent.job import Schedule
from stallguard.doctor.facts import Facts, Heavy, Place
from stallguard.doctor.findings import Said, fail, note, ok, warn

GB = 10**9
NO_ROOM, LITTLE_ROOM = 1 * GB, 10 * GB  # bytes free; a checkpoint and its successor must both fit
LOW, EMPTY = 0.15, 0.05  # of the memory, available
SWAPPED = 0.5  # of the memory, in swap
TAKEN = 0.3  # of the GPU, the cores or the memory, by others


def gpu(facts: Facts) -> Iterator[Said]:
    """Is there a GPU, and is it free?"""
    listed, device = facts.preferences.gpus, facts.device
    if device is not None and device.name and not listed:
        yield ok(device.name)
    for one in listed or ():
        yield _listed(one.name, one.cores, virtual=one.virtual)
    if listed == ():
        yield warn("the system lists no GPU", "restart the machine; a headless one may need a display")
    if device is None:
        return
    if device.utilisation is not None and device.utilisation > TAKEN:
        cure = "end what uses it: GPU time is shared, and a clash can end either"
        yield warn(f"the GPU is {device.utilisation:.0%} busy already", cure)
    if device.recoveries:
        yield note(
            f"the GPU was restarted {device.recoveries} times since the machine booted", "restart the machine"
        )


def _listed(name: str, cores: int | None, *, virtual: bool) -> Said:
    if virtual:
        return warn(f"{name}: a virtual machine's GPU, which cannot compute", "train on the machine itself")
    return ok(f"{name}, {cores} cores" if cores else name)


def reach(facts: Facts) -> Iterator[Said]:
    """On Linux: an NVIDIA GPU that the installed TensorFlow cannot use."""
    here = facts.environment.installed
    if here is None or facts.system != "Linux" or facts.device is None:
        return
    if "tensorflow-cpu" in here.packages and "tensorflow" not in here.packages:
        cure = "pip uninstall tensorflow-cpu && pip install 'tensorflow[and-cuda]'"
        yield warn("tensorflow-cpu is installed: it will not use the GPU", cure)


def memory(facts: Facts) -> Iterator[Said]:
    """Is there memory to train in?"""
    reading = facts.memory
    if reading.pressure == "critical":
        yield fail(
            "memory pressure is critical before anything was started", "end other programs, or restart"
        )
    elif reading.total and reading.available is not None:
        yield _room(reading.available, reading.total)
    if reading.limit and reading.total and reading.limit < reading.total:
        used = f", {_size(reading.limit_used)} of it used" if reading.limit_used is not None else ""
        yield note(f"a limit of {_size(reading.limit)} holds for this session{used}")


def _room(available: int, total: int) -> Said:
    words = f"{_size(available)} of {_size(total)} available"
    if available < EMPTY * total:
        return fail(words, "end other programs, or restart the machine")
    if available < LOW * total:
        return warn(words, "end other programs; a training that swaps looks like one that stalls")
    return ok(words)


def swap(facts: Facts) -> Iterator[Said]:
    """Is the machine swapping already, and is there room for more?"""
    used, total = facts.memory.swap_used, facts.memory.total
    if used and total and used > SWAPPED * total:
        yield warn(f"{_size(used)} are in swap already", "restart the machine before the night")
    root = next((place for place in facts.places if place.what == "swap"), None)
    if root is not None and root.free is not None and total and root.free < total / 2:
        cure = f"free {_size(total)} on that disk"
        yield warn(f"swap may grow, and only {_size(root.free)} are free where it lives", cure)


def power(facts: Facts) -> Iterator[Said]:
    """Will the power last, and is it used?"""
    machine = facts.machine
    if machine.power == "battery":
        yield fail("running on battery", "plug it in: a training empties a battery in hours")
    elif machine.power == "ac":
        yield ok("on mains")
    sleep = facts.preferences.sleep
    if machine.low_power or (sleep is not None and sleep.low_power):
        yield warn("low-power mode is on: about 60 % of the speed", "switch it off in the system's settings")
    if machine.cpu_limit is not None and machine.cpu_limit < 1:
        yield warn(
            f"the processor is held to {machine.cpu_limit:.0%} of its speed",
            "look at heat and power settings",
        )


def heat(facts: Facts) -> Iterator[Said]:
    """Is the machine hot before it begins?"""
    if facts.machine.thermal in ("serious", "critical"):
        yield warn(f"the thermal level is {facts.machine.thermal}", "let it cool down; give it air")
    elif facts.machine.thermal is not None:
        yield ok(f"the thermal level is {facts.machine.thermal}")


def sleep(facts: Facts) -> Iterator[Said]:
    """Would the machine fall asleep?"""
    if facts.machine.lid_closed:
        yield warn("the lid is closed: without a display and mains power the machine sleeps", "open the lid")
    settings = facts.preferences.sleep
    if settings is None or settings.after is None:
        return
    minutes = f"sleeps after {settings.after / 60:.0f} min of idleness"
    if not settings.after:
        yield ok("does not sleep by itself")
    elif facts.let_sleep:
        yield warn(
            f"{minutes}, and the setting run.let_sleep allows it during a run", "set run.let_sleep = false"
        )
    else:
        yield ok(f"{minutes}; `stallguard run` holds that off while a training lives")
    for name, times in facts.jobs:
        time = missed_starts.asleep_at(Schedule(at=times), settings, facts.preferences.wakes)
        if time is not None:
            cure = (
                missed_starts.wake_command(time) if facts.system == "Darwin" else missed_starts.AWAKE_ON_LINUX
            )
            yield warn(f"{minutes}: if it is asleep at {time}, the job {name} does not start then", cure)


def disk(facts: Facts) -> Iterator[Said]:
    """Is there room for checkpoints, journals and evidence?"""
    seen: set[int | None] = set()
    for place in facts.places:
        if place.free is None or (place.device in seen and place.device is not None):
            continue
        seen.add(place.device)
        yield _space(place, place.free)


def _space(place: Place, free: int) -> Said:
    words = f"{_size(free)} free for {place.what} ({place.path})"
    if free < NO_ROOM:
        return fail(words, "free some, or move it: a full disk ends a training at its next checkpoint")
    if free < LITTLE_ROOM:
        return warn(words, "free some: checkpoints, journals and evidence need room")
    return ok(words)


def places(facts: Facts) -> Iterator[Said]:
    """Can everything be written that must be?"""
    shut = [place for place in facts.places if not place.writable and place.what != "swap"]
    for place in shut:
        yield fail(
            f"cannot write {place.path}, where {place.what} go",
            "give yourself the right, or choose another place",
        )
    if facts.socket_trouble:
        yield fail(
            f"no socket can be made: {facts.socket_trouble}", "set TMPDIR to a short writable directory"
        )
    if not shut and not facts.socket_trouble:
        yield ok("all places that a run writes are writable")


def permissions(facts: Facts) -> Iterator[Said]:
    """On macOS: folders that a job of launchd may not read."""
    if facts.guarded:
        yield note(
            f"{facts.working} is in a folder that macOS keeps from background jobs ({facts.guarded})",
            "move the project elsewhere before `stallguard agent install`",
        )


def notifications(facts: Facts) -> Iterator[Said]:
    """Will the user be notified?"""
    if facts.notifies_addresses and not facts.has_apprise:
        yield fail(
            notify.NO_APPRISE, "install the extra, or unset notify.urls; then: stallguard notify --test"
        )
    if facts.notifies_desktop and facts.system == "Darwin":
        yield note(
            "macOS shows notifications of the desktop only if Script Editor may notify; it does not tell",
            f"see: stallguard notify --test; {notify.ALLOW_ON_MAC}",
        )


def others(facts: Facts) -> Iterator[Said]:
    """Who else is at work?"""
    cores, total = facts.about.get("cores") or 1, facts.memory.total or 0
    loud = [one for one in facts.heavy if one.cores > TAKEN * cores or (total and one.memory > TAKEN * total)]
    for one in loud:
        yield warn(
            f"{one.name}{_processes(one)}: {one.cores:.1f} cores busy, {_size(one.memory)} of memory",
            "end what you do not need, or expect a slower training",
        )
    quiet = [f"{one.name}{_processes(one)}" for one in facts.heavy if one not in loud]
    if quiet:
        yield note(f"also at work: {', '.join(quiet)}")
    if facts.runs:
        yield warn(
            f"another run lives: {', '.join(facts.runs)}",
            "two trainings share one GPU badly; stallguard status",
        )


def _processes(one: Heavy) -> str:
    """Return which processes of that name these are: the first ones by script and pid, the others by their number."""
    more = one.count - len(one.who)
    if not one.who:
        return f" ({one.count} processes)" if one.count > 1 else ""
    return f" ({'; '.join(one.who)}{f'; and {more} more' if more > 0 else ''})"


def added(facts: Facts) -> Iterator[Said]:
    """What do plug-ins add to stallguard itself?"""
    for name, points_to, package in facts.added:
        yield note(f"{name} ({points_to}) of {package} is part of every run")


def _size(amount: int | None) -> str:
    return "unknown" if amount is None else f"{amount / GB:.1f} GB"
