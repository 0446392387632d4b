"""The incidents of all kept runs: the name of each, how often it was seen, when, and what helped against it.

`incidents.json` in a run's directory has its incidents, each with its name and what came of it, and saves reading its
journal and its stacks again; it is made anew if the journal or the way of naming changed, and can be removed.  A run in
which nothing went wrong needs none.

The same hang has the same short name on each machine and in each night.  A name is a word for the cause, a dash and
six hexadecimal digits: `wait-3fa91c`.  The word is the key of the cause; all causes of an idle wait share the word
`wait`, because which of them is likeliest depends on what a system shows (macOS shows no wait sites of threads) and
on other load.  The digits are those of a hash of three things: the word, the phase of the training, and the place.
What the place is depends on the cause:

- A cause of PLACED has its place in the code: the calls of the main thread, and those of the script's threads for which
  it waits.
- Any other cause (a lack of memory, an error of the GPU, a kill) meets the training at some line by chance.  Its place
  is the known line of the output that says most, the signal or exit code, and the type of a Python exception.

Calls are written so that only a change of the hang changes them:

- A call of the script is the name of its file and of its function: no directory, because the same training starts from
  several; no line, because an edit above it would change the name.  Two hangs in one function have one name.
- Calls in a row inside libraries are one: the package, and the public function that the script called (`keras.fit`,
  `Python.join`).  What lies below differs between versions of Python and of the library; it shows as a class of
  collectors.stacks (waits for a lock, for the library, for a batch), which is the same for all ways to wait there.
- Decorators, comprehensions (Python 3.12 has no frame for them) and stallguard's own frames are left out, and so is
  what began a thread.  Digits in a file's name, and long numbers in a function's, are replaced: notebooks and temporary
  files have new ones in each process.
- Threads have no names, numbers or order.

A loop that never ends moves, so its stacks are taken several times (collectors.collector_registry), and its place is
what they have in common.  A call that takes nearly all of the time of such a loop can still be in all dumps.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path, PurePath

import msgspec

from stallguard import jsontext
from stallguard.collectors import stacks
from stallguard.collectors.stacks import Frame, Thread
from stallguard.core import messages
from stallguard.core.diagnosis import causes, known_problems, signatures
from stallguard.core.diagnosis.causes import title
from stallguard.core.events import Launched, Matched, ProbeConnected
from stallguard.core.text import times
from stallguard.report import evidence_files, incidents, journal_record
from stallguard.report.incidents import RECOVERED, STALL, Incident
from stallguard.report.journal_record import Record
from stallguard.report.narrative import sentence
from stallguard.storage import journal, private, run_files
from stallguard.storage.paths import RunDir

VERSION = 1  # of the way in which names are made; a stored name of another version is made again
DIGITS = 6  # 24 bits: of 100 incidents with one cause, two have the same name by chance once in 3400 homes
UNNAMED = ""
WAIT = "wait"
WAITS = frozenset({
    causes.DEVICE_WAIT, causes.HOST_DEADLOCK, causes.OUTSIDE_WAIT, causes.INPUT_STARVATION, causes.UNKNOWN,
})  # fmt: skip
PLACED = WAITS | {causes.GIL_HELD, causes.BUSY_LOOP, causes.SAVING, causes.COMPILING, causes.EXIT_HANG}
_COMPREHENSIONS = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})
_WRAPPERS = frozenset({"error_handler", "wrapper", "wrapped", "inner", "decorated", "new_func", "decorator"})
_GENERATED = re.compile(r"__autograph_generated_file")
_LONG_NUMBER = re.compile(r"\d{3,}")
_EXCEPTION = re.compile(r"(?:[\w.]*\.)?(\w+)(?:[:,]|$)")


def name(cause: str, phase: str, place: Sequence[str]) -> str:
    """Return the name of an incident; `place`: of `stall_place` or `end_place`."""
    word = WAIT if cause in WAITS else cause
    text = "\n".join((str(VERSION), word, phase if cause in PLACED else "", *place))
    return f"{word}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:DIGITS]}"


def stall_place(threads: Sequence[Thread]) -> tuple[str, ...]:
    """Return where a stalled training stands, a line for each thread that matters; empty without stacks.

    `threads`: of one dump, or what several have in common.
    """
    main = stacks.main_thread(threads)
    if main is None:
        return ()
    others: Iterable[Thread] = ()
    kind = stacks.classify(main.frames)
    if not any(stacks.is_own(frame) for frame in main.frames):  # the script is over, and a thread of it is not
        others = (one for one in threads if any(stacks.is_own(frame) for frame in one.frames))
    elif kind in stacks.WAITS_FOR_OTHERS:
        others = (one for one in threads if stacks.is_called_by_library(one.frames))
    beside = {f"beside: {_line(one.frames)}" for one in others if one is not main}
    return (f"main: {_line(main.frames)}", *sorted(beside))


def end_place(printed: Iterable[str], how: str, exception: str) -> tuple[str, ...]:
    """Return what identifies an end, or a stall whose place in the code is chance.

    `printed`: ids of known lines of the output; `how`: signal or exit code; `exception`: the last line of a traceback.
    """
    known = set(printed)
    said = next(
        (one.id for one in signatures.BY_ID.values() if one.id in known and one.family not in signatures.QUIET), ""
    )
    found = _EXCEPTION.match(exception.strip())
    return (f"printed: {said}", f"ended: {how}", f"exception: {found[1] if found else ''}")


def _line(called: Sequence[Frame]) -> str:
    """Return the calls of a thread as one line, the innermost first."""
    return " < ".join((stacks.classify(called), *_calls(called)))


def _calls(called: Sequence[Frame]) -> Iterator[str]:
    """Yield the calls of a thread, innermost first, equal ones in a row once."""
    shown = [
        one for one in called if evidence_files.package(one) != "stallguard" and one.function not in _COMPREHENSIONS
    ]
    runs = [(own, list(run)) for own, run in groupby(shown, key=stacks.is_own)]
    while runs and not runs[-1][0]:  # what began the thread, or runs the script
        runs.pop()
    texts = [text for own, run in runs for text in (map(_own_call, run) if own else [_library_call(run)])]
    return (text for text, _ in groupby(texts))


def _own_call(frame: Frame) -> str:
    path = PurePath(frame.file)
    plain = path.stem if path.stem not in ("__init__", "__main__") else f"{path.parent.name}.{path.stem}"
    return f"{re.sub(r'[0-9]+', '0', plain)}:{_LONG_NUMBER.sub('0', frame.function)}"


def _library_call(run: Sequence[Frame]) -> str:
    """Return the package and the public function of it that the script called."""
    written = [frame for frame in run if not _GENERATED.search(frame.file)] or run
    called = next((frame for frame in reversed(written) if _is_public(frame)), None)
    if called is not None:
        return f"{evidence_files.package(called)}.{called.function}"
    return evidence_files.package(written[-1])


def _is_public(frame: Frame) -> bool:
    is_private = frame.function.startswith(("_", "<")) and not frame.function.startswith("__")
    return not is_private and frame.function not in _WRAPPERS and not frame.file.startswith("<frozen")


KEPT = "incidents.json"
HEALTHY = 600.0  # seconds that the next attempt has to train without an incident for its remedy to count
GOOD_ENDS = frozenset({"finished", "stopped", "interrupted"})  # states of a run whose last attempt was healthy
ITSELF, SAME, SMALLER, CPU = "itself", "same", "smaller", "cpu"  # remedies
ON_METAL = frozenset({stacks.METAL_WAIT, stacks.MPS_COMPILE})


class Sighting(msgspec.Struct, frozen=True, omit_defaults=True):
    """One incident of one run.  Empty: not known."""

    run: str
    at: float  # when it was noticed, seconds since the epoch
    kind: str  # stall or crash
    name: str = ""  # as `name` makes it; empty: what was kept of it is too little
    cause: str = ""  # key of the likeliest cause
    phase: str = ""  # of the training
    where: str = ""
    number: int = 0  # of its directory of evidence, 0 without one
    attempt: int = 1
    classes: tuple[str, ...] = ()  # what its threads did (collectors.stacks)
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
    kept = jsontext.read(place, _KeptSightings)
    if kept is not None and (kept.version, kept.journal) == (VERSION, state):
        return tuple(msgspec.structs.replace(one, run=run.id) for one in kept.sightings)
    found = tuple(_read(run))
    if end is not None:
        with contextlib.suppress(OSError):  # the next reader makes them again
            private.replace(place, jsontext.exact(_KeptSightings(VERSION, state, found)))
    return found


def _state(path: Path) -> tuple[int, int]:
    facts = []
    for part in journal.parts(path):
        with contextlib.suppress(FileNotFoundError):  # it is pruned or compressed at this moment
            facts.append(part.stat())
    return sum(one.st_size for one in facts), max((one.st_mtime_ns for one in facts), default=0)


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
        return UNNAMED
    if one.kind != STALL or cause not in PLACED:
        how = one.facts.get("how", "") if one.kind != STALL else ""
        return name(cause, phase, end_place(printed, how, exception))
    dumps = map(stacks.parse, evidence_files.dumps(run.incident(one.number)))
    place = stall_place(stacks.common(list(dumps)))
    return name(cause, phase, place) if place else UNNAMED


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


def _came_of(one: Incident, known: Record, later: float | None, *, ended_well: bool) -> tuple[str, bool | None]:
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
    if before is not None and started.slices > before.slices:
        remedy = SMALLER
    if before is not None and started.device != before.device:
        remedy = CPU
    lasted = (later if later is not None else known.last) - began >= HEALTHY
    return remedy, lasted or (ended_well if later is None else False)


SCHEMA = 1
WEEK = 7 * 86_400.0  # seconds
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
REMEDIES = {
    ITSELF: "waiting: it recovered by itself",
    SAME: "a restart with the same batch",
    SMALLER: "a restart with a smaller batch",
    CPU: "a restart on the CPU",
}


class RemedyResults(msgspec.Struct, frozen=True):
    """What followed an incident, and how often the training trained on healthily after it."""

    remedy: str  # itself (it recovered), or a restart: same, smaller (batch), cpu (without the GPU)
    tried: int  # times that the result is known
    helped: int  # times that the next attempt trained on healthily


class KnownReport(msgspec.Struct, frozen=True):
    """A public report that an incident looks like; see core.diagnosis.known_problems."""

    problem: str  # how the report is called
    address: str  # of the report
    what: str  # it describes
    cure: str  # what helped there, by that report
    printed: bool  # the output has its line; false: only the kind of stall is alike


class NamedIncident(msgspec.Struct, frozen=True):
    """All sightings of one incident in the kept runs.  Times: seconds since the epoch."""

    name: str  # empty: of runs that kept too little for a name
    cause: str  # key of the likeliest cause; empty: not known
    count: int  # sightings
    week: int  # sightings in the last seven days
    first: float  # when it was first noticed
    last: float  # when it was last noticed
    last_run: str  # id of the run that had it last
    runs: tuple[str, ...]  # ids of the runs that had it, the oldest first
    where: str  # the script's line at which it last hung; empty: not known
    remedies: tuple[RemedyResults, ...]  # the one that helped most first
    known: tuple[KnownReport, ...]  # public reports that it looks like


class Listing(msgspec.Struct, frozen=True):
    """The incidents of the kept runs, each once, the one that was seen last at the end."""

    schema: int
    incidents: list[NamedIncident]


def named(sightings: Iterable[Sighting], now: float) -> list[NamedIncident]:
    """Return each incident once, the one seen last at the end; those without a name come first, by their cause."""
    groups: defaultdict[tuple[bool, str], list[Sighting]] = defaultdict(list)
    for one in sorted(sightings, key=lambda one: one.at):
        groups[bool(one.name), one.name or one.cause].append(one)
    found = [_summed(group, now) for group in groups.values()]
    return sorted(found, key=lambda one: (bool(one.name), one.last))


def _summed(group: Sequence[Sighting], now: float) -> NamedIncident:
    last = group[-1]
    tried: defaultdict[str, list[bool]] = defaultdict(list)
    for one in group:
        if one.helped is not None:
            tried[one.remedy].append(one.helped)
    remedies = [RemedyResults(remedy, len(results), sum(results)) for remedy, results in tried.items()]
    return NamedIncident(
        name=last.name,
        cause=last.cause,
        count=len(group),
        week=sum(now - one.at <= WEEK for one in group),
        first=group[0].at,
        last=last.at,
        last_run=last.run,
        runs=tuple(dict.fromkeys(one.run for one in group)),
        where=next((one.where for one in reversed(group) if one.where), ""),
        remedies=tuple(sorted(remedies, key=lambda one: (-one.helped, one.tried))),
        known=known(last),
    )


def known(sighting: Sighting) -> tuple[KnownReport, ...]:
    """Return the public reports that an incident looks like."""
    found = known_problems.alike(sighting.cause, sighting.phase, sighting.printed, metal=sighting.metal)
    return tuple(
        KnownReport(one.problem.key, one.problem.address, one.problem.what, one.problem.cure, one.printed)
        for one in found
    )


def known_words(report: KnownReport) -> str:
    """Return a public report as a sentence."""
    facts = {"problem": report.problem, "what": report.what, "cure": report.cure, "address": report.address}
    return sentence("stall.known_problem", facts | {"why": messages.likeness(printed=report.printed)})


def lines(one: NamedIncident, now: float, zone: dt.tzinfo | None = None) -> list[str]:
    """Return an incident as lines: its name and how often, its cause, when, what helped, and what it looks like."""
    week = f" ({one.week} in the last seven days)" if one.count > 1 else ""
    where = f", at {one.where}" if one.where else ""
    seen = f"first {moment(one.first, now, zone)}; last {moment(one.last, now, zone)}, in {one.last_run}"
    helped = remedy_words(one.remedies)
    return [
        f"{one.name or sentence('incident without name', {})}  {times(one.count)}{week}",
        f"{cause_words(one.cause)}{where}",
        seen if one.count > 1 else f"{moment(one.last, now, zone)}, in {one.last_run}",
        *filter(None, [helped]),
        *map(known_words, one.known),
    ]


def seen_words(sighting: Sighting, among: Iterable[Sighting], zone: dt.tzinfo | None = None) -> str:
    """Return how often an incident had been seen by the time of `sighting`; empty if it has no name.

    `among`: all sightings, this one included; `zone`: of the clock that is shown, None for the system's.
    """
    if not sighting.name:
        return ""
    seen = sorted(one.at for one in among if one.name == sighting.name and one.at <= sighting.at)
    lately = sum(sighting.at - at <= WEEK for at in seen)
    if len(seen) <= 1:
        return sentence("incident new", {})
    facts = {"first": day(seen[0], sighting.at, zone), "last": day(seen[-2], sighting.at, zone)}
    if lately > 1:
        return sentence("incident this week", facts | {"ordinal": ordinal(lately)})
    return sentence("incident again", facts | {"ordinal": ordinal(len(seen))})


def remedy_words(remedies: Sequence[RemedyResults]) -> str:
    """Return what followed an incident, and how often it helped; empty if nothing is known."""
    texts = []
    for one in remedies:
        often = "" if one.tried == one.helped == 1 else f" ({one.helped} of {one.tried} times)"
        texts.append(f"{REMEDIES.get(one.remedy, one.remedy)}{often}" if one.helped else "")
    helped = "; ".join(filter(None, texts))
    if helped:
        return sentence("incident helped", {"remedy": helped})
    return sentence("incident unhelped", {"times": times(sum(one.tried for one in remedies))}) if remedies else ""


def cause_words(cause: str) -> str:
    """Return the cause of an incident in words."""
    return title(cause) if cause else sentence("incident without cause", {})


def ordinal(number: int) -> str:
    """Return first, second, ..., 11th, 12th, 21st."""
    if 1 <= number <= len(ORDINALS):
        return ORDINALS[number - 1]
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def moment(at: float, now: float, zone: dt.tzinfo | None = None) -> str:
    """Return a day with the time of day: 18 Nov 04:12."""
    return f"{day(at, now, zone)} {dt.datetime.fromtimestamp(at, zone):%H:%M}"


def day(at: float, now: float, zone: dt.tzinfo | None = None) -> str:
    """Return a day: 18 Nov, with its year if that is not the one of `now`."""
    date, present = dt.datetime.fromtimestamp(at, zone), dt.datetime.fromtimestamp(now, zone)
    return f"{date.day} {date:%b}" + (f" {date.year}" if date.year != present.year else "")
