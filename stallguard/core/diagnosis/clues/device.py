"""Clues from the accelerator: what it did while the training made no progress (core.device_account)."""

# ruff: noqa: D103 - a clue is documented by its sentence

from __future__ import annotations

from collections.abc import Iterator

from stallguard.core.device_account import DeviceAccount, account, xid_words
from stallguard.core.diagnosis.clues import Facts, Scene, clue, percent
from stallguard.core.diagnosis.clues.progress import silent
from stallguard.core.text import counted

RECENT = 60.0  # seconds that are looked at if there is no gap
BUSY = 0.5  # share of the time from which it counts as busy
# At rest although busy: a kernel without end on an NVIDIA H200 drew 118 to 122 of 700 W, as much as an idle one, and
# trainings 240 and more (tests/recordings).  One thread that spins has work for one of 132 multiprocessors.
RESTING_MEMORY, RESTING_ACTIVITY, RESTING_POWER = 0.02, 0.05, 0.25
WORKING_MEMORY, WORKING_POWER = 0.10, 0.5
SLOWED = 0.6  # of its highest clock: a power limit that takes less away is how a device is meant to work
OURS = 0.5  # share of its busy time below which it works for other programs
OFF_THE_BUS, MEMORY_FAULTS = 79, (48, 94, 95)  # numbers of critical errors (device_account.XIDS)
OF_PROGRAMS = (13, 31, 43, 45, 109)  # those that a program makes: the others on the device go on
HARMFUL = ("heat", "hardware")


def what_it_did(scene: Scene) -> DeviceAccount | None:
    """Return the account of the gap; if there is none, of the last minute."""
    in_gap = bool(silent.test(scene)) or scene.exited is not None
    since = scene.judgement.since if in_gap else scene.now - RECENT
    return account(((seen.at, seen.reading) for seen in scene.history.device), since, scene.now)


def _busy(scene: Scene) -> DeviceAccount | None:
    """Return the account if the device was busy, and not known to be so for other programs only."""
    did = what_it_did(scene)
    if did is None or did.used_by_run is False or did.utilisation is None or did.utilisation.usual < BUSY:
        return None
    return did


def _at_rest(did: DeviceAccount) -> Iterator[tuple[bool, str]]:
    """Yield each figure that shows work: whether it is at rest, and its words."""
    if did.memory_utilisation is not None:
        share = did.memory_utilisation.high
        yield share <= RESTING_MEMORY, f"its memory rests ({percent(share)})"
    if did.sm_activity is not None:
        share = did.sm_activity.usual
        yield share <= RESTING_ACTIVITY, f"{percent(share)} of its multiprocessors have work"
    if did.power is not None and did.power_limit:
        drawn = did.power.high
        yield drawn <= RESTING_POWER * did.power_limit, f"it draws {drawn:.0f} of {did.power_limit:.0f} W"


@clue("the GPU reports {busy} busy, but {rest}")
def gpu_rests(scene: Scene) -> Facts | None:
    did = _busy(scene)
    seen = list(_at_rest(did)) if did is not None else []
    if did is None or did.utilisation is None or not seen or not all(rests for rests, _ in seen):
        return None
    *first, last = (text for _, text in seen)
    return {"busy": percent(did.utilisation.usual), "rest": f"{', '.join(first)} and {last}" if first else last}


@clue("the GPU works: {work}")
def gpu_works(scene: Scene) -> Facts | None:
    did = _busy(scene)
    if did is None:
        return None
    memory, power, limit = did.memory_utilisation, did.power, did.power_limit
    if memory is not None and memory.usual >= WORKING_MEMORY:
        return {"work": f"its memory is read or written {percent(memory.usual)} of the time"}
    if power is not None and limit and power.usual >= WORKING_POWER * limit:
        return {"work": f"it draws {power.usual:.0f} of {limit:.0f} W"}
    return None


@clue("the GPU works for {others}")
def gpu_taken(scene: Scene) -> Facts | None:
    did = what_it_did(scene)
    if did is None or not did.others or did.utilisation is None or did.utilisation.usual < BUSY:
        return None
    little = did.moved is False if did.compute is None else did.compute.usual < OURS * did.utilisation.usual
    return {"others": counted(did.others, "other program")} if little else None


@clue("the GPU runs at {clock} of {limit} MHz{why}")
def gpu_slowed(scene: Scene) -> Facts | None:
    """Not of an idle one: its clock is low because it has nothing to do."""
    did = _busy(scene)
    if did is None or did.clock is None or not did.clock_limit:
        return None
    harm = any(word in HARMFUL for word in did.slowed_by)
    if did.clock.usual > SLOWED * did.clock_limit and not harm:
        return None
    why = f", kept low by {' and '.join(did.slowed_by)}" if did.slowed_by else ""
    return {"clock": f"{did.clock.usual:.0f}", "limit": f"{did.clock_limit:.0f}", "why": why}


@clue("the GPU reported {errors}, the newest {number}")
def gpu_xid(scene: Scene) -> Facts | None:
    did = what_it_did(scene)
    if did is None or not did.xids or did.used_by_run is False:
        return None
    if did.xid in OF_PROGRAMS and did.others != 0:  # the driver does not say of which program on the device
        return None
    return {"errors": counted(did.xids, "critical error"), "number": xid_words(did.xid)}


@clue("{errors} of the GPU's memory could not be corrected")
def gpu_memory_errors(scene: Scene) -> Facts | None:
    did = what_it_did(scene)
    if did is None or not (did.ecc_errors or (did.xids and did.xid in MEMORY_FAULTS)):
        return None
    return {"errors": counted(did.ecc_errors or 1, "error")}


@clue("the driver has lost {devices}: off the bus, or to be restarted")
def gpu_lost(scene: Scene) -> Facts | None:
    did = what_it_did(scene)
    if did is None or not (did.lost or (did.xids and did.xid == OFF_THE_BUS)):
        return None
    return {"devices": counted(did.lost or 1, "GPU")}
