"""What launchctl prints, as values, and what its exit codes and the exits of a job mean, in words.

The output of `launchctl print` is documented as unstable.  Only lines one level deep count (deeper blocks repeat
`state` and `active count`), every key can be absent, and an argument of the job that contains a line break must not
be taken for a key.  The codes are errno values that launchctl passes on; if a code has several causes, the message
names all.  Pure functions of text.
"""

from __future__ import annotations

import re
import signal
from typing import NamedTuple

import msgspec

_LINE = re.compile(r"(?:\t| {4})([A-Za-z][\w ()]*?) = (.*)")
_FIRST = frozenset({"path", "type", "state", "program", "managed_by"})  # printed above the arguments
_LEADING_NUMBER = re.compile(r"-?\d+")
_TRAILING_NUMBER = re.compile(r"(\d+)\s*$")


class PrintedService(msgspec.Struct, frozen=True):
    """A loaded job.  None or "": launchctl did not print it."""

    state: str = ""  # running, not running, spawn scheduled, exited, ...
    path: str = ""
    pid: int | None = None
    runs: int | None = None
    exit_code: int | None = None  # of the previous run, if the job runs now; None too if it never ended
    signal: int | None = None  # that ended it; there is no exit code then
    reason: str = ""  # OS_REASON_DYLD, OS_REASON_TCC, ...
    exit_timeout: int | None = None  # seconds
    spawn_type: str = ""

    @property
    def running(self) -> bool:
        """Whether the job has a process."""
        return self.state == "running"


def fields(text: str) -> dict[str, str]:
    """Return the lines `key = value` of the first level; of a repeated key, the one that launchd prints."""
    found: dict[str, str] = {}
    for match in map(_LINE.fullmatch, text.splitlines()):
        if match is None or match[2].endswith("{"):
            continue
        key, value = match[1], match[2].strip()
        if key not in found or key not in _FIRST:
            found[key] = value
    return found


def parse(text: str) -> PrintedService:
    """Return the values in the output of `launchctl print gui/UID/LABEL`."""
    said = fields(text)
    return PrintedService(
        state=said.get("state", ""),
        path=said.get("path", ""),
        pid=_number(said.get("pid")),
        runs=_number(said.get("runs")),
        exit_code=_number(said.get("last exit code")),
        signal=_trailing(said.get("last terminating signal", "")),
        reason=said.get("last exit reason", ""),
        exit_timeout=_number(said.get("exit timeout")),
        spawn_type=said.get("spawn type", ""),
    )


def _number(text: str | None) -> int | None:
    match = _LEADING_NUMBER.match(text or "")
    return int(match[0]) if match and len(match[0]) < 20 else None  # noqa: PLR2004 - what a 64-bit number has


def _trailing(text: str) -> int | None:
    match = _TRAILING_NUMBER.search(text)
    return int(match[1]) if match and len(match[1]) < 4 else None  # noqa: PLR2004 - signals have two digits


def parse_disabled(text: str) -> frozenset[str]:
    """Return the labels that `launchctl print-disabled` lists as disabled."""
    return frozenset(re.findall(r'^\s*"([^"]+)" => (?:disabled|true)\s*$', text, re.MULTILINE))


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
