"""The attempts of a run and the programs in each: their beginning, their end, and how far their trainings came.

A program is known by its process' number; one that replaced itself begins to count anew.  A training is a place
(probe/process_key.py), which the next attempt finds again.  Pure: a record in, values out.  This module must not judge
why an attempt ended; that is in incidents.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import msgspec

from stallguard.core import advisories
from stallguard.core.actions import Announce
from stallguard.core.events import Exited, Failed, Heartbeat, Launched, ProbeConnected, ProbeNote, ProcessLeft
from stallguard.core.history import BROKEN_LOSS
from stallguard.report.journal_record import Record, ago

KERAS = "callbacks"  # the source of beats in an epoch, whose loss is a mean until its end
EPOCH = "epoch"  # the kind of the probe's notes with results (probe/frameworks/keras.py)
PLAIN = re.compile(r"[A-Za-z][\w./-]{0,39}\Z", re.ASCII)  # a name of a result


class Counts(msgspec.Struct, omit_defaults=True):
    """How far something came.  Times: seconds since the epoch, None if it did not happen.

    `first_beat`, `last_beat`: ends of its first and last batch; `reached`: the farthest batch of the whole
    training that it came to, `resumed_at`: the batch that it began with; None if epochs are not known.
    """

    batches: int = 0
    first_beat: float | None = None
    last_beat: float | None = None
    epoch: int | None = None
    epochs: int | None = None
    resumed_at: int | None = None
    reached: int | None = None
    saves: int = 0
    first_loss: float | None = None  # of the first epoch, if Keras reported one; else the first that was read
    loss: float | None = None  # of the last epoch, if Keras reported one; else the last that was read
    loss_of_epoch: bool = False  # the two are Keras' own results of epochs
    loss_so_far: bool = False  # the last loss is the mean of an epoch that has not ended
    loss_not_finite: str = ""  # nan, inf or -inf: the last loss, and `loss` is None
    broken_loss: str = ""  # since when the last loss is not finite, as a sentence


class Program(msgspec.Struct):
    """One program of an attempt; pid 0: its pid is not known.  `how`: as in events.ProcessLeft."""

    attempt: int
    pid: int
    began: float
    last: float
    counts: Counts = msgspec.field(default_factory=Counts)
    trains: bool = False
    place: str = ""
    command: str = ""
    how: str = ""
    changes: int = 0


class TrainingRow(msgspec.Struct, omit_defaults=True):
    """A training over all attempts.  `seconds`: in which it was there; `how`: the end of its last program."""

    command: str
    pid: int
    attempts: int
    batches: int
    seconds: float
    how: str = ""
    epoch: int | None = None
    epochs: int | None = None
    loss: float | None = None
    loss_not_finite: str = ""  # as in Counts


def programs(record: Record) -> list[Program]:
    """Return the programs in the order of their first heartbeats."""
    found: list[Program] = []
    present: dict[tuple[int, int], Program] = {}
    for at, heartbeat in record.heartbeat:
        key = (heartbeat.attempt, heartbeat.pid)
        one = present.get(key)
        if one is None or (heartbeat.pid and heartbeat.changes < one.changes):
            one = present[key] = Program(heartbeat.attempt, heartbeat.pid, at, at)
            found.append(one)
        one.last, one.changes = at, heartbeat.changes
        one.trains = one.trains or heartbeat.trains or heartbeat.beats > 0
        _count(one.counts, one.began, at, heartbeat)
    # What the programs said of themselves, and how they left.
    noted: set[int] = set()
    each: dict[tuple[int, int], list[Program]] = {}
    for one in found:
        each.setdefault((one.attempt, one.pid), []).append(one)
    for at, what in record.happened:
        if isinstance(what, Exited):
            for one in found:
                if one.attempt == what.attempt and not one.how:
                    one.how = "exited"
        if not isinstance(what, ProbeNote | ProbeConnected | ProcessLeft):
            continue
        mine = each.get((what.attempt, what.pid))
        if not mine:
            continue
        one = next((one for one in reversed(mine) if one.began <= at), mine[0])
        if isinstance(what, ProcessLeft):
            one.how = what.how
        elif isinstance(what, ProbeConnected):
            one.place, one.command = what.place, what.command
        elif what.kind == BROKEN_LOSS and one.counts.loss_not_finite:
            one.counts.broken_loss = what.text
        elif what.kind == EPOCH and (loss := epoch_values(what.facts).get("loss")) is not None:
            _epoch_ended(one.counts, loss, is_first=id(one) not in noted)
            noted.add(id(one))
    return found


def _count(counts: Counts, began: float, at: float, heartbeat: Heartbeat) -> None:
    if heartbeat.beats > counts.batches:
        counts.last_beat = max(began, ago(at, heartbeat.at, heartbeat.beat_at))
        counts.first_beat = counts.first_beat or counts.last_beat
    counts.batches = max(counts.batches, heartbeat.beats)
    counts.saves = max(counts.saves, heartbeat.saves)
    counts.loss_not_finite = heartbeat.loss_not_finite
    if heartbeat.loss_not_finite:
        counts.loss, counts.loss_so_far = None, False
    elif heartbeat.loss is not None and not (
        counts.loss_of_epoch and not heartbeat.loss_of_epoch and heartbeat.source == KERAS
    ):
        is_first = counts.first_loss is None or heartbeat.loss_of_epoch > counts.loss_of_epoch
        counts.first_loss = heartbeat.loss if is_first else counts.first_loss
        counts.loss, counts.loss_of_epoch = heartbeat.loss, heartbeat.loss_of_epoch
        inside = heartbeat.source == KERAS and not heartbeat.loss_of_epoch
        counts.loss_so_far = inside and 0 <= heartbeat.batch < heartbeat.batches
    if heartbeat.epoch >= 0:
        counts.epoch = heartbeat.epoch
        counts.epochs = heartbeat.epochs if heartbeat.epochs > 0 else None
    if heartbeat.epoch >= 0 and heartbeat.batches > 0 and heartbeat.beats > 0:
        here = heartbeat.epoch * heartbeat.batches + min(max(heartbeat.batch, 0), heartbeat.batches)
        if counts.resumed_at is None:
            counts.resumed_at = max(0, here - heartbeat.fit_beats)
        counts.reached = max(counts.reached or 0, here)


def _epoch_ended(counts: Counts, loss: float, *, is_first: bool) -> None:
    """Take the loss of an epoch from its note: the record of a short epoch can be missing."""
    if is_first:
        counts.first_loss = loss
    if not counts.loss_of_epoch and counts.loss is not None:
        counts.loss, counts.loss_so_far = loss, False


def epoch_values(facts: Mapping[str, str]) -> dict[str, float]:
    """Return the results of an epoch from the facts of its note: "loss=0.31 val_loss=0.42"."""
    found = {}
    for word in facts.get("values", "").split():
        name, _, number = word.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            continue
        if PLAIN.match(name) and math.isfinite(value):
            found[name] = value
    return found


def together(trained: Sequence[Program]) -> Counts:
    """Return the sums of programs side by side or one after the other; for several, not how far they came."""
    if len(trained) == 1:
        return trained[0].counts
    each = [one.counts for one in trained]
    firsts = [one.first_beat for one in each if one.first_beat is not None]
    lasts = [one.last_beat for one in each if one.last_beat is not None]
    return Counts(
        batches=sum(one.batches for one in each),
        first_beat=min(firsts, default=None),
        last_beat=max(lasts, default=None),
        saves=sum(one.saves for one in each),
    )


def trainings(found: Sequence[Program]) -> list[TrainingRow]:
    """Return the trainings in the order in which they began; empty if there was only one."""
    places: dict[str, list[Program]] = {}
    for one in found:
        if one.trains and one.pid:
            places.setdefault(one.place or str(one.pid), []).append(one)
    if len(places) <= 1:
        return []
    rows = []
    for each in places.values():
        last = each[-1]
        rows.append(TrainingRow(
            command=last.command, pid=last.pid, attempts=len({one.attempt for one in each}),
            batches=sum(one.counts.batches for one in each), seconds=sum(one.last - one.began for one in each),
            how=last.how, epoch=last.counts.epoch, epochs=last.counts.epochs, loss=last.counts.loss,
            loss_not_finite=last.counts.loss_not_finite,
        ))  # fmt: skip
    return rows


BEGINNING = {"fit": "1", "epoch": "0", "batch": "0"}  # of a note on a training that goes on from there


class AttemptRow(Counts, kw_only=True, omit_defaults=True):
    """One start of the command, with the sums of what its trainings came to.  Times: as in Counts."""

    number: int
    began: float
    pid: int = 0
    factor: int = 1
    device: str = "default"
    resumed: bool = False
    ended: float | None = None
    code: int | None = None
    trainings: int = 0


def attempts(record: Record, found: Sequence[Program] | None = None) -> list[AttemptRow]:
    """Return the attempts, the first one first.  `found`: the programs of the record, if they are known."""
    tries: dict[int, AttemptRow] = {}
    for at, event in record.happened:
        if isinstance(event, Launched):
            tries[event.attempt] = AttemptRow(
                number=event.attempt, began=at, pid=event.pid, factor=event.slices, device=event.device,
                resumed=event.resumed,
            )  # fmt: skip
        elif isinstance(event, ProbeNote) and event.attempt in tries:
            tries[event.attempt].factor = advisories.noted_slices(event) or tries[event.attempt].factor
            if all(event.facts.get(name) == value for name, value in BEGINNING.items()):
                tries[event.attempt].resumed = False  # it was given checkpoints, and could not use them
        elif isinstance(event, Announce) and event.message == "batch.whole" and tries:
            tries[max(tries)].factor = advisories.noted_slices(event) or tries[max(tries)].factor  # of a loop
        elif isinstance(event, Exited | Failed) and event.attempt in tries:
            known = isinstance(event, Failed) or event.known
            tries[event.attempt].ended, tries[event.attempt].code = at, event.code if known else None
    each: dict[int, list[Program]] = {}
    for one in programs(record) if found is None else found:
        each.setdefault(one.attempt, []).append(one)
    for number, started in each.items():
        made = tries.setdefault(number, AttemptRow(number=number, began=started[0].began))
        trained = [one for one in started if one.trains] or started[-1:]
        counts = together(trained)
        for name in Counts.__struct_fields__:
            setattr(made, name, getattr(counts, name))
        made.first_beat = made.first_beat and max(made.began, made.first_beat)
        made.trainings = sum(one.trains for one in trained)
    return sorted(tries.values(), key=lambda attempt: attempt.number)


def repeated(all_attempts: Sequence[AttemptRow]) -> int | None:
    """Return how many batches were trained a second time after restarts; None if it is not known."""
    total, before = 0, None
    for attempt in all_attempts:
        if before is not None and attempt.batches:
            if attempt.resumed_at is None:
                return None
            total += max(0, before - attempt.resumed_at)
        if attempt.reached is not None:
            before = max(before or 0, attempt.reached)
        elif attempt.batches:
            return None if len(all_attempts) > 1 else 0
    return total
