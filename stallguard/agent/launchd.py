"""The verbs on macOS: property lists in ~/Library/LaunchAgents, launchctl in the user's graphical session.

A job is a property list.  Keys and values: launchd.plist(5), and public reports for what the manual leaves out.

Jobs are loaded and removed by tables of steps.  launchd answers before it is done: bootout returns while the job still
ends, and bootstrap returns "input/output error" for six states, sometimes although it succeeded.  So every step lists
the next step for each answer, and only `print` shows the state.  The order is that of Homebrew's services: enable,
bootout, wait until the job is gone, bootstrap, verify.

Must not interpret answers: launchctl_answers does.
"""

from __future__ import annotations

import contextlib
import plistlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers.expat import ExpatError

from stallguard import units
from stallguard.agent import due_starts, launchctl_answers, preflight, service_manager
from stallguard.agent.job import AgentJob, is_ours, label
from stallguard.agent.launchctl_answers import ABSENT, BUSY, DISABLED, LOADED, NO_SESSION, OK, UNCLEAR, Answer, answer
from stallguard.agent.service_manager import KnownJob, Places, ToolAnswer
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.host import system
from stallguard.storage import private

PATIENCE = 30.0  # seconds for one answer of launchctl
START_TRIES = 20  # of kickstart while launchd is busy with the job
DEFAULT_EXIT = 60  # seconds to wait for a job whose definition does not say

# What plistlib raises for bytes that are no property list: it documents one of them (Python 3.11 to 3.14).
DAMAGED = (
    plistlib.InvalidFileException, ExpatError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError,
    RecursionError, MemoryError,
)  # fmt: skip
OPEN_FILES = 4096  # launchd's own soft limit is 256; TensorFlow opens one descriptor per data shard

DONE = "done"
PAUSE = 0.25  # seconds between two tries


def ask(words: Sequence[str]) -> ToolAnswer:
    """Ask launchctl."""
    return service_manager.ask(
        "launchctl", words, PATIENCE, cure="stallguard agent show prints the job without installing it"
    )


class Launchd:
    """Manages the jobs of one user."""

    def __init__(
        self,
        places: Places,
        uid: int,
        launchctl: Callable[[Sequence[str]], ToolAnswer] = ask,
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
        return {self.places.definition(job.name).name: render(job)}

    def install(self, job: AgentJob) -> None:
        """Write the property list atomically and load it."""
        file = self.places.definition(job.name)
        self._refuse_foreign(job.name)
        is_new = not file.exists()
        private.own(self.places.logs)
        _write(file, render(job))
        names = {"domain": self._domain, "target": self._target(job.name), "file": str(file)}
        try:
            ending = max(job.exit_timeout, self._exit_timeout(job.name))  # of the one that is loaded now
            play(install(ending), names, self._launchctl, self._sleep)
        except StallguardError:
            if is_new:
                file.unlink(missing_ok=True)  # else it would start at the next login
            raise

    def _refuse_foreign(self, name: str) -> None:
        file = self.places.definition(name)
        if file.exists() and not is_ours(program(file.read_bytes())):
            raise preflight.foreign(name, str(file))
        path = self._print(name).path
        if path and Path(path) != file:
            raise preflight.foreign(name, path)

    def uninstall(self, name: str) -> None:
        """End and unload the job, then remove its property list."""
        self._refuse_foreign(name)
        names = {"domain": self._domain, "target": self._target(name)}
        play(uninstall(self._exit_timeout(name)), names, self._launchctl, self._sleep)
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
    def _refused(verb: str, target: str, said: launchctl_answers.Answer) -> StallguardError:
        if said.meaning == ABSENT:
            return StallguardError(f"{target} is not loaded", why=said.words, cure="stallguard agent install first")
        return StallguardError(f"launchctl {verb} failed", why=said.words, cure=said.cure)

    def _exit_timeout(self, name: str) -> int:
        return self._print(name).exit_timeout or DEFAULT_EXIT

    def _print(self, name: str) -> launchctl_answers.PrintedService:
        said = self._launchctl(("print", self._target(name)))
        return launchctl_answers.parse(said.text) if said.code == 0 else launchctl_answers.PrintedService()

    def known(self, name: str) -> KnownJob:
        """Return the values of `launchctl print`, and whether the job is switched off."""
        said = self._launchctl(("print", self._target(name)))
        answered = answer(*said)
        if answered.meaning != OK:
            disabled = launchctl_answers.parse_disabled(self._launchctl(("print-disabled", self._domain)).text)
            why = launchctl_answers.ANSWERS[119] if label(name) in disabled else answered
            trouble = f"{why.words}: {why.cure}" if why.cure else why.words
            return KnownJob(loaded=False, trouble=trouble)
        job = launchctl_answers.parse(said.text)
        return KnownJob(
            loaded=True,
            running=job.running,
            state=job.state,
            pid=job.pid,
            starts=job.runs,
            ending=launchctl_answers.ending(job),
        )

    def program(self, name: str) -> tuple[str, ...]:
        """Return the command line in the job's property list; () if there is none."""
        file = self.places.definition(name)
        return program(file.read_bytes()) if file.exists() else ()

    def advice(self, job: AgentJob) -> list[str]:
        """Return what macOS shows after an install, and what an overnight job needs."""
        return [
            'macOS may show "Background Items Added"; leave it switched on in System Settings > Login Items',
            "stay logged in and on mains power; a closed lid sleeps",
            *due_starts.warning(job.schedule, self.places.system, system.sleep_settings(), system.daily_wakes()),
        ]


def _write(file: Path, data: bytes) -> None:
    """Write a property list, checked by plutil if it is installed.  Raises StallguardError."""
    draft = file.with_suffix(".draft")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(data)
        draft.chmod(0o644)
        if shutil.which("plutil") is not None:
            said = service_manager.ask("plutil", ("-lint", str(draft)), PATIENCE, cure="")
            if said.code:
                raise StallguardError("the property list is malformed", why=said.text.strip())
        draft.replace(file)
    except OSError as error:
        cure = "make that folder writable by you"
        raise StallguardError(f"cannot write {file}", why=str(error.strerror), cure=cure, code=CANNOT_RUN) from error
    finally:
        with contextlib.suppress(OSError):  # the error of the write above is raised already
            draft.unlink(missing_ok=True)


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


class ServiceStep(NamedTuple):
    """Run launchctl with `words`.  `leads`: the next step for each meaning of the answer; `tries`: at most so many."""

    words: tuple[str, ...]
    leads: Mapping[str, str]
    tries: int = 1


Steps = Mapping[str, ServiceStep]


def _until_gone(seconds: float, then: str) -> ServiceStep:
    return ServiceStep(("print", "{target}"), {OK: "gone?", ABSENT: then}, tries=round(seconds / PAUSE))


def _bootout(then: str) -> ServiceStep:
    gone = dict.fromkeys((OK, BUSY, UNCLEAR), "gone?")
    return ServiceStep(("bootout", "{target}"), gone | {ABSENT: then})


def install(exit_timeout: float) -> Steps:
    """Return the steps that load a property list, and replace the job that is loaded."""
    verify = dict.fromkeys((OK, UNCLEAR, BUSY, LOADED), "loaded?")
    return {
        "enable": ServiceStep(("enable", "{target}"), {OK: "bootout"}, tries=2),
        "bootout": _bootout("bootstrap")._replace(tries=2),
        "gone?": _until_gone(max(exit_timeout + 5, 30), "bootstrap"),
        "bootstrap": ServiceStep(("bootstrap", "{domain}", "{file}"), verify | {DISABLED: "enable"}, tries=20),
        "loaded?": ServiceStep(("print", "{target}"), {OK: DONE, ABSENT: "bootstrap"}, tries=20),
    }


def uninstall(exit_timeout: float) -> Steps:
    """Return the steps that end and unload a job."""
    return {"bootout": _bootout(DONE), "gone?": _until_gone(max(exit_timeout + 5, 30), DONE)}


def play(
    steps: Steps,
    names: Mapping[str, str],
    launchctl: Callable[[Sequence[str]], ToolAnswer],
    sleep: Callable[[float], None],
) -> list[tuple[str, ToolAnswer]]:
    """Execute `steps` from the first to DONE; return each step with launchctl's answer.

    `names` fills {domain}, {target}, {file}.  Raises StallguardError if an answer has no next step, or if a
    step was tried too often.
    """
    visits: dict[str, int] = dict.fromkeys(steps, 0)
    story: list[tuple[str, ToolAnswer]] = []
    name = next(iter(steps))
    while name != DONE:
        step = steps[name]
        if visits[name] == step.tries:
            raise failure(step, names, _last_reason(story))
        if visits[name]:
            sleep(PAUSE)
        visits[name] += 1
        said = launchctl(tuple(word.format_map(names) for word in step.words))
        story.append((name, said))
        meaning = answer(*said).meaning
        if meaning not in step.leads:
            raise failure(step, names, answer(*said))
        name = step.leads[meaning]
    return story


def _last_reason(story: list[tuple[str, ToolAnswer]]) -> Answer:
    """Return the last answer that gives a reason: a failed bootstrap rather than the `print` after it."""
    reasons = [answer(*said) for _, said in story if answer(*said).meaning not in (OK, ABSENT)]
    return reasons[-1] if reasons else answer(*story[-1][1])


def failure(step: ServiceStep, names: Mapping[str, str], said: Answer) -> StallguardError:
    """Return the error for a step with the answer `said`."""
    asked = " ".join(("launchctl", *(word.format_map(names) for word in step.words)))
    return StallguardError(
        f"the job {names['target']} could not be {'loaded' if 'file' in names else 'unloaded'}",
        why=f"{asked}: {said.words}",
        cure=said.cure or "try again in a minute; stallguard agent status shows the state of the job",
    )
