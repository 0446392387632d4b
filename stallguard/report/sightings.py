"""The incidents of all kept runs, each with its name and what came of it: made once a run, and kept beside it.

`incidents.json` in a run's directory saves reading its journal and its stacks again; it is made anew if the journal or
the way of naming changed, and can be removed.  A run in which nothing went wrong needs none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from stallguard import jsontext
from stallguard.collectors import frames, stacks
from stallguard.core.diagnosis import signatures
from stallguard.core.events import Launched, Matched, ProbeConnected
from stallguard.errors import UNREADABLE
from stallguard.report import evidence_files, incident_name, incidents, journal_record
from stallguard.report.incidents import RECOVERED, STALL, Incident
from stallguard.report.journal_record import Record
from stallguard.storage import journal, private, run_files
from stallguard.storage.paths import RunDir

KEPT = "incidents.json"
SCHEMA = 1
HEALTHY = 600.0  # seconds that the next attempt has to train without an incident for its remedy to count
GOOD_ENDS = frozenset(
    {"finished", "stopped", "interrupted"}
)  # states of a run whose last attempt was healthy
ITSELF, SAME, SMALLER, CPU = "itself", "same", "smaller", "cpu"  # remedies
ON_METAL = frozenset({frames.METAL_WAIT, frames.MPS_COMPILE})


class Sighting(msgspec.Struct, frozen=True, omit_defaults=True):
    """One incident of one run.  Empty: not known."""

    run: str
    at: float  # when it was noticed, seconds since the epoch
    kind: str  # stall or crash
    name: str = ""  # as incident_name makes it; empty: what was kept of it is too little
    cause: str = ""  # key of the likeliest cause
    phase: str = ""  # of the training
    where: str = ""
    number: int = 0  # of its directory of evidence, 0 without one
    attempt: int = 1
    classes: tuple[str, ...] = ()  # what its threads did (collectors.frames)
    printed: tuple[str, ...] = ()  # ids of the known lines that the attempt had printed
    metal: bool = False  # it trained on an Apple GPU
    remedy: str = ""  # what came next: itself (it recovered), same (a restart), smaller, cpu
    helped: bool | None = None  # the next attempt trained on healthily; null: not known


class _KeptSightings(msgspec.Struct):
    version: int
    journal: tuple[int, int]  # bytes and time of the last change (ns)
    sightings: tuple[Sighting, ...]


def of_runs(runs: Iterable[RunDir]) -> list[Sighting]:
    """Return the incidents of `runs`, the oldest first; trials of find-batch and compare have none."""
    found = [one for run in runs if not run.is_trial for one in of_run(run)]
    return sorted(found, key=lambda one: one.at)


def of_run(run: RunDir) -> tuple[Sighting, ...]:
    """Return the incidents of a run in order."""
    end = run_files.outcome(run)
    if end is not None and (end.code, end.incidents, end.attempts) == (0, 0, 1):
        return ()  # nothing went wrong
    place = run.path / KEPT
    state = _state(run.journal)
    with contextlib.suppress(OSError, *UNREADABLE):
        kept = msgspec.json.decode(place.read_bytes(), type=_KeptSightings)
        if (kept.version, kept.journal) == (incident_name.VERSION, state):
            return tuple(msgspec.structs.replace(one, run=run.id) for one in kept.sightings)
    found = tuple(_read(run))
    if end is not None:
        _keep(place, _KeptSightings(incident_name.VERSION, state, found))
    return found


def _state(path: Path) -> tuple[int, int]:
    facts = []
    for part in journal.parts(path):
        with contextlib.suppress(
            FileNotFoundError
        ):  # the run is pruned, or the part compressed, at this moment
            facts.append(part.stat())
    return sum(one.st_size for one in facts), max((one.st_mtime_ns for one in facts), default=0)


def _keep(place: Path, kept: _KeptSightings) -> None:
    """Write the incidents of a run that is over, whole or not at all; without them the next reader makes them again."""
    draft = place.with_name(f".{KEPT}")
    with contextlib.suppress(OSError):
        private.write(draft, jsontext.exact(kept))
        draft.replace(place)


def _read(run: RunDir) -> Iterator[Sighting]:
    known = journal_record.read(run.journal, samples=False)
    found = incidents.noticed(known)
    ended_well = run_files.state(run) in GOOD_ENDS
    for place, one in enumerate(found):
        later = found[place + 1].noticed if place + 1 < len(found) else None
        remedy, helped = _came_of(one, known, later, ended_well=ended_well)
        phase, cause = one.facts.get("phase", ""), one.findings[0].cause if one.findings else ""
        printed, exception = _printed(known, one)
        versions = (what.versions for _, what in known.happened if isinstance(what, ProbeConnected))
        metal = "metal_device" in printed or any("tensorflow-metal" in each for each in versions)
        yield Sighting(
            run=run.id, at=one.noticed, kind=one.kind, name=_name(run, one, cause, phase, printed, exception),
            cause=cause, phase=phase, where=one.where, number=one.number, attempt=one.attempt, classes=one.classes,
            printed=printed, metal=metal or not ON_METAL.isdisjoint(one.classes), remedy=remedy, helped=helped,
        )  # fmt: skip


def _name(run: RunDir, one: Incident, cause: str, phase: str, printed: Sequence[str], exception: str) -> str:
    """Return the name of an incident, UNNAMED if its cause or its place is not known."""
    if not cause:
        return incident_name.UNNAMED
    if one.kind != STALL or cause not in incident_name.PLACED:
        how = one.facts.get("how", "") if one.kind != STALL else ""
        return incident_name.name(cause, phase, incident_name.end_place(printed, how, exception))
    dumps = map(stacks.parse, evidence_files.dumps(run.incident(one.number)))
    place = incident_name.stall_place(stacks.common(list(dumps)))
    return incident_name.name(cause, phase, place) if place else incident_name.UNNAMED


def _printed(known: Record, one: Incident) -> tuple[tuple[str, ...], str]:
    """Return which known lines the attempt had printed by then, and the last line of a traceback."""
    ids: dict[str, None] = {}
    exception = ""
    for at, what in known.happened:
        if at > one.noticed + 1.0:  # a line can take a moment from the script to the journal
            break
        if isinstance(what, Launched) and what.attempt <= one.attempt:
            ids, exception = {}, ""
        elif isinstance(what, Matched):
            ids[what.signature] = None
            exception = what.line if what.signature == signatures.TRACEBACK else exception
    return tuple(ids), exception


def _came_of(
    one: Incident, known: Record, later: float | None, *, ended_well: bool
) -> tuple[str, bool | None]:
    """Return the remedy of an incident, and whether the training trained on healthily after it."""
    if one.outcome == RECOVERED:
        return ITSELF, True
    starts = [(at, what) for at, what in known.happened if isinstance(what, Launched)]
    before = next((what for _, what in reversed(starts) if what.attempt == one.attempt), None)
    after = next(((at, what) for at, what in starts if what.attempt == one.attempt + 1), None)
    if after is None:
        return "", None
    began, started = after
    remedy = SAME
    if before is not None and started.factor > before.factor:
        remedy = SMALLER
    if before is not None and started.device != before.device:
        remedy = CPU
    lasted = (later if later is not None else known.last) - began >= HEALTHY
    return remedy, lasted or (ended_well if later is None else False)
