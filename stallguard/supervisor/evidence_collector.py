"""Collects the evidence of each incident on a thread of its own, and posts Collected at the end."""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial
from pathlib import Path

from stallguard.collectors import evidence_bundle
from stallguard.core.actions import Collect
from stallguard.core.events import DUMP, Collected
from stallguard.core.run import Run
from stallguard.host.psutil_errors import ERRORS
from stallguard.launch.environment import STACKS_SIGNAL
from stallguard.storage import run_files
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.launcher import Launcher
from stallguard.supervisor.notices import persistently
from stallguard.worker import REFUSALS, Worker

BUDGET = 10.0  # seconds in which evidence is gathered: the training stands still for them, before a restart


class EvidenceCollector:
    """Collects the evidence of one run's incidents, and the dumps that its user asks for."""

    def __init__(self, context: RunContext, launcher: Launcher) -> None:
        """`launcher`: knows the environment of the attempt, whose secrets are removed from evidence."""
        self._context, self._launcher = context, launcher
        self._identity: run_files.Identity | None = None  # of the process of the latest evidence
        self._dumping = threading.Event()  # set while a dump is collected: evidence that the user asked for

    def collect(self, action: Collect, run: Run) -> None:
        """Begin to collect.  A request for a dump is dropped while a dump is collected, which serves both requests."""
        if action.incident == DUMP:
            if self._dumping.is_set():
                return
            self._dumping.set()
        try:
            Worker(partial(self._collect, action, run), "collect").start()
        except REFUSALS as error:
            self._fail(action, error)

    def _collect(self, action: Collect, run: Run) -> None:
        try:
            collected = evidence_bundle.collect(self._bundle_context(action, run))
        except Exception as error:  # noqa: BLE001 - the restart waits for Collected
            self._fail(action, error)
            return
        if action.incident == DUMP:
            self._dumping.clear()
        self._context.mailbox.post(collected)

    def _fail(self, action: Collect, error: Exception) -> None:
        """Post that everything is missing, for which the restart waits, and report the error."""
        if action.incident == DUMP:
            self._dumping.clear()

        def post() -> None:
            now = self._context.clock.monotonic()
            self._context.mailbox.post(
                Collected(at=now, incident=action.incident, seconds=0.0, missing=("everything",))
            )

        persistently(post)
        self._context.reporter.trouble(f"the evidence is incomplete: {type(error).__name__}: {error}")

    def _bundle_context(self, action: Collect, run: Run) -> evidence_bundle.EvidenceContext:
        request, directory, greeted = self._context.request, self._context.directory, run.history.greeted
        # The process whose probe sent a hello, else the child.
        pid = greeted.pid if greeted else run.current.pid
        with contextlib.suppress(ProcessLookupError, *ERRORS):  # if it has ended, the collectors report that
            self._identity = run_files.identity(pid)
        settings, now = self._context.settings.config.evidence, self._context.clock.monotonic()
        place = directory.dump() if action.incident == DUMP else directory.incident(action.incident)
        return evidence_bundle.EvidenceContext(
            incident=action.incident, pid=pid, armed=bool(greeted and greeted.armed),
            stacks=directory.probe / f"{pid}.stacks", directory=place, run=directory.path, root=run.current.pid,
            identity=self._identity, lives_on=True, signal=STACKS_SIGNAL,
            since=time.time() - (now - run.current.launched),
            argv=tuple(request.command.argv), environment=self._launcher.environment_of_child,
            versions=greeted.versions if greeted else {}, cwd=str(request.cwd), home=str(Path.home()),
            script=request.script(), include_source=settings.include_source, budget=BUDGET,
        )  # fmt: skip
