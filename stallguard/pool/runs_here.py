"""The runs of jobs on this machine: `stallguard run --store --job` as child processes of the worker.

A run outlives its worker: it is the leader of its own session, and holds the job's lease itself.  So a worker that is
killed costs no training; one that starts again finds the runs that are alive and counts them as taken.

A worker ends a run (its hours are over, a user ends the worker) by SIGTERM: it ends with a checkpoint and frees the
lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stallguard.fleet import joblog, lineage, orders
from stallguard.fleet.joblog import perform
from stallguard.fleet.membership import Membership
from stallguard.fleet.orders import Refusal, Submission
from stallguard.fleet.records import ASKED_FOR, OWN_ENDS, Damaged
from stallguard.fleet.store import Store, StoreError
from stallguard.pool.dispatch import needs_of
from stallguard.pool.environments import EnvironmentImpossible
from stallguard.storage import paths, private, run_files
from stallguard.supervisor import fleet_run

LOOK = 1.0  # s between two looks at a run that an earlier worker started
LAST_LINES = 3  # of a run's messages, in the reason why it could not begin


class Prepared(NamedTuple):
    """Code and environment of a job on this machine.  `folder`: of the command; `project`: the unpacked one."""

    folder: Path
    project: Path
    interpreter: str


class Edges(NamedTuple):
    """`prepare` fetches and makes code and environment; raises EnvironmentImpossible, StoreError, Damaged, OSError."""

    prepare: Callable[[Submission], Prepared]
    at: Callable[[], str]
    say: Callable[[str], None]


class RunsHere:
    """The runs on this machine.  `worker`: the random name of this worker process."""

    def __init__(
        self,
        membership: Membership,
        store: Store,
        host: str,
        worker: str,
        env: Mapping[str, str],
        edges: Edges,
    ) -> None:
        """`host`: this machine's name; `env`: of this process."""
        self._membership, self._store, self._edges = membership, store, edges
        self._host, self._worker, self._env = host, worker, env
        self._running: dict[str, tuple[Submission, asyncio.Task[int]]] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that are trained here."""
        return tuple(sorted(self._running))

    def taken(self, jobs: Collection[str]) -> dict[str, float]:
        """Return the resources that the runs of these jobs take."""
        total: dict[str, float] = {}
        for submission in (one for job, (one, _) in self._running.items() if job in jobs):
            for name, amount in needs_of(submission).items():
                total[name] = total.get(name, 0.0) + amount
        return total

    async def train(self, job: str, quiet: str) -> int:
        """Train a job to its end; return the exit code of its run.  Raises what `Edges.prepare` raises, and Damaged."""
        if job not in self._running:
            data = await asyncio.to_thread(self._store.read, orders.submission_key(job))
            submission = orders.decode_submission(data or b"", self._membership.token, job)
            self._add(job, submission, self._train(submission, quiet))
        return await asyncio.shield(self._running[job][1])

    def find(self) -> None:
        """Take up the runs that an earlier worker of this machine started and that are alive."""
        for run in paths.list_runs():
            known = lineage.recall(run)
            if known is None or known.store != self._store.url or run_files.state(run) != "running":
                continue
            with contextlib.suppress(Damaged, StoreError):  # started by hand: it takes no place
                data = self._store.read(orders.submission_key(known.job))
                submission = orders.decode_submission(data or b"", self._membership.token, known.job)
                self._edges.say(f"{known.job} is trained here already, by run {run.id}")
                self._add(known.job, submission, _until_over(run))

    async def end(self) -> None:
        """End all runs, each with a checkpoint, and wait for them."""
        for child in self._children.values():
            child.send_signal(signal.SIGTERM)
        for run in paths.list_runs():
            known = lineage.recall(run)
            asked = run_files.asked(run)
            if known and asked and known.job in self._running and known.job not in self._children:
                with contextlib.suppress(ProcessLookupError):
                    if run_files.state(run) == "running":
                        os.kill(asked.supervisor.pid, signal.SIGTERM)
        await asyncio.gather(*(task for _, task in self._running.values()), return_exceptions=True)

    def _add(self, job: str, submission: Submission, doing: Coroutine[None, None, int]) -> None:
        task = asyncio.ensure_future(doing)
        self._running[job] = (submission, task)
        task.add_done_callback(lambda _: self._running.pop(job))

    async def _train(self, submission: Submission, quiet: str) -> int:
        try:
            prepared = await asyncio.to_thread(self._edges.prepare, submission)
        except (EnvironmentImpossible, Damaged) as error:
            await asyncio.to_thread(self._refuse, submission.job, str(error))
            raise
        log = paths.home() / "fleet" / "logs" / f"{submission.job}.log"
        private.ensure(log.parent)
        child, begins = self._begin(submission, prepared, quiet, log)
        self._children[submission.job] = child
        self._edges.say(f"{submission.job} begins (pid {child.pid}): {shlex.join(submission.words)}")
        try:
            while (code := child.poll()) is None:  # noqa: ASYNC110 - asyncio ends its own children with its loop
                await asyncio.sleep(LOOK)
        finally:
            del self._children[submission.job]
        self._edges.say(f"{submission.job} ended with exit code {code}")
        if code and code not in ASKED_FOR:
            await asyncio.to_thread(self._refuse_if_not_begun, submission.job, child.pid, log, begins)
        return code

    def _begin(
        self, submission: Submission, prepared: Prepared, quiet: str, log: Path
    ) -> tuple[subprocess.Popen[bytes], int]:
        """Start a run; return it, and the place in its log from which on its messages are."""
        with open(log, "ab", opener=private.opener) as output:
            begins = output.tell()
            child = subprocess.Popen(
                self._command(submission, prepared), cwd=prepared.folder, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True, env=self._environment(submission, quiet),
            )  # fmt: skip
        return child, begins

    def _command(self, submission: Submission, prepared: Prepared) -> Sequence[str]:
        own = ["--store", self._membership.store, "--job", submission.job]
        leaves = ["--set", "policy.leave_machine=true", "--set", f"store.project={prepared.project}"]
        chosen = ["--python", prepared.interpreter] if prepared.interpreter else []
        guarded = [*own, *leaves, *chosen, *submission.options, "--", *submission.words]
        return [sys.executable, "-m", "stallguard", "run", *guarded]

    def _environment(self, submission: Submission, quiet: str) -> dict[str, str]:
        marks = {fleet_run.QUIET: quiet} if quiet else {}
        return {**self._env, **submission.environment, fleet_run.MACHINE: self._host, **marks}

    def _refuse_if_not_begun(self, job: str, pid: int, log: Path, begins: int) -> None:
        """Refuse a job if its log in the store has no end of that run which is the script's or the machine's."""
        try:
            tail = perform(joblog.read_end(job), self._store)
        except Damaged as error:
            self._refuse(job, str(error))
            return
        claim, outcome = tail.claim, tail.outcome
        is_its_own = claim is not None and (claim.holder.host, claim.holder.pid) == (self._host, pid)
        if not is_its_own or (outcome is not None and not outcome.fault and outcome.code in OWN_ENDS):
            self._refuse(job, _last_lines(log, begins))

    def _refuse(self, job: str, why: str) -> None:
        """Write down that this machine cannot begin a job, so that it goes to the next one."""
        refusal = Refusal(
            schema=orders.SCHEMA, host=self._host, worker=self._worker, at=self._edges.at(), why=why
        )
        self._store.replace(orders.refusal_key(job, self._host), orders.encode(refusal))
        self._edges.say(f"{job} cannot begin here: {why}")


async def _until_over(run: paths.RunDir) -> int:
    while run_files.state(run) == "running":  # noqa: ASYNC110 - a process that is not ours sends no event
        await asyncio.sleep(LOOK)
    end = run_files.outcome(run)
    return end.code if end else 1


def _last_lines(log: Path, begins: int) -> str:
    with log.open("rb") as file:
        file.seek(begins)
        lines = file.read()[-4096:].decode(errors="replace").splitlines()
    texts = [line.removeprefix("stallguard: ").strip() for line in lines if line.strip()]
    return "; ".join(texts[-LAST_LINES:]) or "it ended without a message"
