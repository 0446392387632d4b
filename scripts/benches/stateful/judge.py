"""The verdict on a case: from what its undisturbed run and its attempts left.

same      the results are those of the undisturbed run, after a resume or from the beginning
said      they differ, and the resumed attempt said so
OVER      they differ, though it said that it starts over: from the beginning the results must be those of the first
SILENT    they differ without a word
CRASH     the resumed attempt ended by an error that the undisturbed run does not have, or did not end; or an error
          of the probe, because of which no checkpoint was written
own       so does the script if it is started again after the kill without stallguard: a file that is half written,
          one to which an attempt appended that was killed before its fit began
unsteady  two undisturbed runs differ, or a seeded script starts with other values at each start, as an optimizer of
          Keras on torch with a GPU does, whose memory is not set: the case proves nothing
unfit     the undisturbed run fails: Keras does not take such a thing at such a place
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from exactness.statements import BEYOND, INEXACT, Statement, counting
from stallguard.probe.checkpoint import announcements

from .cases import Case, parsed
from .things import catalog

SAME, SAID, OVER, SILENT, CRASH = "same", "said", "OVER", "SILENT", "CRASH"
OWN, UNSTEADY, UNFIT = "own", "unsteady", "unfit"
FAILURES = (OVER, SILENT, CRASH)
_RESUMED = re.compile("resuming from|goes on (from|in|at|after)")
_OVER = re.compile("starts over|begins at")
_REFUSED = "stallguard.track cannot keep object"  # an error at once
_AS_MADE = announcements.AS_MADE % ""
_PIPELINE = re.compile(r"(data\.\S+|__main__\.pipe)<held_| and \d+ more|input pipeline")
_HOLDS = announcements.HOLDS_NOW.partition("%d")[2].partition("%")[0]  # of an object that could be kept at first
_NOT_WRITTEN = announcements.NOT_WRITTEN.partition("%")[0]
_FILE = re.compile(r"(\S+\.\w+) \(")
_STAYS = announcements.STAYED % ""
_OTHER_START = announcements.CONTINUES.partition("%d ")[2]


class Verdict(NamedTuple):
    """Of a case.  `things`: names at places whose state differs; `resumed`: it went on inside the training."""

    kind: str
    case: Case
    detail: str = ""
    things: tuple[tuple[str, str], ...] = ()
    resumed: bool = False
    over: bool = False
    kills: int = 0


def judged(found: dict[str, Any]) -> Verdict:
    case, reference = parsed(found["spec"]), found["reference"]
    if reference["code"] != 0:
        return Verdict(UNFIT, case, _last(reference))
    attempts = found["attempts"]
    last = attempts[-1]
    kills = len(attempts) - 1
    said = [text for one in attempts for _, text in one["said"]]
    resumed = any(_RESUMED.search(text) for text in said)
    over = any(_OVER.search(text) for text in said)
    rest = (resumed, over, kills)
    aside = [text for one in attempts for kind, text in one["said"] if kind in ("aside", "trouble")]
    aside += [text for text in said if text.startswith(_NOT_WRITTEN)]
    refused = last["code"] == 1 and _REFUSED in last.get("err", "")
    if refused or (last["code"] == 0 and any(_HOLDS in text for text in aside)):
        return Verdict(SAID, case, _last(last), case.things, *rest)
    if last["code"] != 0 or aside:
        detail = aside[0] if aside else _last(last)
        own = not aside and found.get("restarted") and _last(found["restarted"]) == _last(last)
        return Verdict(OWN if own else CRASH, case, detail, case.things, *rest)
    differing = [name for name in reference["results"] if last["results"].get(name) != reference["results"][name]]
    places = {str(number): pair for number, pair in enumerate(case.things)}
    random = {number for number, (name, _) in places.items() if catalog()[name].is_random}
    unknown = {"pipe", *random} if any(places[one][1] == "pipeline" for one in random) else random
    differing = [name for name in differing if name not in unknown]
    again = found.get("again")
    if differing and again and any(again["results"].get(one) != reference["results"][one] for one in differing):
        return Verdict(UNSTEADY, case, ", ".join(differing))
    if differing and any(_OTHER_START in text for text in said):
        return Verdict(UNSTEADY, case, "it starts with other values")
    lost = [number for number in sorted(random) if _is_past_lost(number, attempts)]
    differing += [one for one in lost if one not in differing]
    if not differing:
        return Verdict(SAME, case, "", (), *rest)
    things = tuple(places[one] for one in differing if one in places)
    if "pipe" in differing:
        things += tuple(pair for pair in case.things if pair[1] == "pipeline")
    things = things or case.things
    detail = ", ".join(differing)
    if _appended_before(attempts, things):
        return Verdict(OWN, case, detail, things, *rest)
    words = counting([Statement(0, 0.0, kind, text) for one in attempts for kind, text in one["said"]], sliced=False)
    inexact = [one.text for one in words if one.kind == INEXACT]
    named = [one.text for one in words if one.kind == BEYOND]
    named += [text for text in said if _AS_MADE in text]
    is_named = named and all(_is_named(one, case, named) for one in differing if one in places or one == "pipe")
    if inexact or is_named:
        # A start over does not undo what was done to a file in place, and the beginning of the training names that.
        # The data alone differ if no thing does.
        held = [one for one in differing if one in places] or ["pipe"]
        stays = all(_files_are_named(one, case, named) for one in held)
        went_on = is_named and any(_RESUMED.search(text) for _, text in last["said"])  # an earlier one began anew
        only_over = (
            inexact and not stays and not went_on and all(_OVER.search(text) and _STAYS not in text for text in inexact)
        )
        return Verdict(OVER if only_over else SAID, case, (inexact or named)[0], things, *rest)
    return Verdict(SILENT, case, detail, things, *rest)


def _last(attempt: dict[str, Any]) -> str:
    """Return how an attempt ended: of a traceback the line of the error, which Keras follows with the arguments."""
    lines = [line for line in attempt.get("err", "").splitlines() if line.strip()]
    frames = [at for at, line in enumerate(lines) if line.startswith(("  File ", "    "))]
    words = [line for line in lines[frames[-1] + 1 :] if not line.startswith(" ")][:1] if frames else []
    end = "did not end" if attempt["code"] is None else f"exit code {attempt['code']}"
    return f"{end}: {(words or lines[-1:] or ['no words'])[0].strip()[:160]}"


def _is_past_lost(number: str, attempts: list[dict[str, Any]]) -> bool:
    """Return whether a thing of random values does not hold, after a resume, what it held before.

    Each attempt notes its whole list at each change.  What the first note of an attempt has before its own value must
    be what an earlier attempt noted at that length.
    """
    known: dict[int, list[Any]] = {0: []}
    for attempt in attempts:
        rows = [row for name, row in attempt["past"] if name == number]
        if rows and rows[0][:-1] != known.get(len(rows[0]) - 1):
            return True
        known.update((len(row), row) for row in rows)
    return False


def _appended_before(attempts: list[dict[str, Any]], things: tuple[tuple[str, str], ...]) -> bool:
    """Return whether an attempt was killed before its fit began, and a thing that differs is in a file."""
    in_file = any("read(" in catalog()[name].look or "open(" in catalog()[name].look for name, _ in things)
    return in_file and not all(one.get("began", True) for one in attempts[:-1])


def _is_named(number: str, case: Case, texts: list[str]) -> bool:
    """Return whether a sentence names a thing as what a checkpoint lacks, by what holds it."""
    if _files_are_named(number, case, texts):
        return True
    if number == "pipe":
        return any(_PIPELINE.search(text) for text in texts)
    name, place = case.things[int(number)]
    names = {"global": f"THING_{number}", "model": f"held_{number}", "closure": "held"}
    # What a class of the script has is named by the class, a function or a class that is the thing by its own name.
    found = (names.get(place, "held"), "more", "class __main__.", f"global __main__.{catalog()[name].make} ")
    return any(word in text for text in texts for word in found)


def _files_are_named(number: str, case: Case, texts: list[str]) -> bool:
    """Return whether a sentence names the file that a thing is in, as "kept.dat (changed in place)"."""
    names = (
        [name for name, place in case.things if place == "pipeline"]
        if number == "pipe"
        else [case.things[int(number)][0]]
    )
    code = " ".join(catalog()[name].make + catalog()[name].setup for name in names)
    files = {Path(file).name for text in texts for file in _FILE.findall(text)}
    return any(f"'{file}'" in code for file in files)
