"""Starts the attempts of a run, and takes up one that runs: the process, its environment, the sockets it is told of.

The first attempt is started before most of stallguard is loaded, so that a training begins as soon as it would alone:
this module, and what it imports, must stay light.  May not decide anything: a child that cannot start becomes an event.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING

from stallguard.core.actions import Launch
from stallguard.core.events import Failed, Launched, Noted
from stallguard.core.sizes import Sizes
from stallguard.errors import StallguardError
from stallguard.host import system
from stallguard.launch import batch_option, run_seed
from stallguard.launch.environment import STACKS_SIGNAL, Wish, child_environment, keep_reference
from stallguard.sensors import Target
from stallguard.storage import attempt_file, learned_store
from stallguard.storage.attempt_file import Attempt

if TYPE_CHECKING:
    from stallguard.supervisor.process.adopted import Adopted
    from stallguard.supervisor.process.child import Child
    from stallguard.supervisor.session import Session

LOOK_EVERY = 5.0  # seconds between two looks at the child's control group
TOKEN_BYTES = 7  # a positive signed 64-bit number


class Launcher:
    """Starts the attempts of one run."""

    def __init__(self, session: Session, env: Mapping[str, str]) -> None:
        """`env`: the user's, for the child."""
        self._session, self._env = session, env
        self.child: Child | Adopted | None = None
        self.target = Target(mine=(session.dir.path,), places=(session.request.cwd,))
        self.environment_of_child: dict[str, str] = {}
        self._memory: system.MemoryKill | None = None
        self._looked = 0.0
        self._drawn = ""  # the run's seed, once an attempt needs it

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
        self.environment_of_child = dict(self._env)
        from stallguard.supervisor.process.adopted import Adopted  # a new training needs none of it

        file = attempt_file.exit_file(session.dir, attempt.token)
        self.child = Adopted(attempt.process, file, self._ended, session.settle)
        self._memory = system.MemoryKill(self.child.pid)
        self._aim(self.child.pid)

    def _aim(self, pid: int) -> None:
        """Have the sensors look at the tree of an attempt that begins, in which nobody trains yet."""
        self.target.root, self.target.main, self.target.trainings = pid, None, ()

    def launch(self, action: Launch) -> None:
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

    def _start(self, action: Launch, token: int) -> batch_option.Given:
        session = self._session
        if self.child is not None:
            self.child.reap()
        session.beats.follow(action.attempt, token)
        session.output.dress()
        given = self.given(action.factor)
        self.environment_of_child = self._environment(action, token, given)
        self.child = session.start_child(
            given.argv, attempt_file.exit_file(session.dir, token),
            env=self.environment_of_child, cwd=str(session.request.cwd),
            stdout=session.output.stdout, stderr=session.output.stderr, post=self._ended,
            before_post=session.settle,
        )  # fmt: skip
        return given

    def given(self, factor: int) -> batch_option.Given:
        """Return what an attempt with 1/`factor` of the batch is started with.  Raises StallguardError."""
        session = self._session
        policy, most = session.loaded.config.policy, session.sizes().rows
        return batch_option.given(session.request.command.argv, self._env, policy, factor, most)

    def _tell_size(self, given: batch_option.Given, attempt: int) -> None:
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

    def _environment(self, action: Launch, token: int, given: batch_option.Given) -> dict[str, str]:
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
                self._drawn = run_seed.seed(session.dir.backup)
            except OSError as error:
                self._drawn = run_seed.drawn_seed()
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

    @cache  # noqa: B019 - there is one performer a run
    def sizes(self) -> Sizes:
        """Return which batches earlier runs of this script survived, and `find-batch` found."""
        return learned_store.sizes(self.sizes_key(), self._session.trouble)

    def sizes_key(self) -> learned_store.Key:
        """Return under which key sizes are kept."""
        request, policy = self._session.request, self._session.loaded.config.policy
        return learned_store.key_of(batch_option.unsized(request.command.argv, policy), request.cwd)

    def close(self) -> None:
        """Let the child be forgotten."""
        if self.child is not None:
            self.child.reap()
