"""Messages for launchctl's exit codes and for the exit of a job.

Tables and lookups.  The codes are errno values that launchctl passes on; if a code has several causes, the message
names all.
"""

from __future__ import annotations

import signal
from typing import NamedTuple

from stallguard.agent.launchctl_output import PrintedService

OK, ABSENT, BUSY, LOADED, UNCLEAR, DISABLED, NO_SESSION, REFUSED = (
    "ok", "absent", "busy", "loaded", "unclear", "disabled", "no session", "refused",
)  # fmt: skip


class Answer(NamedTuple):
    """`meaning`: for the tables of steps; `words` and `cure`: for the user."""

    meaning: str
    words: str
    cure: str = ""


ANSWERS: dict[int, Answer] = {
    0: Answer(OK, "done"),
    1: Answer(REFUSED, "launchd refused (operation not permitted)", "do not use sudo; the job belongs to you"),
    3: Answer(ABSENT, "launchd has no such job (no such process)"),
    5: Answer(
        UNCLEAR,
        "launchd returned input/output error: the job is still ending, is loaded already, is switched "
        "off, or has a property list with the wrong owner, mode or syntax",
        "check in System Settings > General > Login Items whether stallguard is switched off, then install again",
    ),
    17: Answer(LOADED, "launchd has this job already (file exists)"),
    36: Answer(BUSY, "launchd is still ending the job (operation now in progress)"),
    37: Answer(BUSY, "launchd is still loading or ending the job (operation already in progress)"),
    64: Answer(REFUSED, "launchctl did not understand the command (usage)", "report this with the version of macOS"),
    112: Answer(NO_SESSION, "launchd has no such domain", "log in at the Mac's own screen and try there"),
    113: Answer(ABSENT, "launchd has no such job in this session (could not find service)"),
    119: Answer(
        DISABLED,
        "the job is switched off (service is disabled)",
        "switch it on in System Settings > General > Login Items, then install again",
    ),
    125: Answer(
        NO_SESSION,
        "you have no graphical session (domain does not support specified action)",
        "log in at the Mac's own screen and install there: over SSH a job would have no GPU",
    ),
}  # fmt: skip


def answer(code: int, text: str = "") -> Answer:
    """Return the answer for an exit code; for an unknown one, launchctl's own text."""
    said = " ".join(text.split())
    return ANSWERS.get(code) or Answer(REFUSED, f"launchctl failed with {code}{': ' + said if said else ''}")


# Exit codes of a job.  The training's do not appear: `agent work` ends with 0 for all of them.
EXITS: dict[int, str] = {
    0: "ended normally",
    78: "could not be started (EX_CONFIG): the interpreter, working directory or log folder does not exist",
    125: "stallguard itself failed",
    126: "the interpreter cannot be executed",
    127: "the interpreter was not found",
}
REASONS = {
    "OS_REASON_DYLD": "a library of the interpreter could not be loaded",
    "OS_REASON_TCC": "macOS denied access to a protected folder",
    "OS_REASON_CODESIGNING": "macOS refused the signature of the interpreter",
    "OS_REASON_JETSAM": "macOS ended it because memory ran out",
}


def ending(job: PrintedService) -> str:
    """Return how the job's last run ended; "" if it never ended."""
    if job.reason in REASONS:
        return REASONS[job.reason]
    if job.signal is not None:
        names = {member.value: member.name for member in signal.Signals}
        name = f" ({names[job.signal]})" if job.signal in names else ""
        return f"ended by signal {job.signal}{name}"
    return "" if job.exit_code is None else EXITS.get(job.exit_code, f"ended with {job.exit_code}")
