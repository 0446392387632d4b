"""`stallguard agent`: overnight jobs under launchd or systemd, and what an installed job executes (`agent work`)."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from stallguard import config, jsontext
from stallguard.agent import job_memory, job_status, manager
from stallguard.agent.job import DEFAULT_NAME, Schedule, checked_name, command_in, read_back
from stallguard.agent.job import schedule as schedule_of
from stallguard.agent.service_manager import LAUNCHD, SYSTEMD, Manager, own_system, places
from stallguard.cli import completion
from stallguard.cli._console import echo, note, prints_json, write
from stallguard.cli._options import as_words, given, settings
from stallguard.cli.run import RunCommand
from stallguard.cli.verbs import VerbGroup
from stallguard.config.table import AgentSettings
from stallguard.core.text import counted
from stallguard.errors import NO_SUCH_RUN, USAGE, StallguardError
from stallguard.report.sanitize import one_line
from stallguard.storage.paths import RunDir
from stallguard.supervisor.signals import deferred_signals

if TYPE_CHECKING:
    from stallguard.agent.job_builder import BuiltJob

LOOK = 0.2  # seconds between two checks for a signal
POLL = 0.5  # seconds between two reads of a log that is followed


@click.command("work", hidden=True, context_settings={"ignore_unknown_options": False})
@click.option("--name", required=True)
@click.option("--at", multiple=True)
@click.option("--every")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def work(name: str, at: tuple[str, ...], every: str | None, words: tuple[str, ...]) -> None:
    """Do what is due; service managers call this."""
    from stallguard.agent import runner as working

    with contextlib.suppress(OSError):  # else the service manager would start the job again and again
        working.trim(places(own_system(), os.environ).log(name))
    working.detach_output()

    try:
        when = schedule_of(at, every)
    except StallguardError as error:
        # A user edited the job's file.  After any exit code but 0 the service manager would start it again for ever.
        note("; ".join(error.lines()))
        return
    guarded: dict[str, None] = {}  # the runs of this start, by id
    with deferred_signals() as kept:

        def begin(remember: Callable[[str], None]) -> None:
            def begun(run: str) -> None:
                guarded[run] = None
                remember(run)

            _begin(name, words, kept, begun)

        def go_on(run: RunDir, end: bool) -> None:
            guarded[run.id] = None
            continue_run(words, run, kept, end=end)

        def pause(seconds: float) -> bool:
            end = time.monotonic() + seconds
            while not kept and time.monotonic() < end:
                time.sleep(min(LOOK, seconds))
            return not kept

        command, most = command_in(words), _max_restarts(words)
        notify = partial(_notify, name, words)
        working.JobRunner(name, command, when, _now, begin, go_on, note, notify, own_system(), most, pause).do()
    if guarded:
        try:
            _send_summary(name, words, list(guarded))
        except Exception as error:  # noqa: BLE001 - any exit code but 0 makes the service manager start the job again
            note(f"{name}: the summary of the night is not sent: {type(error).__name__}: {error}")


def _max_restarts(words: tuple[str, ...]) -> int:
    """Return how many deaths of stallguard are too many; the default if the settings cannot be read."""
    try:
        return _settings_of(words)[1].config.agent.max_restarts
    except StallguardError:
        return AgentSettings().max_restarts


def _send_summary(name: str, words: tuple[str, ...], runs: Sequence[str]) -> None:
    """Send what `morning` shows of the runs of this start of the job, if notify.on has it."""
    from stallguard import notify
    from stallguard.cli.history import summary
    from stallguard.storage.paths import runs_dir

    if "morning" in _settings_of(words)[1].config.notify.on:
        _notify(name, words, summary([RunDir(runs_dir() / run) for run in runs]), notify.SUMMARY)


def _notify(name: str, words: tuple[str, ...], text: str, kind: str = "missed") -> None:
    """Send a notification without a run.  Settings that cannot be read are reported in the log."""
    from stallguard import notify

    try:
        wanted = _settings_of(words)[1].config.notify
    except StallguardError as error:
        note("; ".join(error.lines()))
        return
    notifier = notify.Notifier(notify.configured(wanted, os.environ), note, notify.kinds(wanted.on))
    notifier.notify(notify.notification(kind, f"stallguard: {name}", text, name), time.monotonic())
    notifier.close()


def _settings_of(words: tuple[str, ...]) -> tuple[tuple[str, ...], config.Loaded]:
    """Return COMMAND and the settings in the words after `stallguard run`."""
    from stallguard.cli import run

    try:
        parameters = run.command.make_context("run", list(words)).params
    except click.UsageError as error:  # an option that this version no longer has
        cure = "install the job again"
        raise StallguardError(error.format_message(), cure=cure, code=USAGE) from error
    command_words = tuple(parameters.pop("words"))
    return command_words, config.load(given(parameters), os.environ, Path.cwd())


def _begin(name: str, words: tuple[str, ...], kept: list[int], remember: Callable[[str], None]) -> None:
    """Start a run of the job, which continues the one before if that is unfinished; `remember` takes its id."""
    from stallguard.launch.earlier_run import unfinished
    from stallguard.launch.request import prepare
    from stallguard.supervisor import detached_run

    command_words, loaded = _settings_of(words)
    before = unfinished(job_memory.recall(name).run, command_words, Path.cwd())
    if before and not loaded.config.run.resume:
        going_on = replace(loaded.config.run, resume=before.id)
        loaded = replace(loaded, config=replace(loaded.config, run=going_on))
    request = prepare(command_words, loaded, os.environ, Path.cwd())
    remember(request.run.id)
    settings = config.CurrentSettings(loaded, lambda: _settings_of(words)[1])
    detached_run.session(request, settings, os.environ).guard(kept)


def continue_run(words: tuple[str, ...], run: RunDir, kept: list[int], *, end: bool) -> None:
    """Guard the training that a killed stallguard left; `end`: only to end it."""
    from stallguard.supervisor import detached_run

    settings = config.read(lambda: _settings_of(words)[1])
    detached_run.reopened_session(run, os.environ, settings, end=end).guard(kept)


@click.group("agent", cls=VerbGroup)
def command() -> None:
    """Train overnight: jobs that start on time and survive a crash.

    \b
    Examples:
      stallguard agent install --at 23:00 --stop-at 07:30 -- train.py --epochs 200
      stallguard agent install --name weekly --every 7d --now -- -m mypackage.train
      stallguard agent status
      stallguard agent show --system launchd --at 23:00 -- train.py
    """  # noqa: D301 - click wants the real backspace


def _now() -> dt.datetime:
    return dt.datetime.now().astimezone()


def _own() -> Manager:
    return manager(own_system(), os.environ)


_which_job = click.option("--name", help="Name of the job.  [the only one]", shell_complete=completion.jobs)


def _options_of_a_job(function: Callable[..., None]) -> Callable[..., None]:
    for option in (
        settings(),
        click.option(
            "--env", "environment", multiple=True, metavar="NAME[=VALUE]", help="Environment for the job.",
            shell_complete=completion.variables,
        ),
        click.option("--every", metavar="DURATION", help="Start at this interval: 6h, 7d; the first time at once."),
        click.option(
            "--at", multiple=True, metavar="HH:MM|login", help="Start at this time of day, or at login.",
            shell_complete=completion.words("login"),
        ),
        click.option(
            "--name", default=DEFAULT_NAME, show_default=True, help="Name of the job.", shell_complete=completion.jobs
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def _made(
    name: str, at: tuple[str, ...], every: str | None, environment: tuple[str, ...], system: str, rest: Any
) -> BuiltJob:
    from stallguard.agent.job_builder import JobRequest, make

    words = rest.pop("words", ())
    if not words:
        cure = "stallguard agent install --at 23:00 -- train.py"
        raise StallguardError("a job needs a COMMAND", cure=cure, code=USAGE)
    flags = given(rest)
    loaded = config.load(flags, os.environ, Path.cwd())
    asked = JobRequest(name, schedule_of(at, every), as_words(flags), words, environment)
    return make(asked, loaded.config, os.environ, Path.cwd(), places(system, os.environ))


@command.command("install", cls=RunCommand, options_metavar="[OPTIONS] [--] COMMAND...")
@click.option("--now", "at_once", is_flag=True, help="Start at once.")
@_options_of_a_job
def install(
    name: str, at: tuple[str, ...], every: str | None, at_once: bool, environment: tuple[str, ...], **rest: Any
) -> None:
    """Install a job that runs COMMAND, or replace the one of that name.

    COMMAND and the options are those of `stallguard run`.
    """
    from stallguard.agent import preflight

    own = _own()
    made = _made(name, at, every, environment, own.places.system, rest)
    if made.job.schedule == Schedule() and not at_once:
        cure = "--at 23:00, --at login, --every 6h, or --now"
        raise StallguardError("a job needs a time to start at", cure=cure, code=USAGE)
    preflight.check(made.job, made.interpreters, made.words, own.places.system, Path.home())
    own.ready()
    before = _remembered(own, name)
    job_memory.keep(name, job_memory.JobMemory(installed=_now(), wanted=at_once, run=before.run, halted=True))
    try:
        own.install(made.job)
    except StallguardError:
        job_memory.keep(name, before)
        raise
    if at_once:
        own.start(name)
    for line in [*job_status.lines(job_status.status(own, name, _now()), _now()), *own.advice(made.job)]:
        note(line)


@command.command("uninstall")
@_which_job
def uninstall(name: str | None) -> None:
    """End a job and remove it; its runs and its log stay."""
    from stallguard.storage import retention  # 25 ms

    own = _own()
    which = _which(own, name)
    is_there = bool(own.program(which)) or own.places.definition(which).exists()
    if not is_there:
        with contextlib.suppress(StallguardError):  # there is no service manager here
            is_there = own.known(which).loaded  # its definition was deleted
    if not is_there:
        raise _no_job(which)
    back, past = read_back(own.program(which)), _remembered(own, which)
    own.uninstall(which)
    left = job_status.unfinished(past.run)
    if back is not None and left is not None and retention.is_alive(left):
        with deferred_signals() as kept:  # stallguard was killed, and no service manager starts it again
            continue_run(back.run, left, kept, end=True)
    job_memory.forget(which)
    note(f"{which}: removed; its runs are listed by stallguard ls")


@command.command("start")
@_which_job
def start(name: str | None) -> None:
    """Start a job now."""
    own = _own()
    _start(own, _installed(own, name))


def _start(own: Manager, name: str) -> None:
    job_memory.keep(name, replace(_remembered(own, name), wanted=True))
    own.start(name)


@command.command("stop")
@_which_job
def stop(name: str | None) -> None:
    """End a job's training, with a checkpoint if one can be made; it stays installed and starts again at its time."""
    own = _own()
    _stop(own, _installed(own, name))


def _stop(own: Manager, name: str) -> None:
    job_memory.keep(name, replace(_remembered(own, name), wanted=False, halted=True))
    own.stop(name)


@command.command("restart")
@_which_job
def restart(name: str | None) -> None:
    """End a job's training and start it again; it resumes from its checkpoint if it has one."""
    own = _own()
    which = _installed(own, name)
    _stop(own, which)
    _start(own, which)


@command.command("status")
@_which_job
@prints_json("One JSON object.", "stallguard.agent.job_status:OneJob")
def show_status(name: str | None, as_json: bool) -> None:
    """Show the state of a job; exit code 1 if it is not loaded, 3 if it is not installed."""
    own = _own()
    job = job_status.status(own, _which(own, name), _now())
    if as_json:
        echo(jsontext.readable(job_status.OneJob(job_status.SCHEMA, job)))
    else:
        echo("\n".join(job_status.lines(job, _now())))
    sys.exit(0 if job.loaded else 1 if job.installed else NO_SUCH_RUN)


@command.command("list")
@prints_json("One JSON object with all jobs.", "stallguard.agent.job_status:AllJobs")
def show_list(as_json: bool) -> None:
    """List the installed jobs."""
    own = _own()
    jobs = [job_status.status(own, name, _now()) for name in _ours(own)]
    if as_json:
        echo(jsontext.readable(job_status.AllJobs(job_status.SCHEMA, jobs)))
        return
    for job in jobs:
        state = "running" if job.running else "waiting" if job.loaded else "not loaded"
        echo(f"{job.name:<20}  {state:<10}  {job.schedule:<20}  {one_line(' '.join(job.command))}")
    if not jobs:
        note("no jobs; install one: stallguard agent install --at 23:00 -- train.py")


def _ours(own: Manager) -> list[str]:
    return [name for name in own.places.names() if read_back(own.program(name))]


def _which(own: Manager, name: str | None) -> str:
    if name is not None:
        return checked_name(name)
    ours = _ours(own)
    if len(ours) > 1:
        raise StallguardError(
            f"there are {counted(len(ours), 'job')}: {', '.join(ours)}", cure="choose one: --name", code=USAGE
        )
    return ours[0] if ours else DEFAULT_NAME


def _installed(own: Manager, name: str | None) -> str:
    which = _which(own, name)
    if not read_back(own.program(which)):
        raise _no_job(which)
    return which


def _no_job(name: str) -> StallguardError:
    cure = "stallguard agent list lists all jobs"
    return StallguardError(f"there is no job {name}", cure=cure, code=NO_SUCH_RUN)


def _remembered(own: Manager, name: str) -> job_memory.JobMemory:
    back = read_back(own.program(name))
    return job_status.recollected(name, command_in(back.run) if back else ())


@command.command("logs")
@_which_job
@click.option("-f", "--follow", is_flag=True, help="Follow the log until interrupted.")
def logs(name: str | None, follow: bool) -> None:
    """Show stallguard's messages in a job; for the training's output: stallguard logs --output."""
    own = _own()
    path = own.places.log(_which(own, name))
    if not path.exists():
        raise StallguardError(f"there is no log {path}", why="the job was never started", code=NO_SUCH_RUN)
    with path.open("rb") as file:
        while True:
            write(file.read())
            if not follow:
                return
            time.sleep(POLL)


@command.command("show", cls=RunCommand, options_metavar="[OPTIONS] [--] [COMMAND...]")
@click.option(
    "--system", type=click.Choice([LAUNCHD, SYSTEMD]), help="Format of the definition.  [that of this machine]"
)
@_options_of_a_job
def show(
    name: str, at: tuple[str, ...], every: str | None, environment: tuple[str, ...], system: str | None, **rest: Any
) -> None:
    """Print the definition of a job without installing it; without COMMAND, that of an installed job."""
    which = manager(system or own_system(), os.environ)
    if not rest.get("words"):
        _installed(which, name)
        echo(which.places.definition(name).read_text(), nl=False)
        return
    files = which.render(_made(name, at, every, environment, which.places.system, rest).job)
    for file, data in files.items():
        if len(files) > 1:
            echo(f"# {which.places.definitions / file}")
        echo(data, nl=False)


command.add_command(work)
