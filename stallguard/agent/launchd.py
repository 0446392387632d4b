"""The verbs on macOS: property lists in ~/Library/LaunchAgents, launchctl in the user's graphical session.

Must not interpret answers: launchctl_codes, launchctl_steps and launchctl_output do.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stallguard.agent import (
    launchctl_codes,
    launchctl_output,
    launchctl_steps,
    missed_starts,
    plist,
    preflight,
    service_tool,
)
from stallguard.agent.job import AgentJob, is_ours, label
from stallguard.agent.job_files import Places
from stallguard.agent.launchctl_codes import ABSENT, BUSY, NO_SESSION, OK, answer
from stallguard.agent.launchctl_steps import PAUSE
from stallguard.agent.manager_protocol import KnownJob
from stallguard.agent.service_tool import Said
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.host.preferences import sleep, wakes
from stallguard.storage import private

PATIENCE = 30.0  # seconds for one answer of launchctl
START_TRIES = 20  # of kickstart while launchd is busy with the job
DEFAULT_EXIT = 60  # seconds to wait for a job whose definition does not say


def ask(words: Sequence[str]) -> Said:
    """Ask launchctl."""
    return service_tool.ask(
        "launchctl", words, PATIENCE, cure="stallguard agent show prints the job without installing it"
    )


class Launchd:
    """Manages the jobs of one user."""

    def __init__(
        self,
        places: Places,
        uid: int,
        launchctl: Callable[[Sequence[str]], Said] = ask,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`uid`: the user whose graphical session the jobs belong to."""
        self.places, self._uid = places, uid
        self._launchctl, self._sleep = launchctl, sleep

    @property
    def _domain(self) -> str:
        return f"gui/{self._uid}"

    def _target(self, name: str) -> str:
        return f"{self._domain}/{label(name)}"

    def ready(self) -> None:
        """Raise StallguardError for root, and if the user has no graphical session."""
        if self._uid == 0:
            why = "a job of root has no graphical session, and its training would run as root"
            raise StallguardError(
                "jobs cannot be managed as root", why=why, cure="run it again without sudo", code=CANNOT_RUN
            )
        said = answer(*self._launchctl(("print", self._domain)))
        if said.meaning == NO_SESSION:
            raise StallguardError(
                "there is no graphical session to install in", why=said.words, cure=said.cure, code=CANNOT_RUN
            )

    def render(self, job: AgentJob) -> dict[str, bytes]:
        """Return the property list."""
        return {self.places.definition(job.name).name: plist.render(job)}

    def install(self, job: AgentJob) -> None:
        """Write the property list atomically and load it."""
        file = self.places.definition(job.name)
        self._refuse_foreign(job.name)
        is_new = not file.exists()
        private.own(self.places.logs)
        _write(file, plist.render(job))
        names = {"domain": self._domain, "target": self._target(job.name), "file": str(file)}
        try:
            ending = max(job.exit_timeout, self._exit_timeout(job.name))  # of the one that is loaded now
            launchctl_steps.play(launchctl_steps.install(ending), names, self._launchctl, self._sleep)
        except StallguardError:
            if is_new:
                file.unlink(missing_ok=True)  # else it would start at the next login
            raise

    def _refuse_foreign(self, name: str) -> None:
        file = self.places.definition(name)
        if file.exists() and not is_ours(plist.program(file.read_bytes())):
            raise preflight.foreign(name, str(file))
        path = self._print(name).path
        if path and Path(path) != file:
            raise preflight.foreign(name, path)

    def uninstall(self, name: str) -> None:
        """End and unload the job, then remove its property list."""
        self._refuse_foreign(name)
        names = {"domain": self._domain, "target": self._target(name)}
        launchctl_steps.play(
            launchctl_steps.uninstall(self._exit_timeout(name)), names, self._launchctl, self._sleep
        )
        self.places.definition(name).unlink(missing_ok=True)

    def start(self, name: str) -> None:
        """Start the job now."""
        for _ in range(START_TRIES):
            said = answer(*self._launchctl(("kickstart", self._target(name))))
            # While a job starts, as after bootstrap with KeepAlive, launchctl returns 37; only `print` shows it.
            if said.meaning == OK or (said.meaning == BUSY and self._print(name).running):
                return
            if said.meaning != BUSY:
                break
            self._sleep(PAUSE)
        raise self._refused("kickstart", self._target(name), said)

    def stop(self, name: str) -> None:
        """Send SIGTERM and wait; launchd sends no SIGKILL here; stallguard ends its training itself."""
        if not self._print(name).running:
            return
        said = answer(*self._launchctl(("kill", "SIGTERM", self._target(name))))
        if said.meaning not in (OK, ABSENT):
            raise self._refused("kill", self._target(name), said)
        for _ in range(round(self._exit_timeout(name) / PAUSE)):
            if not self._print(name).running:
                return
            self._sleep(PAUSE)
        raise StallguardError(
            f"the job {name} still runs",
            why=f"it did not end within {self._exit_timeout(name)} s after SIGTERM",
            cure=f"stallguard agent uninstall --name {name} has launchd end it by force",
        )

    @staticmethod
    def _refused(verb: str, target: str, said: launchctl_codes.Answer) -> StallguardError:
        if said.meaning == ABSENT:
            return StallguardError(
                f"{target} is not loaded", why=said.words, cure="stallguard agent install first"
            )
        return StallguardError(f"launchctl {verb} failed", why=said.words, cure=said.cure)

    def _exit_timeout(self, name: str) -> int:
        return self._print(name).exit_timeout or DEFAULT_EXIT

    def _print(self, name: str) -> launchctl_output.PrintedService:
        said = self._launchctl(("print", self._target(name)))
        return launchctl_output.parse(said.text) if said.code == 0 else launchctl_output.PrintedService()

    def known(self, name: str) -> KnownJob:
        """Return the values of `launchctl print`, and whether the job is switched off."""
        said = self._launchctl(("print", self._target(name)))
        answered = answer(*said)
        if answered.meaning != OK:
            disabled = launchctl_output.parse_disabled(self._launchctl(("print-disabled", self._domain)).text)
            why = launchctl_codes.ANSWERS[119] if label(name) in disabled else answered
            trouble = f"{why.words}: {why.cure}" if why.cure else why.words
            return KnownJob(loaded=False, trouble=trouble)
        job = launchctl_output.parse(said.text)
        return KnownJob(
            loaded=True,
            running=job.running,
            state=job.state,
            pid=job.pid,
            starts=job.runs,
            ending=launchctl_codes.ending(job),
        )

    def program(self, name: str) -> tuple[str, ...]:
        """Return the command line in the job's property list; () if there is none."""
        file = self.places.definition(name)
        return plist.program(file.read_bytes()) if file.exists() else ()

    def advice(self, job: AgentJob) -> list[str]:
        """Return what macOS shows after an install, and what an overnight job needs."""
        return [
            'macOS may show "Background Items Added"; leave it switched on in System Settings > Login Items',
            "stay logged in and on mains power; a closed lid sleeps",
            *missed_starts.warning(job.schedule, self.places.system, sleep(), wakes()),
        ]


def _write(file: Path, data: bytes) -> None:
    """Write a property list, checked by plutil if it is installed.  Raises StallguardError."""
    draft = file.with_suffix(".draft")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(data)
        draft.chmod(0o644)
        if shutil.which("plutil") is not None:
            said = service_tool.ask("plutil", ("-lint", str(draft)), PATIENCE, cure="")
            if said.code:
                raise StallguardError("the property list is malformed", why=said.text.strip())
        draft.replace(file)
    except OSError as error:
        cure = "make that folder writable by you"
        raise StallguardError(
            f"cannot write {file}", why=str(error.strerror), cure=cure, code=CANNOT_RUN
        ) from error
    finally:
        with contextlib.suppress(OSError):  # the error of the write above is raised already
            draft.unlink(missing_ok=True)
