"""How a live run stands, as rows of words: the same for `status` and `top`.

Made from the snapshot that the control socket shows (supervisor.live_status).  Pure; must not ask the run.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stallguard.core import messages
from stallguard.core.device_account import account, described
from stallguard.core.diagnosis import causes
from stallguard.core.lifecycle import COLLECTING, FAILED, HOLDING, MEANING, RUNNING, STARTING, UNGUARDED
from stallguard.core.messages import NO_LIMIT
from stallguard.core.profile import Spot
from stallguard.core.readings import Device
from stallguard.core.text import HOW, WHILE, count, duration, loss_words, per_second, quantity
from stallguard.core.time_spent import Spent, effective
from stallguard.core.verdicts import Bottleneck
from stallguard.report.narrative import batch, sentence
from stallguard.report.sanitize import plain

Snapshot = Mapping[str, Any]
Rows = list[tuple[str, str]]
# What is done next, by core.fold.NextStep; {time} is a duration.
NEXT = {
    "stall": "a stall in {time}, unless a batch ends",
    "act": "acting on the stall in {time}, unless it recovers",
    "kill": "SIGKILL in {time}, unless it ends",
    "give up": "giving up on the process in {time}",
    "start": "the next attempt in {time}",
    "segment": "the end of this segment in {time}",
}
UNWELL = frozenset({COLLECTING, HOLDING, UNGUARDED, FAILED})
OVER_MAX = 8  # trainings that are over, shown with those that live
QUIET = 60.0  # seconds without a batch, after which no row says that batches end, or that a training is healthy
BAR = 30  # columns of the bar that shows a silence against its threshold


def is_well(snapshot: Snapshot) -> bool:
    """Return whether the run is neither stalled nor stopped."""
    judged = snapshot.get("judgement", {}).get("step", "")
    return judged not in ("stalled", "stopped") and snapshot["state"] not in UNWELL


def rows(snapshot: Snapshot, last_words: str = "", where: str = "") -> Rows:
    """Return the state of a run as rows of a name and its words; what is not known is left out.

    `where`: the script's line in which the newest incident hung.
    """
    heartbeat = snapshot.get("progress") or {}
    state = str(snapshot["state"])
    since = f", for {duration(snapshot['seconds'])} in all" if "seconds" in snapshot else ""
    attempt = f"; attempt {snapshot['attempt']}" if snapshot.get("attempt", 1) > 1 else ""
    factor = f", {batch(snapshot['factor'])}" if snapshot.get("factor", 1) > 1 else ""
    device = ", on the CPU" if snapshot.get("device") == "cpu" else ""
    phase = str(heartbeat.get("phase", "importing"))
    # The script's own loop: only it knows the phase.
    by_hand = phase == "importing" and heartbeat.get("beats", 0) > 0
    rate = snapshot.get("rates", {}).get("batches")
    lately = f", {rate:.3g} a second" if rate is not None else ""
    done, lost = snapshot.get("batches", 0), snapshot.get("lost", 0.0)
    silent = snapshot.get("silent")
    stalls, crashes = snapshot.get("incidents"), snapshot.get("crashes")
    cost = f", {duration(lost)} lost" if lost else ""
    findings = snapshot.get("findings", [])
    outside = str(snapshot.get("outside", "")) if state == STARTING else ""
    told = outside or f"{state}: {_meaning(state, silent)}"
    is_blind = bool(snapshot.get("outside")) and not heartbeat  # no phase is known
    rows = [
        ("state", f"{told}{since}{attempt}{factor}{device}"),
        ("paused", muted(snapshot)),
        ("next", next_step(snapshot)),
        ("doing", "" if by_hand or is_blind else WHILE.get(phase, phase).removeprefix("while ")),
        ("silent", _silence(snapshot.get("judgement", {}), silent)),
        ("progress", progress(heartbeat, rate)),
        *trainings(snapshot),
        ("batches", f"{count(done, 'batch', 'batches')}{lately}" if done else ""),
        *_resources(snapshot),
        *_time(snapshot),
        *_unsaved(snapshot.get("unsaved", [])),
        ("stalls", f"{count(stalls, 'stall', 'stalls')}{cost}" if stalls else ""),
        ("crashes", f"{count(crashes, 'crash', 'crashes')}{'' if stalls else cost}" if crashes else ""),
        ("effective", _effective(snapshot)),
        ("why", f"{causes.title(findings[0]['cause'], phase=phase)} (most likely)" if findings else ""),
        *failed_notifications(snapshot.get("notifications", [])),
        ("hangs at", "" if is_well(snapshot) else plain(where)),
        ("last words", plain(last_words)),
    ]
    return [(name, text) for name, text in rows if text]


def _meaning(state: str, silent: float | None) -> str:
    if state == RUNNING and silent is not None and silent >= QUIET:
        return f"no batch has ended for {duration(silent)}"
    return MEANING.get(state, state)


def next_step(snapshot: Snapshot) -> str:
    """Return what stallguard does next, and when; "" if nothing is due."""
    due = snapshot.get("next_step") or {}
    text = NEXT.get(due.get("step", ""), "")
    return text.format(time=duration(due["seconds"])) if text else ""


def muted(snapshot: Snapshot, now: dt.datetime | None = None) -> str:
    """Return until when stall handling is paused, as a time of day; "" if it is not.  `now`: local time."""
    left = snapshot.get("muted")
    if not left:
        return ""
    until = (now or dt.datetime.now()) + dt.timedelta(seconds=left)  # noqa: DTZ005 - the clock on the user's wall
    return f"stall handling paused until {until:%H:%M}"


def failed_notifications(records: Iterable[Snapshot]) -> Rows:
    """Return a row for each channel whose newest notification was not accepted."""
    failed = [one for one in records if one.get("why")]
    return _below(
        "not sent",
        (
            f"{one['channel']}, {dt.datetime.fromisoformat(one['at']).astimezone():%H:%M}: {one['why']}"
            for one in failed
        ),
    )


def _below(name: str, texts: Iterable[str]) -> Rows:
    """Return a row for each text, of which the first has the name."""
    return [("" if index else name, plain(text)) for index, text in enumerate(texts)]


def _unsaved(processes: Iterable[Snapshot]) -> Rows:
    """Return a row for each process of which no checkpoint can be written."""
    return _below("checkpoints", (
        f"none now: {one['why']}; a kill now costs {duration(one['seconds'])} of training"
        + ("" if one["kept"] else ": there is none")
        for one in processes
    ))  # fmt: skip


def _effective(snapshot: Snapshot) -> str:
    """Return the effective share of the time so far, and what took the rest; "" if it is not known."""
    times = msgspec.convert(snapshot.get("spent", {}), Spent)
    share, rest = effective(times), messages.ineffective_time(times)
    if share is None:
        return ""
    return f"{messages.percent(share)} of the time" + (f"; the rest: {rest}" if rest else "")


def _silence(judgement: Snapshot, silent: float | None) -> str:
    if silent is None:
        return ""
    limit = judgement.get("threshold", 0.0)
    if limit is None:
        return f"for {duration(silent)}, {NO_LIMIT}"
    allowed = f", {duration(limit)} {'would be' if silent < limit else 'is'} a stall" if limit else ""
    return f"for {duration(silent)}{allowed}"


def silence_bar(snapshot: Snapshot) -> str:
    """Return the silence as a part of what would be a stall, as a bar; empty if no threshold is known."""
    limit = snapshot.get("judgement", {}).get("threshold")
    if not limit or snapshot.get("silent") is None:
        return ""
    full = min(BAR, round(snapshot["silent"] / limit * BAR))
    return f"{'█' * full}{'░' * (BAR - full)}"


def trainings(snapshot: Snapshot) -> Rows:
    """Return a row for each training, if there are several."""
    each = snapshot.get("trainings", [])
    if len(each) <= 1:
        return []
    over, living = [one for one in each if one["how"]], [one for one in each if not one["how"]]
    left_out = len(over[:-OVER_MAX])
    rows = [("trainings", f"{left_out} more are over")] if left_out else []
    for one in over[-OVER_MAX:] + living:
        who = plain(f"{one['command']}, pid {one['pid']}" if one["command"] else f"pid {one['pid']}")
        if one["how"]:
            how = str(one["how"])
            done = count(one["batches"], "batch", "batches")
            parts = [HOW.get(how, how), f"{done} in {duration(one['seconds'])}"]
        else:
            rate, silent = one.get("rate"), one.get("silent")
            came_to = progress(one.get("progress") or {}, rate) or count(one["batches"], "batch", "batches")
            step = one["judgement"].get("step", "off")
            is_quiet = step == "healthy" and silent is not None and silent >= QUIET
            parts = ["not judged yet" if is_quiet else step, came_to]
            parts += [per_second(rate)] if rate is not None else []
            parts += [f"silent for {duration(silent)}"] if silent is not None else []
        rows.append((f"training {one['number']}", f"{who}: {', '.join(parts)}"))
    return rows


def progress(heartbeat: Snapshot, rate: float | None) -> str:
    """Return how far a training is: epoch, batch, what is left, loss; empty where its epochs are not known."""
    if heartbeat.get("epoch", -1) < 0:
        return ""
    of_epochs = f" of {heartbeat['epochs']}" if heartbeat.get("epochs", -1) > 0 else ""
    size = heartbeat.get("batches", -1)
    of_batches = f" of {count(size, '', '').strip()}" if size > 0 else ""
    parts = [
        f"epoch {heartbeat['epoch'] + 1}{of_epochs}",
        f"batch {count(max(heartbeat.get('batch', 0), 0), '', '').strip()}{of_batches}",
    ]
    done, total, micro = _done(heartbeat), heartbeat.get("total", 0), heartbeat.get("micro", 0)
    parts += [f"{count(done, '', '').strip()} of {count(total, '', '').strip()} in all"] if 0 < done <= total else []
    parts += [count(micro, "micro-batch", "micro-batches")] if micro else []
    left = remaining(heartbeat, rate)
    parts += [f"{duration(left)} to go"] if left else []
    parts += [loss] if (loss := _loss(heartbeat)) else []
    return ", ".join(parts)


def _loss(heartbeat: Snapshot) -> str:
    """Return the newest loss: of the epoch that ended last, or the mean of the one that runs."""
    words = loss_words(heartbeat.get("loss"), heartbeat.get("loss_not_finite", ""))
    if not words or heartbeat.get("source") != "callbacks":
        return f"loss {words}" if words else ""
    return f"loss {words} in the last epoch" if heartbeat.get("loss_of_epoch") else f"loss {words} so far in this epoch"


def remaining(heartbeat: Snapshot, rate: float | None) -> float | None:
    """Return the seconds until the last batch of this fit at the present rate; None if it is not known."""
    total = heartbeat.get("total", 0) or max(heartbeat.get("epochs", -1), 0) * max(heartbeat.get("batches", -1), 0)
    return max(0.0, float(total - _done(heartbeat)) / rate) if rate and total else None


def _done(heartbeat: Snapshot) -> int:
    """Return the batches of this fit, those of earlier attempts included."""
    done: int = max(heartbeat["epoch"], 0) * max(heartbeat.get("batches", -1), 0) + max(heartbeat.get("batch", 0), 0)
    return done


def _time(snapshot: Snapshot) -> Rows:
    """Return what makes the training slow, else the places of the script in which it spends its time."""
    slow = [msgspec.convert(one, Bottleneck) for one in snapshot.get("bottlenecks", ())]
    if slow:
        return _below("slow", (sentence("bottleneck", messages.bottleneck(one)) for one in slow))
    spots = [msgspec.convert(one, Spot) for one in snapshot.get("spots", ())]
    watched = snapshot.get("watched", 0.0)
    places = [f"{one.seconds / watched * 100:.0f} % {one.where}" for one in spots if one.where and watched]
    return [("time", plain(", ".join(places)))]


def footprint_of(snapshot: Snapshot) -> int | None:
    """Return the bytes of memory that the training takes; None if they are not known."""
    process = snapshot.get("readings", {}).get("process", {})
    size: int | None = process.get("footprint_bytes") or process.get("rss_bytes")
    return size


def device_words(device: Mapping[str, Any]) -> str:
    """Return what the newest reading of the GPU says, with the critical errors of the run; empty without one."""
    trail = [(0.0, Device(xid_count=0)), (1.0, msgspec.convert(device, Device))]
    did = account(trail, 1.0, 1.0)
    return described(did) if did else ""


def _resources(snapshot: Snapshot) -> Rows:
    """Return what the training takes from the machine, and what is left of it."""
    readings = snapshot.get("readings", {})
    machine, device = readings.get("machine", {}), readings.get("device", {})
    memory = readings.get("memory", {})
    cores, footprint = snapshot.get("rates", {}).get("cpu"), footprint_of(snapshot)
    processor = [f"{cores:.2f} cores"] if cores is not None else []
    processor += [f"{machine['idle']:.0%} of the machine idle"] if machine.get("idle") is not None else []
    held = [f"{quantity(footprint, 'bytes')} of the training"] if footprint else []
    if memory.get("available_bytes") is not None:
        held.append(f"{quantity(memory['available_bytes'], 'bytes')} available")
    held += [f"pressure {memory['pressure']}"] if memory.get("pressure") else []
    swapped = memory.get("swap_used_bytes")
    held += [f"{quantity(swapped, 'bytes')} swapped"] if swapped else []
    emptied = snapshot.get("given_back")
    held += [f"{quantity(emptied, 'bytes')} given back from caches"] if emptied else []
    return [("processor", ", ".join(processor)), ("GPU", device_words(device)), ("memory", ", ".join(held))]
