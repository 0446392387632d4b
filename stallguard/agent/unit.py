"""A job as a systemd user service and its timer.

Pure.  Quoting: systemd.service(5) "Command lines" and systemd.unit(5) "Specifiers".
"""

from __future__ import annotations

import math
import re

from stallguard import units
from stallguard.agent.job import AN_HOUR, AgentJob, unit

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "%": "%%"}


def quoted(word: str) -> str:
    """Return `word` as one word of a command line: in quotes, with systemd's special characters doubled."""
    return f'"{"".join(_ESCAPES.get(c, c) for c in word).replace("$", "$$")}"'


def _assigned(name: str, value: str) -> str:
    return f'"{name}={"".join(_ESCAPES.get(c, c) for c in value)}"'


def _plain(path: str) -> str:
    """Return a path for a key that takes the rest of the line literally, except specifiers."""
    return path.replace("%", "%%")


def service(job: AgentJob) -> str:
    """Return the service.

    KillMode=process: a training survives a crash of stallguard, which then finds it again; a worker of a fleet finds
    its runs too.  OOMPolicy=continue: if the kernel kills the training, stallguard restarts it.  A service is always
    started again, without a limit.

    No UMask: it would apply to the training's files.  stallguard's files are private because their directories are
    (0700).
    """
    # The title is one line without systemd's specifiers; a backslash at its end would continue the line.
    title = re.sub(r"\s+", " ", " ".join(job.command))[:200].replace("%", "%%").rstrip("\\")
    # The starts in an hour after which systemd gives up: for crashes before stallguard can count them.
    most_starts = 2 * job.max_restarts + len(job.schedule.at)
    most_starts += math.ceil(AN_HOUR / job.schedule.every) if job.schedule.every else 0
    return "\n".join([
        "[Unit]",
        f"Description=stallguard {job.name}: {title}",
        "Documentation=man:stallguard(1)",
        *(
            ("StartLimitIntervalSec=0",)
            if job.is_service
            else ("StartLimitIntervalSec=1h", f"StartLimitBurst={most_starts}")
        ),
        "",
        "[Service]",
        "Type=exec",
        f"WorkingDirectory={_plain(job.cwd)}",
        f"ExecStart={' '.join(map(quoted, job.program))}",
        *(f"Environment={_assigned(name, value)}" for name, value in sorted(job.env.items())),
        f"Restart={'always' if job.is_service else 'on-failure'}",
        f"RestartSec={job.throttle}",
        f"TimeoutStopSec={job.exit_timeout}",
        "KillMode=process",
        "OOMPolicy=continue",
        f"StandardOutput=append:{_plain(job.log)}",
        f"StandardError=append:{_plain(job.log)}",
        *(("", "[Install]", "WantedBy=default.target") if job.schedule.login else ()),
        "",
    ])  # fmt: skip


def timer(job: AgentJob) -> str | None:
    """Return the timer, or None if the job has no times."""
    if not (job.schedule.at or job.schedule.every):
        return None
    times = [
        f"OnCalendar=*-*-* {hour:02}:{minute:02}:00" for hour, minute in map(units.clock, job.schedule.at)
    ]
    if job.schedule.is_hourly:
        times += ["OnActiveSec=1", "OnCalendar=hourly"]
    elif job.schedule.every:
        times += ["OnActiveSec=1", f"OnUnitActiveSec={round(job.schedule.every)}"]
    return "\n".join([
        "[Unit]",
        f"Description=stallguard {job.name}, {job.schedule.words()}",
        "",
        "[Timer]",
        *times,
        "AccuracySec=30s",
        f"Unit={unit(job.name)}.service",
        "",
        "[Install]",
        "WantedBy=timers.target",
        "",
    ])  # fmt: skip


def stop_timeout(text: str) -> int:
    """Return the seconds that a service has to end; systemd's default of 90 if it does not say."""
    match = re.search(r"^TimeoutStopSec=(\d{1,9})$", text, re.MULTILINE)
    return int(match[1]) if match else 90


def program(text: str) -> tuple[str, ...]:
    """Return the command line in a service that `service` wrote; () if there is none."""
    match = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)
    words = re.findall(r'"((?:[^"\\]|\\.)*)"', match[1]) if match else []
    return tuple(map(_unquoted, words))


def _unquoted(word: str) -> str:
    back = {short: char for char, short in _ESCAPES.items() if char != "%"}
    text = re.sub(r"\\.", lambda match: back.get(match[0], match[0]), word)
    return text.replace("%%", "%").replace("$$", "$")
