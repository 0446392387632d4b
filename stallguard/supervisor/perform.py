"""Does what the core wants done: starts, signals, gathers, tells.  Nothing here blocks the deciding thread.

May not decide anything, not even in an error: a child that cannot start becomes an event.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from stallguard import knowledge, notify, outcome
from stallguard.collectors import bundle
from stallguard.core import trainings
from stallguard.core.actions import Action, Ask, Collect, Conclude, Launch, Signal, Tell
from stallguard.core.events import DUMP, Collected, Failed, Launched, Noted
from stallguard.core.learned import Learned
from stallguard.core.run import Run
from stallguard.core.sizes import Sizes
from stallguard.errors import StallguardError
from stallguard.host import system
from stallguard.host.psutil_errors import ERRORS
from stallguard.paths import RunDir
from stallguard.report.morning import far
from stallguard.report.narrative import sentence
from stallguard.sensors import Target
from stallguard.supervisor import attempts, batch, randomness
from stallguard.supervisor.adopted import Adopted
from stallguard.supervisor.attempts import Attempt
from stallguard.supervisor.child import Child
from stallguard.supervisor.environment import STACKS_SIGNAL, Wish, child_environment, keep_reference

if TYPE_CHECKING:
    from stallguard.supervisor.session import Session

LOOK_EVERY = 5.0  # seconds between two looks at the child's control group
LAST_WORDS = (*notify.OCCASIONS["finish"], *notify.OCCASIONS["give_up"])  # of a run
TOKEN_BYTES = 7  # a positive signed 64-bit number


class Performer:
    """Performs the actions of one run."""

    def __init__(self, session: Session, env: Mapping[str, str]) -> None:
        """`env`: the user's, for the child."""
        self._session, self._env = session, env
        self.child: Child | Adopted | None = None
        self.target = Target(mine=(session.dir.path,), places=(session.request.cwd,))
        self.why = ""
        self._environment_of_child: dict[str, str] = {}
        self._identity: outcome.Identity | None = None
        self._memory: system.MemoryKill | None = None
        self._looked = 0.0
        self._dumping = threading.Event()  # evidence that was asked for is being gathered
        self._drawn = ""  # the run's seed, once an attempt needs it
        self._notifier: notify.Notifier | None = None

    def perform(self, action: Action, run: Run) -> None:
        """Do one action."""
        how: Callable[..., None] | None = _HOW.get(type(action))
        if how is not None:
            how(self, action, run)

    def pass_on(self, name: str) -> None:
        """Send a signal to the training's group at once; from a signal handler."""
        if name == "WINCH":
            self._session.output.resize()
        if self.child is not None:
            self.child.signal(name)

    def adopt(self, attempt: Attempt, known: Collection[int]) -> None:
        """Guard a training that a stallguard before us started.  `known`: the processes that it knew of."""
        session = self._session
        session.beats.follow(attempt.number, attempt.token, known)
        # The job's, then as now: its secrets are removed from evidence.
        self._environment_of_child = dict(self._env)
        file = attempts.exit_file(session.dir, attempt.token)
        self.child = Adopted(attempt.process, file, self._ended, session.settle)
        self._memory = system.MemoryKill(self.child.pid)
        self._aim(self.child.pid)

    def _aim(self, pid: int) -> None:
        """Have the sensors look at the tree of an attempt that begins, in which nobody trains yet."""
        self.target.root, self.target.main, self.target.trainings = pid, None, ()

    # ---- actions -------------------------------------------------------------------------------------------

    def launch(self, action: Launch, _run: Run) -> None:
        """Start an attempt; what fails becomes an event."""
        session, token = self._session, int.from_bytes(os.urandom(TOKEN_BYTES), "little")
        self._leave_checkpoints(action)
        resumed = action.resume and session.dir.has_checkpoints()
        try:
            given = self._start(action, token)
        except StallguardError as error:
            self._post_failure(action, error)
            return
        except Exception:
            self._post_failure(action, StallguardError("the training cannot be started"))
            raise  # told next, with all that a report of it needs
        assert self.child is not None  # noqa: S101 - it has just been started
        session.mailbox.post_next(
            Launched(
                at=session.clock.monotonic(), attempt=action.attempt, pid=self.child.pid, factor=action.factor,
                device=action.device, resumed=resumed,
            )
        )  # fmt: skip
        self._memory = system.MemoryKill(self.child.pid)
        self._aim(self.child.pid)
        session.attempt_began(action, token, self.child.identity)
        self._tell_size(given, action.attempt)

    def _leave_checkpoints(self, action: Launch) -> None:
        """Set aside what an attempt that starts from scratch must not be mixed with."""
        if action.attempt > 1 and not action.resume and self._session.dir.has_checkpoints():
            try:
                self._session.dir.set_checkpoints_aside(action.attempt)
            except OSError as error:
                self._session.trouble(f"the checkpoints of the attempts before stay in their place ({error})")

    def _start(self, action: Launch, token: int) -> batch.Given:
        session = self._session
        if self.child is not None:
            self.child.reap()
        session.beats.follow(action.attempt, token)
        session.output.dress()
        given = self.given(action.factor)
        self._environment_of_child = self._environment(action, token, given)
        self.child = session.start_child(
            given.argv, attempts.exit_file(session.dir, token),
            env=self._environment_of_child, cwd=str(session.request.cwd),
            stdout=session.output.stdout, stderr=session.output.stderr, post=self._ended,
            before_post=session.settle,
        )  # fmt: skip
        return given

    def given(self, factor: int) -> batch.Given:
        """Return what an attempt with 1/`factor` of the batch is started with.  Raises StallguardError."""
        session = self._session
        policy, most = session.loaded.config.policy, session.sizes().rows
        return batch.given(session.request.command.argv, self._env, policy, factor, most)

    def _tell_size(self, given: batch.Given, attempt: int) -> None:
        if given.whole is not None:
            now, text = self._session.clock.monotonic(), f"the script is given batches of {given.rows} rows"
            facts = {"batch": str(given.whole)}
            self._session.mailbox.post(Noted(at=now, attempt=attempt, kind="batch", text=text, facts=facts))

    def _ended(self, code: int | None, memory_kill: bool | None) -> None:
        """Pass a child's end on; from its thread.  On Linux only the kernel's counters know of a kill for memory."""
        watch, self._memory = self._memory, None
        try:
            if watch is not None:
                memory_kill = watch.killed() if memory_kill is None else memory_kill
                watch.close()
        finally:
            self._session.beats.exited(code, memory_kill)

    def look(self, now: float) -> None:
        """Now and then: is the child still in the control group whose kills we count?"""
        watch = self._memory
        if watch is not None and now - self._looked >= LOOK_EVERY:
            self._looked = now
            watch.look()

    def _environment(self, action: Launch, token: int, given: batch.Given) -> dict[str, str]:
        session, settings = self._session, self._session.loaded.config
        if not settings.run.probe:
            return given.env
        policy, told = settings.policy, given.whole is not None
        wish = Wish(
            socket=str(session.beats.path), pages=str(session.dir.probe), token=token,
            factor=1 if told else action.factor, divisor=action.factor if told else 0,
            really=policy.scale_lr if policy.really_smaller_batch and not told else "", regrow=policy.regrow,
            backup=str(session.dir.backup) if settings.checkpoint.enabled else "", resume=action.resume,
            device=action.device, signal=STACKS_SIGNAL, every=settings.checkpoint.every,
            cost=settings.checkpoint.cost, inexact=settings.checkpoint.inexact, most=settings.checkpoint.most,
            rows=given.rows or 0, seed=self._seed(),
        )  # fmt: skip
        environment = child_environment(given.env, wish)
        with contextlib.suppress(OSError):  # a full disk: arguments alone tell trainings apart then
            keep_reference(session.dir.probe, environment)
        return environment

    def _seed(self) -> str:
        """Return the run's seed, "" if what the script leaves unseeded is drawn anew in each attempt."""
        session, checkpoint = self._session, self._session.loaded.config.checkpoint
        if not checkpoint.enabled or not checkpoint.keep_randomness:
            return ""
        if not self._drawn:
            try:
                self._drawn = randomness.seed(session.dir.backup)
            except OSError as error:
                self._drawn = randomness.drawn_seed()
                session.trouble(
                    f"the run's seed is not kept ({error}): a run that resumes this one draws another"
                )
        return self._drawn

    def _post_failure(self, action: Launch, error: StallguardError) -> None:
        session = self._session
        for line in error.lines():
            session.terminal.say(line)
        session.mailbox.post_next(
            Failed(at=session.clock.monotonic(), attempt=action.attempt, why=error.what, code=error.code)
        )

    def signal(self, action: Signal, _run: Run) -> None:
        """Send a signal to the training's process group."""
        if self.child is not None:
            self.child.signal(action.name)

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
            collected = bundle.collect(self._context(action, run))
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

    def _context(self, action: Collect, run: Run) -> bundle.Context:
        session, greeted = self._session, run.history.greeted
        pid = greeted.pid if greeted else run.pid
        with contextlib.suppress(ProcessLookupError, *ERRORS):  # gone meanwhile: the collectors will say so
            self._identity = outcome.identity(pid)
        settings, request = session.loaded.config.evidence, session.request
        return bundle.Context(
            incident=action.incident, pid=pid, armed=bool(greeted and greeted.armed),
            stacks=session.dir.probe / f"{pid}.stacks", directory=_place(session.dir, action.incident),
            run=session.dir.path, root=run.pid, identity=self._identity, lives_on=True, signal=STACKS_SIGNAL,
            since=time.time() - (session.clock.monotonic() - run.launched), argv=tuple(request.command.argv),
            environment=self._environment_of_child, versions=greeted.versions if greeted else {},
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
        return knowledge.load(self._key(), self._session.trouble)

    @cache  # noqa: B019 - there is one performer a run
    def sizes(self) -> Sizes:
        """Return which batches earlier runs of this script survived, and `find-batch` found."""
        return knowledge.sizes(self._sizes_key(), self._session.trouble)

    def remember(self, run: Run) -> None:
        """Keep what this run taught."""
        knowledge.save(self._key(), trainings.taught(run))
        if run.sizes != self.sizes():
            knowledge.keep_sizes(self._sizes_key(), run.sizes)

    def _key(self) -> knowledge.Key:
        request = self._session.request
        return knowledge.key_of(request.command.argv, request.cwd)

    def _sizes_key(self) -> knowledge.Key:
        request, policy = self._session.request, self._session.loaded.config.policy
        return knowledge.key_of(batch.unsized(request.command.argv, policy), request.cwd)

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
        """Let the last notification out and the child be forgotten."""
        if self._notifier is not None:
            self._notifier.close()
        if self.child is not None:
            self.child.reap()


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
