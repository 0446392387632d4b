"""A job as a launchd property list.

Keys and values: launchd.plist(5), and public reports for what the manual leaves out.  Pure.
"""

from __future__ import annotations

import plistlib
from typing import Any
from xml.parsers.expat import ExpatError

from stallguard import units
from stallguard.agent.job import AgentJob, label

# What plistlib raises for bytes that are no property list: it documents one of them (Python 3.11 to 3.14).
DAMAGED = (
    plistlib.InvalidFileException, ExpatError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError,
    RecursionError, MemoryError,
)  # fmt: skip
OPEN_FILES = 4096  # launchd's own soft limit is 256; TensorFlow opens one descriptor per data shard


def values(job: AgentJob) -> dict[str, Any]:
    """Return the keys of the property list.

    KeepAlive on failure only: launchd does not limit starts, so stallguard counts them and exits with 0 at its limit.
    A service is started again after each end, ThrottleInterval seconds later.
    It implies a start at load; `agent work` exits at once if nothing is due.
    ProcessType Interactive: anything else is throttled, which would slow the training and look like a stall.
    No Umask: it would apply to the training's files.  stallguard's files are private because their directories are
    (0700).
    """
    starts: dict[str, Any] = {"RunAtLoad": job.schedule.login}
    if job.schedule.at:
        times = map(units.clock, job.schedule.at)
        starts["StartCalendarInterval"] = [{"Hour": hour, "Minute": minute} for hour, minute in times]
    if job.schedule.is_hourly:
        starts["StartCalendarInterval"] = [*starts.get("StartCalendarInterval", []), {"Minute": 0}]
    elif job.schedule.every:
        starts["StartInterval"] = round(job.schedule.every)
    return {
        "Label": label(job.name),
        "ProgramArguments": list(job.program),
        "WorkingDirectory": job.cwd,
        "EnvironmentVariables": dict(sorted(job.env.items())),
        "KeepAlive": True if job.is_service else {"SuccessfulExit": False},
        **starts,
        "ProcessType": "Interactive",
        "ExitTimeOut": job.exit_timeout,
        "ThrottleInterval": job.throttle,
        "AbandonProcessGroup": False,
        "LimitLoadToSessionType": "Aqua",
        "SoftResourceLimits": {"NumberOfFiles": OPEN_FILES},
        "StandardOutPath": job.log,
        "StandardErrorPath": job.log,
    }


def render(job: AgentJob) -> bytes:
    """Return the text of the property list, keys in the order of `values`."""
    return plistlib.dumps(values(job), sort_keys=False)


def program(data: bytes) -> tuple[str, ...]:
    """Return the command line in a property list; () if it is damaged or has none."""
    try:
        arguments = plistlib.loads(data).get("ProgramArguments", [])
    except DAMAGED:
        return ()
    return tuple(map(str, arguments)) if isinstance(arguments, list) else ()
