"""The verbs on Linux: user units in ~/.config/systemd/user, `systemctl --user`.

A job is a service, and a timer if it has times.  Quoting: systemd.service(5) "Command lines" and systemd.unit(5)
"Specifiers".
"""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence

from stallguard import units
from stallguard.agent import due_starts, launchctl_answers, preflight, service_manager
from stallguard.agent.job import AN_HOUR, AgentJob, is_ours, unit
from stallguard.agent.launchctl_answers import PrintedService
from stallguard.agent.service_manager import KnownJob, Places, ToolAnswer
from stallguard.core.text import whole_number
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.host import system
from stallguard.storage import private

PATIENCE = 30.0  # seconds for one answer
PAUSE = 0.25  # seconds between two checks of a job that ends
ASKED = ("LoadState", "ActiveState", "SubState", "MainPID", "ExecMainCode", "ExecMainStatus")
KILLED = frozenset({"2", "3"})  # ExecMainCode: CLD_KILLED, CLD_DUMPED
# systemd's exit codes for a process that it could not start: systemd.exec(5), "Process Exit Codes".
STARTLESS = {
    200: "the working directory does not exist",
    203: "the interpreter does not exist",
    209: "the log cannot be written",
}

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "%": "%%"}


def ask(words: Sequence[str]) -> ToolAnswer:
    """Ask the user's own systemd."""
    return service_manager.ask("systemctl", ("--user", "--no-pager", *words), PATIENCE, cure=_BY_HAND)


_BY_HAND = "stallguard agent show prints the unit; cron or any other program can run its ExecStart"


class Systemd:
    """Manages the jobs of one user."""

    def __init__(
        self,
        places: Places,
        systemctl: Callable[[Sequence[str]], ToolAnswer] = ask,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Manage the units in `places`."""
        self.places, self._systemctl, self._sleep = places, systemctl, sleep

    def ready(self) -> None:
        """Raise StallguardError if there is no systemd user instance."""
        said = self._systemctl(("show-environment",))
        if said.code:
            raise StallguardError(
                "there is no systemd user instance to install in",
                why=said.text.strip(),
                cure=f"log in directly (not by su or sudo), or: loginctl enable-linger; or by hand: {_BY_HAND}",
                code=CANNOT_RUN,
            )

    def render(self, job: AgentJob) -> dict[str, bytes]:
        """Return the service, and the timer if the job has times."""
        timer = timer_text(job)
        files = {self.places.definition(job.name).name: service_text(job).encode()}
        return files | ({self.places.timer(job.name).name: timer.encode()} if timer else {})

    def install(self, job: AgentJob) -> None:
        """Write the units and load them."""
        self._refuse_foreign(job.name)
        self._off(job.name)
        self.places.timer(job.name).unlink(missing_ok=True)
        self._write(job)
        self._must(("daemon-reload",))
        service, timer = f"{unit(job.name)}.service", f"{unit(job.name)}.timer"
        if job.schedule.login:
            self._must(("enable", "--now", service))
        if self.places.timer(job.name).exists():
            self._must(("enable", "--now", timer))
        if not self.known(job.name).loaded:
            raise StallguardError(f"systemd did not load {service}", cure=f"systemctl --user status {service}")

    def _write(self, job: AgentJob) -> None:
        try:
            private.own(self.places.logs)
            self.places.definitions.mkdir(parents=True, exist_ok=True)
            for name, data in self.render(job).items():
                draft = self.places.definitions / f".{name}.draft"
                draft.write_bytes(data)
                draft.replace(self.places.definitions / name)
        except OSError as error:
            why, cure = str(error.strerror), "make that folder writable by you"
            raise StallguardError(f"cannot write in {error.filename}", why=why, cure=cure, code=CANNOT_RUN) from error

    def _refuse_foreign(self, name: str) -> None:
        file = self.places.definition(name)
        if file.exists() and not is_ours(self.program(name)):
            raise preflight.foreign(name, str(file))

    def _off(self, name: str) -> None:
        """Disable and end the job; no error if it does not exist."""
        self._systemctl(("disable", "--now", f"{unit(name)}.timer"))
        self._systemctl(("disable", f"{unit(name)}.service"))
        self.stop(name)

    def uninstall(self, name: str) -> None:
        """End the job, disable it and remove its units."""
        self._refuse_foreign(name)
        self._off(name)
        self.places.timer(name).unlink(missing_ok=True)
        self.places.definition(name).unlink(missing_ok=True)
        self._must(("daemon-reload",))

    def start(self, name: str) -> None:
        """Start the job now."""
        service = f"{unit(name)}.service"
        self._systemctl(("reset-failed", service))
        self._must(("start", service))

    def stop(self, name: str) -> None:
        """End the job's process and wait for it: systemd kills it after the timeout in its unit."""
        if not self.known(name).loaded:
            return
        self._must(("stop", "--no-block", f"{unit(name)}.service"))
        patience = stop_timeout(self._text(name)) + PATIENCE
        for _ in range(round(patience / PAUSE)):
            known = self.known(name)
            if not known.running and not known.state.startswith(("active", "deactivating")):
                return
            self._sleep(PAUSE)
        cure = f"systemctl --user kill --signal=KILL {unit(name)}.service"
        raise StallguardError(f"the job {name} still runs", why=f"{patience:g} s after its stop", cure=cure)

    def _must(self, words: tuple[str, ...]) -> None:
        said = self._systemctl(words)
        if said.code:
            raise StallguardError(f"systemctl --user {' '.join(words)} failed", why=said.text.strip())

    def known(self, name: str) -> KnownJob:
        """Return the values of `systemctl show`."""
        said = self._systemctl(("show", "-p", ",".join(ASKED), f"{unit(name)}.service"))
        return parse_show(said.text) if said.code == 0 else KnownJob(loaded=False, trouble=said.text.strip())

    def program(self, name: str) -> tuple[str, ...]:
        """Return the command line in the job's service; () if there is none."""
        return program(self._text(name))

    def _text(self, name: str) -> str:
        file = self.places.definition(name)
        return file.read_text(errors="replace") if file.exists() else ""

    def advice(self, job: AgentJob) -> list[str]:
        """Return what an overnight job needs."""
        found = []
        if shutil.which("loginctl") is not None:
            words = ("show-user", str(os.getuid()), "-p", "Linger", "--value")
            said = service_manager.ask("loginctl", words, PATIENCE, cure="")
            if said.code == 0 and said.text.strip() == "no":
                found.append("your jobs end when you log out; to keep them running: loginctl enable-linger")
        return found + due_starts.warning(
            job.schedule, self.places.system, system.sleep_settings(), system.daily_wakes()
        )


def parse_show(text: str) -> KnownJob:
    """Return the values of the properties; absent ones count as unknown."""
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    active = said.get("ActiveState", "")
    pid = whole_number(said.get("MainPID", ""))
    return KnownJob(
        loaded=said.get("LoadState") == "loaded",
        running=active in ("active", "deactivating", "reloading") and bool(pid),
        state=f"{active} ({said.get('SubState', '')})" if active else "",
        pid=pid or None,
        starts=None,
        ending=_ending(said),
    )


def _ending(said: dict[str, str]) -> str:
    number = whole_number(said.get("ExecMainStatus", ""))
    if said.get("ExecMainCode", "0") == "0" or number is None:
        return ""
    if said["ExecMainCode"] in KILLED:
        return launchctl_answers.ending(PrintedService(signal=number))
    return STARTLESS.get(number) or launchctl_answers.ending(PrintedService(exit_code=number))


def quoted(word: str) -> str:
    """Return `word` as one word of a command line: in quotes, with systemd's special characters doubled."""
    return f'"{"".join(_ESCAPES.get(c, c) for c in word).replace("$", "$$")}"'


def _assigned(name: str, value: str) -> str:
    return f'"{name}={"".join(_ESCAPES.get(c, c) for c in value)}"'


def _plain(path: str) -> str:
    """Return a path for a key that takes the rest of the line literally, except specifiers."""
    return path.replace("%", "%%")


def service_text(job: AgentJob) -> str:
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


def timer_text(job: AgentJob) -> str | None:
    """Return the timer, or None if the job has no times."""
    if not (job.schedule.at or job.schedule.every):
        return None
    times = [f"OnCalendar=*-*-* {hour:02}:{minute:02}:00" for hour, minute in map(units.clock, job.schedule.at)]
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
    """Return the command line in a service that `service_text` wrote; () if there is none."""
    match = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)
    words = re.findall(r'"((?:[^"\\]|\\.)*)"', match[1]) if match else []
    return tuple(map(_unquoted, words))


def _unquoted(word: str) -> str:
    back = {short: char for char, short in _ESCAPES.items() if char != "%"}
    text = re.sub(r"\\.", lambda match: back.get(match[0], match[0]), word)
    return text.replace("%%", "%").replace("$$", "$")
