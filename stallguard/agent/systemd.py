"""The verbs on Linux: user units in ~/.config/systemd/user, `systemctl --user`.

Must not define the units; `unit` does.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence

from stallguard.agent import launchctl_codes, missed_starts, preflight, service_tool, unit
from stallguard.agent.job import AgentJob, is_ours
from stallguard.agent.job import unit as unit_name
from stallguard.agent.job_files import Places
from stallguard.agent.launchctl_output import PrintedService
from stallguard.agent.manager_protocol import KnownJob
from stallguard.agent.service_tool import Said
from stallguard.core.text import whole_number
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.host.preferences import sleep, wakes
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


def ask(words: Sequence[str]) -> Said:
    """Ask the user's own systemd."""
    return service_tool.ask("systemctl", ("--user", "--no-pager", *words), PATIENCE, cure=_BY_HAND)


_BY_HAND = "stallguard agent show prints the unit; cron or any other program can run its ExecStart"


class Systemd:
    """Manages the jobs of one user."""

    def __init__(
        self,
        places: Places,
        systemctl: Callable[[Sequence[str]], Said] = ask,
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
        timer = unit.timer(job)
        files = {self.places.definition(job.name).name: unit.service(job).encode()}
        return files | ({self.places.timer(job.name).name: timer.encode()} if timer else {})

    def install(self, job: AgentJob) -> None:
        """Write the units and load them."""
        self._refuse_foreign(job.name)
        self._off(job.name)
        self.places.timer(job.name).unlink(missing_ok=True)
        self._write(job)
        self._must(("daemon-reload",))
        service, timer = f"{unit_name(job.name)}.service", f"{unit_name(job.name)}.timer"
        if job.schedule.login:
            self._must(("enable", "--now", service))
        if self.places.timer(job.name).exists():
            self._must(("enable", "--now", timer))
        if not self.known(job.name).loaded:
            raise StallguardError(
                f"systemd did not load {service}", cure=f"systemctl --user status {service}"
            )

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
            raise StallguardError(
                f"cannot write in {error.filename}", why=why, cure=cure, code=CANNOT_RUN
            ) from error

    def _refuse_foreign(self, name: str) -> None:
        file = self.places.definition(name)
        if file.exists() and not is_ours(self.program(name)):
            raise preflight.foreign(name, str(file))

    def _off(self, name: str) -> None:
        """Disable and end the job; no error if it does not exist."""
        self._systemctl(("disable", "--now", f"{unit_name(name)}.timer"))
        self._systemctl(("disable", f"{unit_name(name)}.service"))
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
        service = f"{unit_name(name)}.service"
        self._systemctl(("reset-failed", service))
        self._must(("start", service))

    def stop(self, name: str) -> None:
        """End the job's process and wait for it: systemd kills it after the timeout in its unit."""
        if not self.known(name).loaded:
            return
        self._must(("stop", "--no-block", f"{unit_name(name)}.service"))
        patience = unit.stop_timeout(self._text(name)) + PATIENCE
        for _ in range(round(patience / PAUSE)):
            known = self.known(name)
            if not known.running and not known.state.startswith(("active", "deactivating")):
                return
            self._sleep(PAUSE)
        cure = f"systemctl --user kill --signal=KILL {unit_name(name)}.service"
        raise StallguardError(f"the job {name} still runs", why=f"{patience:g} s after its stop", cure=cure)

    def _must(self, words: tuple[str, ...]) -> None:
        said = self._systemctl(words)
        if said.code:
            raise StallguardError(f"systemctl --user {' '.join(words)} failed", why=said.text.strip())

    def known(self, name: str) -> KnownJob:
        """Return the values of `systemctl show`."""
        said = self._systemctl(("show", "-p", ",".join(ASKED), f"{unit_name(name)}.service"))
        return parse_show(said.text) if said.code == 0 else KnownJob(loaded=False, trouble=said.text.strip())

    def program(self, name: str) -> tuple[str, ...]:
        """Return the command line in the job's service; () if there is none."""
        return unit.program(self._text(name))

    def _text(self, name: str) -> str:
        file = self.places.definition(name)
        return file.read_text(errors="replace") if file.exists() else ""

    def advice(self, job: AgentJob) -> list[str]:
        """Return what an overnight job needs."""
        found = []
        if shutil.which("loginctl") is not None:
            words = ("show-user", str(os.getuid()), "-p", "Linger", "--value")
            said = service_tool.ask("loginctl", words, PATIENCE, cure="")
            if said.code == 0 and said.text.strip() == "no":
                found.append("your jobs end when you log out; to keep them running: loginctl enable-linger")
        return found + missed_starts.warning(job.schedule, self.places.system, sleep(), wakes())


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
        return launchctl_codes.ending(PrintedService(signal=number))
    return STARTLESS.get(number) or launchctl_codes.ending(PrintedService(exit_code=number))
