"""The runs of jobs on this machine: `stallguard run --store --job` as child processes of the worker.

A run outlives its worker: it is the leader of its own session, and holds the job's lease itself.  So a worker that is
killed costs no training; one that starts again finds the runs that are alive and counts them as taken.  A run has no
directory before it has the lease and its checkpoint, which takes minutes at worst; so from its first moment on it holds
the lock of a file, fleet/begun/<job>, which has its process id.

A worker ends a run (its hours are over, a user ends the worker) by SIGTERM: it ends with a checkpoint and frees the
lease.  A job whose code and environment are still being prepared then is given up: it must not begin afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stallguard.core.text import shell_words
from stallguard.errors import OWN_FAILURE, SIGNALLED, StallguardError
from stallguard.fleet import joblog, kept_ends, lineage, orders
from stallguard.fleet.joblog import Fenced, perform
from stallguard.fleet.orders import Refusal, Submission
from stallguard.fleet.records import ASKED_FOR, KILLED, Damaged, Outcome
from stallguard.fleet.signing import Signatures
from stallguard.fleet.store import Store
from stallguard.launch import signing_key
from stallguard.pool.beside_loop import answered, beside
from stallguard.pool.dispatch import needs_of
from stallguard.pool.environments import EnvironmentImpossible
from stallguard.pool.job_files import bound, held, is_held, last_lines, lock_of, log_of
from stallguard.storage import paths, private, run_files
from stallguard.supervisor import fleet_run

LOOK = 1.0  # s between two looks at a run that an earlier worker started
GIVES_UP = 5.0  # s that a preparation has to end


class Prepared(NamedTuple):
    """Code and environment of a job on this machine.  `folder`: of the command; `project`: the unpacked one."""

    folder: Path
    project: Path
    interpreter: str


class NotBegun(Exception):
    """A job was given up before it began here; another machine can take it."""


class Edges(NamedTuple):
    """`prepare` fetches and makes code and environment; raises EnvironmentImpossible, StoreError, Damaged, OSError.

    It is given a function that says whether the job was given up meanwhile, and ends soon then, with any result.
    """

    prepare: Callable[[Submission, Callable[[], bool]], Prepared]
    at: Callable[[], str]
    say: Callable[[str], None]


class _Running:
    """A job of this machine.

    `ends`: it was asked to end; `child`: its run, None if it is prepared or not ours; `interpreter`: of its run.
    """

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.ends = asyncio.Event()
        self.child: subprocess.Popen[bytes] | None = None
        self.interpreter = ""
        self.task: asyncio.Task[int]


class RunsHere:
    """The runs on this machine.  `worker`: the random name of this worker process."""

    def __init__(
        self,
        signatures: Signatures,
        store: Store,
        host: str,
        worker: str,
        env: Mapping[str, str],
        edges: Edges,
    ) -> None:
        """`signatures`: of this member; `host`: this machine's name; `env`: of this process."""
        self._signatures, self._store, self._edges = signatures, store, edges
        self._host, self._worker, self._env = host, worker, env
        self._running: dict[str, _Running] = {}

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that are trained here."""
        return tuple(sorted(self._running))

    @property
    def interpreters(self) -> tuple[str, ...]:
        """The interpreters that their runs use."""
        return tuple(one.interpreter for one in self._running.values() if one.interpreter)

    def taken(self, jobs: Collection[str]) -> dict[str, float]:
        """Return the resources that the runs of these jobs take."""
        total: dict[str, float] = {}
        for one in (one for job, one in self._running.items() if job in jobs):
            for name, amount in needs_of(one.submission).items():
                total[name] = total.get(name, 0.0) + amount
        return total

    async def train(self, job: str, quiet: str) -> int:
        """Train a job to its end; return the exit code of its run.

        Raises what `Edges.prepare` raises, Damaged, and NotBegun if it was given up meanwhile.
        """
        if job not in self._running:
            data = await answered(partial(self._store.read, orders.submission_key(job)))
            try:
                submission = orders.decode_submission(data or b"", self._signatures, job)
            except Damaged as error:
                await answered(partial(self._refuse, job, str(error)))
                raise
            if job not in self._running:  # it can have been asked for twice
                one = _Running(submission)
                self._add(job, one, self._train(one, quiet))
        return await asyncio.shield(self._running[job].task)

    async def find(self) -> None:
        """Take up the runs that an earlier worker of this machine started and that are alive.  Raises StoreError."""
        for run in paths.list_runs():
            known = lineage.recall(run)
            if known is None or known.store != self._store.url or run_files.state(run) != "running":
                continue
            if known.job in self._running:
                continue
            data = await answered(partial(self._store.read, orders.submission_key(known.job)))
            with contextlib.suppress(Damaged):  # started by hand: it takes no place
                submission = orders.decode_submission(data or b"", self._signatures, known.job)
                self._edges.say(f"{known.job} is trained here already, by run {run.id}")
                one, asked = _Running(submission), run_files.asked(run)
                one.interpreter = asked.argv[0] if asked and asked.argv else ""
                self._add(known.job, one, self._until_over(run, known.job))

        for begun in held():
            if begun.name in self._running:
                continue
            data = await answered(partial(self._store.read, orders.submission_key(begun.name)))
            with contextlib.suppress(Damaged):
                submission = orders.decode_submission(data or b"", self._signatures, begun.name)
                self._edges.say(f"{begun.name} is about to be trained here: an earlier worker began it")
                self._add(begun.name, _Running(submission), self._until_free(begun))

    def publish_kept(self) -> None:
        """Publish the ends of runs here that could not be published.  Raises StoreError."""
        for end in kept_ends.kept(self._store.url):
            with contextlib.suppress(Damaged):  # of its log: a person has to mend it first
                if not kept_ends.publish(end, self._store, self._signatures):
                    self._edges.say(
                        f"{end.job}: the end of run {end.run} is published, or another machine has the job"
                    )

    def give_up(self) -> None:
        """Have no job begin that is still being prepared."""
        for one in self._running.values():
            if one.child is None:
                one.ends.set()

    async def end(self) -> None:
        """End all runs, each with a checkpoint, and wait for them; what is being prepared does not begin."""
        for one in self._running.values():
            one.ends.set()
            if one.child is not None:
                one.child.send_signal(signal.SIGTERM)
        signalled: set[_Running] = set()
        for run in paths.list_runs():
            known = lineage.recall(run)
            asked = run_files.asked(run)
            found = self._running.get(known.job) if known else None
            if asked and found is not None and found.child is None:
                with contextlib.suppress(ProcessLookupError):
                    if run_files.state(run) == "running":
                        os.kill(asked.supervisor.pid, signal.SIGTERM)
                        signalled.add(found)
        for job, one in self._running.items():
            if one.child is None and one not in signalled and is_held(lock_of(job)):
                with contextlib.suppress(OSError):
                    if pid := _number(lock_of(job)):
                        os.kill(pid, signal.SIGTERM)
        await asyncio.gather(*(one.task for one in self._running.values()), return_exceptions=True)

    def _add(self, job: str, one: _Running, doing: Coroutine[None, None, int]) -> None:
        one.task = asyncio.ensure_future(doing)
        self._running[job] = one
        one.task.add_done_callback(lambda _: self._running.pop(job))

    async def _train(self, one: _Running, quiet: str) -> int:
        submission = one.submission
        try:
            prepared = await self._prepared(one)
        except (EnvironmentImpossible, Damaged) as error:
            await answered(partial(self._refuse, submission.job, str(error)))
            raise
        one.interpreter = prepared.interpreter
        log = log_of(submission.job)
        private.ensure(log.parent)
        child, begins = self._begin(submission, prepared, quiet, log)
        one.child = child
        self._edges.say(f"{submission.job} begins (pid {child.pid}): {shell_words(submission.words)}")
        while (code := child.poll()) is None:
            await asyncio.sleep(LOOK)
            bound(log)
        self._edges.say(f"{submission.job} ended with exit code {code}")
        if code < 0:
            await self._end_killed(submission.job, child.pid, SIGNALLED - code)
        if code and code not in ASKED_FOR and not one.ends.is_set():
            await answered(partial(self._refuse_if_not_begun, submission.job, child.pid, log, begins))
        return code

    async def _end_killed(self, job: str, pid: int, code: int = OWN_FAILURE) -> None:
        """End the training that a stallguard left as it was killed, and publish that end.

        The training has no lease, and the job can begin elsewhere.  `pid`: of that stallguard; `code`: its exit code,
        OWN_FAILURE if that is not known.
        """
        try:
            ended = await beside(partial(fleet_run.end_orphans, self._store.url, job, self._env), "ending")
        except (StallguardError, OSError) as error:
            self._edges.say(f"{job}: {error}")
            return
        for run in ended:
            self._edges.say(f"{job}: the training of run {run} is ended: its stallguard was killed")
        await answered(partial(self._free, job, pid, code))

    async def _until_over(self, run: paths.RunDir, job: str) -> int:
        while run_files.state(run) == "running":
            await asyncio.sleep(LOOK)
            bound(log_of(job))
        asked = run_files.asked(run)
        if run_files.state(run) == "lost" and asked is not None:
            await self._end_killed(job, asked.supervisor.pid)
        end = run_files.outcome(run)
        return end.code if end else 1

    async def _until_free(self, begun: Path) -> int:
        """Wait for a run that an earlier worker began and that had no directory yet."""
        pid = _number(begun)
        while is_held(begun):
            await asyncio.sleep(LOOK)
            bound(log_of(begun.name))
        guarded = ((run, lineage.recall(run), run_files.asked(run)) for run in paths.list_runs())
        mine = [
            run
            for run, known, asked in guarded
            if known and known.job == begun.name and asked and asked.supervisor.pid == pid
        ]
        if pid and not any(run_files.outcome(run) for run in mine):
            await self._end_killed(begun.name, pid)
        return 0

    async def _prepared(self, one: _Running) -> Prepared:
        """Return where a job can begin.  Raises NotBegun, and what `Edges.prepare` raises."""
        preparing = beside(partial(self._edges.prepare, one.submission, one.ends.is_set), "preparing")
        ending = asyncio.ensure_future(one.ends.wait())
        both: set[asyncio.Future[Any]] = {preparing, ending}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not one.ends.is_set():
            return preparing.result()
        await asyncio.wait({preparing}, timeout=GIVES_UP)
        self._edges.say(f"{one.submission.job} does not begin here: it was still being prepared")
        raise NotBegun(f"{self._host} takes no jobs any more; it was still preparing this one")

    def _begin(
        self, submission: Submission, prepared: Prepared, quiet: str, log: Path
    ) -> tuple[subprocess.Popen[bytes], int]:
        """Start a run; return it, and the place in its log from which on its messages are."""
        begun = lock_of(submission.job)
        private.ensure(begun.parent)
        with (
            open(log, "ab", opener=private.opener) as output,
            open(begun, "ab", opener=private.opener) as lock,
        ):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise NotBegun("a run of it that an earlier worker began is alive") from None
            begins = output.tell()
            child = subprocess.Popen(
                self._command(submission, prepared), cwd=prepared.folder, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True, env=self._environment(submission, quiet),
                pass_fds=(lock.fileno(),),
            )  # fmt: skip
            with contextlib.suppress(OSError):  # a full disk must not lose the child
                lock.truncate(0)
                os.write(lock.fileno(), b"%d" % child.pid)
        return child, begins

    def _command(self, submission: Submission, prepared: Prepared) -> Sequence[str]:
        own = ["--store", self._signatures.member.store, "--job", submission.job]
        leaves = ["--set", "policy.leave_machine=true", "--set", f"store.project={prepared.project}"]
        chosen = ["--python", prepared.interpreter] if prepared.interpreter else []
        guarded = [*own, *leaves, *chosen, *submission.options, "--", *submission.words]
        return [sys.executable, "-m", "stallguard", "run", *guarded]

    def _environment(self, submission: Submission, quiet: str) -> dict[str, str]:
        marks = {fleet_run.QUIET: quiet} if quiet else {}
        key = signing_key.of_fleet(paths.home(), self._signatures.member.token)
        own = {fleet_run.MACHINE: self._host, signing_key.VARIABLE: key}
        return {**self._env, **submission.environment, **own, **marks}

    def _refuse_if_not_begun(self, job: str, pid: int, log: Path, begins: int) -> None:
        """Refuse a job if its log in the store has no end of that run which is the script's or the machine's."""
        try:
            tail = perform(joblog.read_end(job), self._store)
        except Damaged as error:
            self._refuse(job, str(error))
            return
        claim, outcome = tail.claim, tail.outcome
        is_its_own = claim is not None and (claim.holder.host, claim.holder.pid) == (self._host, pid)
        if not is_its_own or (outcome is not None and not outcome.fault and outcome.could_not_begin):
            self._refuse(job, last_lines(log, begins))

    def _free(self, job: str, pid: int, code: int) -> None:
        """Publish the end of a run that was killed: else its lease would look like that of a lost machine."""
        with contextlib.suppress(Damaged, Fenced):  # another machine has it already
            tail = perform(joblog.read_end(job), self._store)
            claim = tail.claim
            if claim is None or tail.is_free or (claim.holder.host, claim.holder.pid) != (self._host, pid):
                return
            end = Outcome(
                number=claim.number, at=self._edges.at(), claim=0, run="", code=code, reason=KILLED,
                why=f"its stallguard was killed on {self._host}",
            )  # fmt: skip
            perform(joblog.append(job, tail, claim.number, end), self._store)

    def _refuse(self, job: str, why: str) -> None:
        """Write down that this machine cannot begin a job, so that it goes to the next one."""
        refusal = Refusal(
            schema=orders.SCHEMA, host=self._host, worker=self._worker, at=self._edges.at(), why=why
        )
        self._store.replace(
            orders.refusal_key(job, self._host), orders.encode_refusal(refusal, job, self._signatures)
        )
        self._edges.say(f"{job} cannot begin here: {why}")


def _number(begun: Path) -> int:
    """Return the process id that a job's file of fleet/begun has, 0 if it has none."""
    with contextlib.suppress(OSError, ValueError):
        return int(begun.read_text("ascii"))
    return 0
