"""What was seen of jobs: a start at its hour, what a job finds around it, an install over ssh, an end by launchd.

Must not ask anything.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from mac.table import Row, judged, unknown
from stallguard.agent.launchd import OPEN_FILES

ON_TIME = 60.0  # seconds by which a start can be late, and a service manager can be early
NEEDED = ("HOME", "LANG", "PATH", "STALLGUARD_HOME", "USER")
MAC_HAS = ("TMPDIR", "SSH_AUTH_SOCK", "XPC_SERVICE_NAME")  # which of them a job has is recorded
CANNOT_RUN = 126  # exit code of an install that is refused


def at_its_hour(due: dt.datetime, started: str, state: str, batches: int) -> Row:
    """Whether a job started at its hour.  `started`: what its state says; `state`: of its run, by `morning`."""
    check, expected = "a start at its hour", "a job starts at its hour, and `morning` reports it"
    if not started:
        return judged(check, holds=False, figure=f"due at {due:%H:%M}; no start recorded", means=expected,
                      otherwise="the night does not happen")  # fmt: skip
    late = (dt.datetime.fromisoformat(started) - due).total_seconds()
    figure = f"due at {due:%H:%M}, {late:+.0f} s; morning: {state or 'nothing'}, {batches} batches"
    return judged(check, abs(late) <= ON_TIME and state == "finished", figure, expected,
                  "it starts at another time, or `morning` does not report it")  # fmt: skip


def around(facts: Mapping[str, Any], home: str, platform: str) -> Iterator[Row]:
    """Yield what a job finds around it: variables, open files, session.  `home`: where it was installed from."""
    if not facts:
        yield unknown("a job's environment", "the job did not write what it found")
        return
    names = set(facts["names"])
    without = sorted(set(NEEDED) - names)
    more = [name for name in MAC_HAS if name in names]
    figure = f"{len(names)} variables, PATH of {facts['folders']} folders; has {', '.join(more) or 'none of the Mac'}"
    yield judged("a job's environment", not without and facts["cwd"] == home,
                 f"{figure}; without {', '.join(without) or 'nothing'}; umask {facts['umask']:03o}",
                 "a job has the variables that a training needs, and its directory",
                 f"a training starts without them, in {facts['cwd']}")  # fmt: skip
    if platform != "darwin":
        return
    yield judged("ulimit -n in a job", facts["files"] >= OPEN_FILES, f"{facts['files']}",
                 f"launchd grants {OPEN_FILES} open files", "many shards are too many files")  # fmt: skip
    yield judged("a job's session", facts["session"] == "Aqua", facts["session"] or "no answer",
                 "a job is in the graphical session, which Metal needs", "Metal can be refused there")  # fmt: skip


def unreachable(code: int, text: str) -> Row:
    """Return the row of a machine that cannot be reached by ssh without a password."""
    why = " ".join(text.split())[-120:]
    cure = "to check it, switch on Remote Login and allow your own key"
    return unknown(
        "install over ssh", f"ssh localhost does not work here ({why or 'no ssh'}): {cure}", f"exit code {code}"
    )


def over_ssh(code: int, text: str, session: str, *, loaded: bool) -> Row:
    """Whether an install over ssh reaches the graphical session, or is refused with the reason."""
    said = " ".join(text.split())
    refused = code == CANNOT_RUN and "graphical session" in said
    figure = f"session {session or 'unknown'}: " + ("refused" if refused else f"exit code {code}, loaded: {loaded}")
    return judged("install over ssh", refused or (code == 0 and loaded), figure,
                  "it installs into the graphical session if a user is logged in there, and else gives the reason",
                  said[:200])  # fmt: skip


def ended(how: str, *, gone: bool, code: int | None, why: str) -> Row:
    """Whether an adopted training that launchd ends has an outcome."""
    outcome = "no outcome" if code is None else f"exit code {code}, {why}"
    return judged(f"{how} with an adopted training", gone and code is not None, f"ended: {gone}; {outcome}",
                  "the training ends with its job, and its outcome is kept",
                  "a training is left without a guard, or ends without an outcome")  # fmt: skip
