"""What stallguard said of a run, and whether it was said where a user looks, and in time.

A sentence counts if it says what is not exact: a note of the kind "inexact"; a note of a resume that says more than
where the training goes on, or of slices that says more than that nothing changes; or what the hello says is beyond
the reach of a resume.  It has to stand on standard error, in the journal and in the report.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from stallguard.core.events import ProbeConnected, ProbeNote
from stallguard.storage import journal

INEXACT, UNSAVED = "inexact", "unsaved"
BEYOND = "beyond"  # of a sentence in the hello
# These only say where the training goes on, or that nothing changes.
ROUTINE = re.compile(
    r"goes on (in|at|from) epoch|goes on (at the beginning of|from step|after iteration) "
    r"|^resuming from the [^()]* checkpoint \([^()]*\)$"
    r"|was finished before|as if whole \(compared on \d+ of its rows\)$"
    r"|^the script's own load\(\) reads|the previous one is used"
)
OF_SLICES = ("micro", "whole")  # kinds of notes: batches are cut, or stay whole
_WHOLE = re.compile(r"stays? whole|slices")
_OF_A_RESUME = re.compile(r"resum|start(s|ed)? over|checkpoint")
# What has to be said of an edit, by its kind.
OF_EDIT = {
    "comment": r"script.*(chang|edit|differ|other)",
    "learning rate": r"learning rate",
    "optimizer": r"optimizer",
    "layers": r"model|layer|variable|weight|shape",
    "epochs": r"script.*(chang|edit|differ|other)|epochs",
}


class Statement(NamedTuple):
    """A sentence of the journal.  `at`: seconds on the machine's monotonic clock."""

    attempt: int
    at: float
    kind: str
    text: str


def all_in(run: Path | None) -> list[Statement]:
    """Return every sentence of a run's probes, oldest first; those of the hello once an attempt."""
    found: list[Statement] = []
    for event in journal.events(run / "journal.jsonl") if run else ():
        if isinstance(event, ProbeNote):
            found.append(Statement(event.attempt, event.at, event.kind, event.text))
        elif isinstance(event, ProbeConnected):
            known = {(one.attempt, one.text) for one in found}
            beyond = [Statement(event.attempt, event.at, BEYOND, text) for text in event.beyond]
            found += [one for one in beyond if (one.attempt, one.text) not in known]
    return found


def counting(found: list[Statement], *, sliced: bool) -> list[Statement]:
    """Return those that say what is not exact.  `sliced`: about a training in slices, not only about a resumed one."""
    return [one for one in found if _counts(one, sliced)]


def _counts(one: Statement, sliced: bool) -> bool:
    if one.kind == INEXACT or (one.kind == UNSAVED and "lacks the state" in one.text):
        return True
    if ROUTINE.search(one.text):
        return False
    if one.kind == BEYOND:
        # Those of slices say that batches stay whole: no difference.
        return bool(_OF_A_RESUME.search(one.text))
    return one.kind == "resume" or (sliced and one.kind == "micro")


def of_a_resume(one: Statement) -> bool:
    """Return whether it says why a training is not resumed."""
    return one.kind in (INEXACT, UNSAVED) or bool(_OF_A_RESUME.search(one.text) and not ROUTINE.search(one.text))


def without_word_of_slices(run: Path | None) -> list[int]:
    """Return the attempts that were asked for slices, and of which nothing says whether batches are cut or whole."""
    asked: set[int] = set()
    answered = {one.attempt for one in all_in(run) if one.kind in OF_SLICES or _WHOLE.search(one.text)}
    attempt = 0
    for entry in journal.read(run / "journal.jsonl") if run else ():
        if entry.line.event == "attempt.started":
            attempt = entry.line.attempt
            asked |= {attempt} if msgspec.json.decode(entry.raw).get("factor", 1) > 1 else set()
        elif entry.line.event in ("batch.smaller", "batch.whole"):
            answered.add(attempt)  # said by stallguard itself: the script trains in a loop of its own
    return sorted(asked - answered)


def of_edit(kind: str, run: Path | None, err: str) -> bool:
    """Return whether the journal and standard error speak of an edit of that kind."""
    pattern = re.compile(OF_EDIT[kind], re.IGNORECASE)
    noted = any(pattern.search(one.text) for one in all_in(run) if one.kind != BEYOND)
    spoken = any(pattern.search(line) for line in err.splitlines() if line.startswith("stallguard: "))
    return noted and spoken


def report_of(run: Path, home: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "stallguard", "report", run.name], check=False, capture_output=True, text=True,
        env={**os.environ, "STALLGUARD_HOME": str(home), "COLUMNS": "200"},
    )  # fmt: skip
    return done.stdout


def lacking(one: Statement, err: str, report: str) -> str:
    """Return where a sentence of the journal is missing, "" if it is everywhere."""
    wanted = _plain(one.text)
    places = {"on standard error": err, "in the report": report}
    return " and ".join(place for place, text in places.items() if wanted not in _plain(text))


def _plain(text: str) -> str:
    """Return a text as it compares: lines joined, without the capital or the stop that a report gives a sentence."""
    return re.sub(r"\W+", " ", text.replace("stallguard:", " ")).strip().lower()
