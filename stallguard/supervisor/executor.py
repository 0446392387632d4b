"""Does what the core wants done: has attempts started, signals, gathers, tells.

Nothing here blocks the deciding thread.  May not decide anything, not even in an error.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stallguard import notify
from stallguard.collectors import evidence_bundle
from stallguard.core import trainings
from stallguard.core.actions import Action, Ask, Collect, Conclude, Launch, Signal, Tell
from stallguard.core.detection.learned import Learned
from stallguard.core.events import DUMP, Collected, Noted
from stallguard.core.run import Run
from stallguard.host.psutil_errors import ERRORS
from stallguard.launch.environment import STACKS_SIGNAL
from stallguard.report.narrative import sentence
from stallguard.report.overnight import far
from stallguard.storage import learned_store, run_files
from stallguard.storage.paths import RunDir

if TYPE_CHECKING:
    from stallguard.supervisor.session import Session

LAST_WORDS = (*notify.OCCASIONS["finish"], *notify.OCCASIONS["give_up"])  # of a run


class Performer:
    """Performs the actions of one run."""

    def __init__(self, session: Session, env: Mapping[str, str]) -> None:
        """`env`: the user's."""
        self._session, self._env, self._launcher = session, env, session.launcher
        self.why = ""
        self._identity: run_files.Identity | None = None
        self._dumping = threading.Event()  # evidence that was asked for is being gathered
        self._notifier: notify.Notifier | None = None

    def perform(self, action: Action, run: Run) -> None:
        """Do one action."""
        how: Callable[..., None] | None = _HOW.get(type(action))
        if how is not None:
            how(self, action, run)

    # ---- actions -------------------------------------------------------------------------------------------

    def launch(self, action: Launch, _run: Run) -> None:
        """Have an attempt started; what fails becomes an event."""
        self._launcher.launch(action)

    def signal(self, action: Signal, _run: Run) -> None:
        """Send a signal to the training's process group."""
        if self._launcher.child is not None:
            self._launcher.child.signal(action.name)

    def ask(self, action: Ask, _run: Run) -> None:
        """Ask the probe of each process; where none has a page, the core's deadline brings the signal."""
        self._session.beats.ask(action.command)

    def collect(self, action: Collect, run: Run) -> None:
        """Gather the evidence on a thread; its end is an event.  One dump at a time: who asks meanwhile shares it."""
        if action.incident == DUMP:
            if self._dumping.is_set():
                return
            self._dumping.set()
        work = threading.Thread(target=self._gather, args=(action, run), name="collect", daemon=True)
        try:
            work.start()
        except RuntimeError as error:  # the system grants no thread: the restart must come all the same
            self._collected_nothing(action, error)

    def _gather(self, action: Collect, run: Run) -> None:
        session = self._session
        try:
            collected = evidence_bundle.collect(self._context(action, run))
        except Exception as error:  # noqa: BLE001 - evidence is wanted, but the restart must come
            self._collected_nothing(action, error)
            return
        if action.incident == DUMP:
            self._dumping.clear()
        session.mailbox.post(collected)

    def _collected_nothing(self, action: Collect, error: Exception) -> None:
        session, now = self._session, self._session.clock.monotonic()
        if action.incident == DUMP:
            self._dumping.clear()
        session.trouble(f"the evidence is incomplete: {type(error).__name__}: {error}")
        session.mailbox.post(
            Collected(at=now, incident=action.incident, seconds=0.0, missing=("everything",))
        )

    def _context(self, action: Collect, run: Run) -> evidence_bundle.Context:
        session, greeted = self._session, run.history.greeted
        pid = greeted.pid if greeted else run.pid
        with contextlib.suppress(ProcessLookupError, *ERRORS):  # gone meanwhile: the collectors will say so
            self._identity = run_files.identity(pid)
        settings, request = session.loaded.config.evidence, session.request
        return evidence_bundle.Context(
            incident=action.incident, pid=pid, armed=bool(greeted and greeted.armed),
            stacks=session.dir.probe / f"{pid}.stacks", directory=_place(session.dir, action.incident),
            run=session.dir.path, root=run.pid, identity=self._identity, lives_on=True, signal=STACKS_SIGNAL,
            since=time.time() - (session.clock.monotonic() - run.launched), argv=tuple(request.command.argv),
            environment=self._launcher.environment_of_child, versions=greeted.versions if greeted else {},
            cwd=str(request.cwd), home=str(Path.home()), script=request.script(),
            include_source=settings.include_source, budget=settings.budget,
        )  # fmt: skip

    def tell(self, action: Tell, run: Run) -> None:
        """Say it on the terminal, and to whoever wants to be notified."""
        self._session.terminal.tell(action.kind, action.facts)
        if self._notifier is not None:
            title = f"stallguard: {self._session.dir.id}"
            text = sentence(action.kind, action.facts)
            if action.kind in LAST_WORDS and (reached := _far(run)):
                text = f"{text}; {reached}"
            self._notifier.notify(action.kind, title, text, run.now)

    def conclude(self, action: Conclude, _run: Run) -> None:
        """Keep why it ended."""
        self.why = action.why

    # ---- around the run -----------------------------------------------------------------------------------

    def sensor_failed(self, name: str, error: Exception) -> None:
        """Have it told that a sensor does not work here."""
        session = self._session
        text = f"the sensor {name} does not work here: {error}"
        session.mailbox.post(
            Noted(at=session.clock.monotonic(), attempt=session.attempt, kind="sensor", text=text)
        )

    def learned(self) -> Learned | None:
        """Return what earlier runs of this script taught, or None."""
        return learned_store.load(self._key(), self._session.trouble)

    def remember(self, run: Run) -> None:
        """Keep what this run taught."""
        learned_store.save(self._key(), trainings.taught(run))
        if run.sizes != self._launcher.sizes():
            learned_store.keep_sizes(self._launcher.sizes_key(), run.sizes)

    def _key(self) -> learned_store.Key:
        request = self._session.request
        return learned_store.key_of(request.command.argv, request.cwd)

    def open_notifier(self) -> None:
        """Prepare the channels that the configuration names; they take the place of those before."""
        before = self._notifier
        wanted = self._session.loaded.config.notify
        channels = notify.channels(wanted, self._env, self._session.trouble)
        self._notifier = notify.Notifier(
            channels, self._session.trouble, notify.kinds(wanted.on), wanted.every
        )
        if before is not None:
            before.close()

    def close(self) -> None:
        """Let the last notification out."""
        if self._notifier is not None:
            self._notifier.close()


def _place(run: RunDir, incident: int) -> Path:
    return run.dump() if incident == DUMP else run.incident(incident)


def _far(run: Run) -> str:
    heard = run.history.heard
    if heard is None or trainings.many(run):  # how far one of several came says nothing of the run
        return ""
    epoch = heard.epoch + 1 if heard.epoch >= 0 else None
    return far(epoch, heard.epochs if heard.epochs > 0 else None, heard.loss)


_HOW: dict[type, Callable[..., None]] = {
    Launch: Performer.launch,
    Signal: Performer.signal,
    Ask: Performer.ask,
    Collect: Performer.collect,
    Tell: Performer.tell,
    Conclude: Performer.conclude,
}
