"""An overnight job as a value: its command, schedule, working directory and names.

Pure: must not touch files or the service manager.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from stallguard import units
from stallguard.config import Config
from stallguard.config.table import AgentSettings
from stallguard.core.limits import KILL_WAIT
from stallguard.errors import USAGE, StallguardError

DEFAULT_NAME = "agent"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
# -P: a module in the working directory, such as click.py, must not be imported.
ENTRY = ("-P", "-m", "stallguard", "agent", "work")
# Seconds that stallguard may need once the training has ended: what it left running (3), the last output (1), the
# report (20), its trace (10), the last notification (20), the summary of the night (20), old runs to remove.
MARGIN = 90.0
LOGIN = "login"
AN_HOUR = 3600.0
# Services: programs that run at all times, as `stallguard fleet worker` does, under the same service managers.
SERVICE_ENTRY = ("-P", "-m", "stallguard", "fleet")
SERVICES = ("fleet-scheduler", "fleet-worker")


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a job starts: at times of day ("23:00"), at login, at an interval in seconds; all empty: by hand."""

    at: tuple[str, ...] = ()
    login: bool = False
    every: float = 0.0

    @property
    def is_hourly(self) -> bool:
        """Whether the service manager starts the job each hour, and due_starts decides whether it is due.

        A timer of the service manager stops while the machine sleeps and starts anew at each boot or login, so an
        interval of days might never elapse.
        """
        return self.every >= AN_HOUR

    def arguments(self) -> tuple[str, ...]:
        """Return this as options of `agent install`."""
        times = tuple(word for time in self.at for word in ("--at", time))
        login = ("--at", LOGIN) if self.login else ()
        return (*times, *login, *(("--every", units.show_duration(self.every)) if self.every else ()))

    def words(self) -> str:
        """Return this in words."""
        parts = [f"daily at {' and '.join(self.at)}"] if self.at else []
        parts += ["at login"] if self.login else []
        parts += [f"every {units.show_duration(self.every)}"] if self.every else []
        return ", ".join(parts) or "by hand"


class AgentJob(msgspec.Struct, frozen=True):
    """A job.  `python`: the interpreter that has stallguard; `run`: the words after `stallguard run`.

    `is_service`: it runs from login on, and is started again after each end; `run` is then what follows
    `stallguard fleet`.
    """

    name: str
    python: str
    run: tuple[str, ...]
    cwd: str
    log: str  # file of stallguard's own messages
    schedule: Schedule = Schedule()
    env: dict[str, str] = {}
    exit_timeout: int = 60  # seconds that the service manager waits after SIGTERM
    throttle: int = 30  # seconds between two starts, at least
    max_restarts: int = AgentSettings().max_restarts  # deaths of stallguard within an hour: then the job gives up
    is_service: bool = False

    @property
    def program(self) -> tuple[str, ...]:
        """The command line that the service manager starts."""
        if self.is_service:
            return (self.python, *SERVICE_ENTRY, *self.run)
        return (self.python, *ENTRY, "--name", self.name, *self.schedule.arguments(), "--", *self.run)

    @property
    def command(self) -> tuple[str, ...]:
        """COMMAND, without the options of `run`."""
        return command_in(self.run)


class ReadBack(NamedTuple):
    """What the command line of an installed job contains."""

    name: str
    schedule: Schedule
    run: tuple[str, ...]


def command_in(run: tuple[str, ...]) -> tuple[str, ...]:
    """Return COMMAND from the words after `stallguard run`."""
    return run[run.index("--") + 1 :] if "--" in run else run


def label(name: str) -> str:
    """Return the name of the job for launchd."""
    return f"com.stallguard.{name}"


def unit(name: str) -> str:
    """Return the name of the job for systemd, without a suffix."""
    return f"stallguard-{name}"


def is_ours(program: Sequence[str]) -> bool:
    """Return whether stallguard wrote a command line: that of a job, or of a service."""
    return read_back(program) is not None or tuple(program[1 : 1 + len(SERVICE_ENTRY)]) == SERVICE_ENTRY


def checked_name(name: str) -> str:
    """Return `name` if a job can have it.  Raises StallguardError (exit code 2)."""
    if name in SERVICES:
        raise StallguardError(
            f"a job cannot be named {name!r}",
            why="it is the name of a service of the fleet",
            cure=f"choose another name; or: stallguard {name.replace('-', ' ')} --install, --uninstall",
            code=USAGE,
        )
    if _NAME.fullmatch(name):
        return name
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "night"
    raise StallguardError(
        f"a job cannot be named {name!r}",
        why="a name has small letters, digits and hyphens",
        cure=f"try --name {plain}",
        code=USAGE,
    )


def schedule(at: Sequence[str], every: str | None) -> Schedule:
    """Return the schedule of the options.  Raises StallguardError (exit code 2) if they are not times."""
    try:
        times = {units.clock(text) for text in at if text != LOGIN}
        seconds = units.duration(every) if every else 0.0
    except ValueError as error:
        raise _no_time(str(error)) from error
    if every and not 60 <= seconds <= units.SECONDS["d"] * 366:  # noqa: PLR2004 - a minute, a year
        raise _no_time(every)
    clocks = tuple(f"{hour:02}:{minute:02}" for hour, minute in sorted(times))
    return Schedule(at=clocks, login=LOGIN in at, every=seconds)


def _no_time(text: str) -> StallguardError:
    cure = "--at takes a time of day such as 23:00, or login; --every a duration of a minute or more such as 6h"
    return StallguardError(f"{text!r} is not a time to start at", cure=cure, code=USAGE)


def exit_timeout(config: Config) -> int:
    """Return the seconds that the service manager must wait: longer than stallguard takes to end a training.

    A stop by signal does not wait for the end of a batch, so stop.batch_wait does not count.
    """
    ladder = config.stop.saving_wait + config.stop.grace + KILL_WAIT + MARGIN
    return math.ceil(ladder)


def read_back(program: Sequence[str]) -> ReadBack | None:
    """Return what a command line contains, or None if stallguard did not write it."""
    words = list(program)
    if tuple(words[1 : 1 + len(ENTRY)]) != ENTRY or "--" not in words:
        return None
    cut = words.index("--")
    options = words[1 + len(ENTRY) : cut]
    pairs = list(zip(options[::2], options[1::2], strict=False))
    found = {option: value for option, value in pairs if option != "--at"}
    times = [value for option, value in pairs if option == "--at"]
    try:
        when = schedule(times, found.get("--every"))
    except StallguardError:  # edited by hand
        when = Schedule()
    return ReadBack(found.get("--name", ""), when, tuple(words[cut + 1 :]))
