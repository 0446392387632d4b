"""`stallguard agent work`: what an installed job executes when its service manager starts it."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click
from msgspec.structs import replace

from stallguard import config
from stallguard.agent import job_memory
from stallguard.agent.job import command_in
from stallguard.agent.job import schedule as schedule_of
from stallguard.agent.service_manager import own_places, own_system
from stallguard.cli._console import echo
from stallguard.cli._options import given
from stallguard.config.table import AgentSettings
from stallguard.errors import USAGE, StallguardError
from stallguard.storage.paths import RunDir
from stallguard.supervisor.signals import deferred_signals

LOOK = 0.2  # seconds between two checks for a signal


@click.command("work", hidden=True, context_settings={"ignore_unknown_options": False})
@click.option("--name", required=True)
@click.option("--at", multiple=True)
@click.option("--every")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def work(name: str, at: tuple[str, ...], every: str | None, words: tuple[str, ...]) -> None:
    """Do what is due; service managers call this."""
    from stallguard.agent import runner as working

    with contextlib.suppress(OSError):  # else the service manager would start the job again and again
        working.trim(own_places(own_system(), os.environ).log(name))
    working.detach_output()

    def now() -> dt.datetime:
        return dt.datetime.now().astimezone()

    def say(line: str) -> None:
        echo(line, err=True)

    try:
        when = schedule_of(at, every)
    except StallguardError as error:
        # A user edited the job's file.  After any exit code but 0 the service manager would start it again for ever.
        say("; ".join(error.lines()))
        return
    notify = partial(_notify, name, words, say)
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
        working.JobRunner(name, command, when, now, begin, go_on, say, notify, own_system(), most, pause).do()
    if guarded:
        try:
            _send_summary(name, words, list(guarded), say)
        except Exception as error:  # noqa: BLE001 - any exit code but 0 makes the service manager start the job again
            say(f"{name}: the summary of the night is not sent: {type(error).__name__}: {error}")


def _max_restarts(words: tuple[str, ...]) -> int:
    """Return how many deaths of stallguard are too many; the default if the settings cannot be read."""
    try:
        return _settings_of(words)[1].config.agent.max_restarts
    except StallguardError:
        return AgentSettings().max_restarts


def _send_summary(name: str, words: tuple[str, ...], runs: Sequence[str], say: Callable[[str], None]) -> None:
    """Send what `morning` shows of the runs of this start of the job, if notify.on has it."""
    from stallguard import notify
    from stallguard.cli.morning import summary
    from stallguard.storage.paths import runs_dir

    if "morning" in _settings_of(words)[1].config.notify.on:
        _notify(name, words, say, summary([RunDir(runs_dir() / run) for run in runs]), notify.SUMMARY)


def _notify(
    name: str, words: tuple[str, ...], say: Callable[[str], None], text: str, kind: str = "missed"
) -> None:
    """Send a notification without a run.  Settings that cannot be read are reported in the log."""
    from stallguard import notify

    try:
        wanted = _settings_of(words)[1].config.notify
    except StallguardError as error:
        say("; ".join(error.lines()))
        return
    notifier = notify.Notifier(notify.configured(wanted, os.environ), say, notify.kinds(wanted.on))
    note = notify.notification(kind, f"stallguard: {name}", text, name)
    notifier.notify(note, time.monotonic())
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
    detached_run.session(request, loaded, os.environ, lambda: _settings_of(words)[1]).guard(kept)


def continue_run(words: tuple[str, ...], run: RunDir, kept: list[int], *, end: bool) -> None:
    """Guard the training that a killed stallguard left; `end`: only to end it."""
    from stallguard.supervisor import detached_run

    detached_run.reopened_session(run, os.environ, lambda: _settings_of(words)[1], end=end).guard(kept)
