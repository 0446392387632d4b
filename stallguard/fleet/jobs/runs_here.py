"""The runs of jobs on this machine: `stallguard run --store --job` as child processes of the worker.

A run outlives its worker: it is the leader of its own session, and holds the job's lease itself.  So a worker that is
killed costs no training; one that starts again finds the runs that are alive and counts them as taken.  A run has no
directory before it has the lease and its checkpoint, which takes minutes at worst; so from its first moment on it holds
the lock of a file, fleet/begun/<job>, which has its process id.

A worker ends a run (its hours are over, a user ends the worker) by SIGTERM: it ends with a checkpoint and frees the
lease.  A job whose code and environment are still being prepared then is given up: it must not begin afterwards.

`train_one` is `stallguard fleet job NAME`, for engines that start commands: what a worker does with a job, without it.
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
from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, OWN_FAILURE, SIGNALLED, STOPPED_ON_TIME, StallguardError
from stallguard.fleet.jobs import generations, held_run, preparing, publishing
from stallguard.fleet.jobs.dispatch import needs_of
from stallguard.fleet.jobs.preparing import EnvironmentImpossible, Prepared
from stallguard.fleet.store import Store, StoreError, joblog, opening, orders, unusable
from stallguard.fleet.store.beside_loop import answered, beside
from stallguard.fleet.store.joblog import Fenced, perform
from stallguard.fleet.store.membership import Membership, own_host
from stallguard.fleet.store.orders import Refusal, Submission
from stallguard.fleet.store.records import ASKED_FOR, KILLED, Damaged, HolderEnd
from stallguard.fleet.store.signing import Signatures
from stallguard.launch.environment import KEY_VARIABLE, fleet_signing_key
from stallguard.storage import paths, private, run_files

LOOK = 1.0  # s between two looks at a run that an earlier worker started
GIVES_UP = 5.0  # s that a preparation has to end
MOST_LOG = 16 << 20  # bytes of what a job's runs print here; the run itself keeps its output and turns it
LAST_LINES = 3  # of a run's messages, in the reason why it could not begin


class NotBegun(Exception):
    """A job was given up before it began here; another machine can take it."""


class Edges(NamedTuple):
    """`prepare` fetches and makes code and environment; raises EnvironmentImpossible, StoreError, Damaged, OSError.

    It is given a function that says whether the job was given up meanwhile, and ends soon then, with any result.
    """

    prepare: Callable[[Submission, Callable[[], bool]], Prepared]
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
        self, signatures: Signatures, store: Store, host: str, worker: str, env: Mapping[str, str], edges: Edges,
    ) -> None:  # fmt: skip
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
            try:
                submission = await self._submission(job)
            except Damaged as error:
                await answered(partial(self._refuse, job, str(error)))
                raise
            if job not in self._running:  # it can have been asked for twice
                one = _Running(submission)
                self._add(job, one, self._train(one, quiet))
        return await asyncio.shield(self._running[job].task)

    async def find(self) -> None:
        """Take up the runs that an earlier worker of this machine started and that are alive.  Raises StoreError."""
        for run, job in generations.runs_of(self._store.url):
            if job in self._running or run_files.state(run) != "running":
                continue
            with contextlib.suppress(Damaged):  # started by hand: it takes no place
                submission = await self._submission(job)
                self._edges.say(f"{job} is trained here already, by run {run.id}")
                one, asked = _Running(submission), run_files.asked(run)
                one.interpreter = asked.argv[0] if asked and asked.argv else ""
                self._add(job, one, self._until_over(run, job))

        for begun in held():
            if begun.name in self._running:
                continue
            with contextlib.suppress(Damaged):
                submission = await self._submission(begun.name)
                self._edges.say(f"{begun.name} is about to be trained here: an earlier worker began it")
                self._add(begun.name, _Running(submission), self._until_free(begun))

    async def _submission(self, job: str) -> Submission:
        """Return what was submitted.  Raises StoreError and Damaged."""
        data = await answered(partial(self._store.read, orders.Submission.place(job=job)))
        return orders.decode_submission(data or b"", self._signatures, job)

    def publish_kept(self) -> None:
        """Publish the ends of runs here that could not be published.  Raises StoreError."""
        for end in publishing.kept(self._store.url):
            with contextlib.suppress(Damaged):  # of its log: a person has to mend it first
                if not publishing.publish(end, self._store, self._signatures):
                    self._edges.say(f"{end.job}: the end of run {end.run} is published, or another machine has the job")

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
        for run, job in generations.runs_of(self._store.url):
            asked, found = run_files.asked(run), self._running.get(job)
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
            ended = await beside(partial(held_run.end_orphans, self._store.url, job, self._env), "ending")
        except (StallguardError, OSError) as error:
            self._edges.say(f"{job}: {error}")
            return
        for run in ended:
            self._edges.say(f"{job}: the training of run {run} is ended: its stallguard was killed")
        await answered(partial(self._free, job, pid, code))

    async def _until_over(self, run: paths.RunDir, job: str) -> int:
        # Its process publishes its end after it has written one here.
        while run_files.state(run) == "running" or is_held(lock_of(job)):
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
        runs = (run for run, _ in generations.runs_of(self._store.url, begun.name))
        mine = [run for run in runs if (asked := run_files.asked(run)) and asked.supervisor.pid == pid]
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
        with open(log, "ab", opener=private.opener) as output, open(begun, "ab", opener=private.opener) as lock:
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
        marks = {held_run.QUIET: quiet} if quiet else {}
        key = fleet_signing_key(paths.home(), self._signatures.member.token)
        own = {held_run.MACHINE: self._host, KEY_VARIABLE: key}
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
            end = HolderEnd(
                number=claim.number, at=run_files.utc(), claim=0, run="", code=code, reason=KILLED,
                why=f"its stallguard was killed on {self._host}",
            )  # fmt: skip
            perform(joblog.append(job, tail, claim.number, end), self._store)

    def _refuse(self, job: str, why: str) -> None:
        """Write down that this machine cannot begin a job, so that it goes to the next one."""
        refusal = Refusal(
            schema=orders.SCHEMA, job=job, host=self._host, worker=self._worker, at=run_files.utc(), why=why
        )
        self._store.replace(orders.Refusal.place(job=job, host=self._host), orders.encode(refusal, self._signatures))
        self._edges.say(f"{job} cannot begin here: {why}")


def _number(begun: Path) -> int:
    """Return the process id that a job's file of fleet/begun has, 0 if it has none."""
    with contextlib.suppress(OSError, ValueError):
        return int(begun.read_text("ascii"))
    return 0


def locks() -> Path:
    """Return the folder of the files of which runs hold the locks."""
    return paths.home() / "fleet" / "begun"


def lock_of(job: str) -> Path:
    """Return the file of which a run of a job on this machine holds the lock."""
    return locks() / job


def held() -> list[Path]:
    """Return the files of the runs that are alive; each has the name of its job."""
    return sorted(path for path in locks().glob("*") if is_held(path))


def is_held(lock: Path) -> bool:
    """Return whether a run that is alive holds the lock of its file."""
    try:
        with open(lock, "rb", opener=private.opener) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def logs() -> Path:
    """Return the folder of what the runs of jobs print here."""
    return paths.home() / "fleet" / "logs"


def log_of(job: str) -> Path:
    """Return the file of what the runs of a job print here."""
    return logs() / f"{job}.log"


def bound(log: Path) -> None:
    """Empty a log that is too large; what writes to it appends, and goes on at its beginning."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > MOST_LOG:
            os.truncate(log, 0)


def last_lines(log: Path, begins: int) -> str:
    """Return what a run said last, in a line.  `begins`: where its output begins in the file."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(begins if begins <= size else 0, size - 4096))  # it can have been emptied meanwhile
        lines = file.read().decode(errors="replace").splitlines()
    texts = [line.removeprefix("stallguard: ").strip() for line in lines if line.strip()]
    return "; ".join(texts[-LAST_LINES:]) or "it ended without a message"


def train_one(membership: Membership, job: str, env: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Train a job to its end; return the exit code of its run.  SIGINT and SIGTERM end it with a checkpoint.

    Raises StallguardError: exit code 3 if there is no such job, 75 if this machine must not take it now, 126 if it
    cannot begin here.
    """
    store = opening.open_fleet_store(membership)
    host, signatures = own_host(membership.name, held_run.machine_name(env)), Signatures(membership)
    try:
        if trouble := signatures.refresh(store):
            say(trouble)
        _refuse_one(store, signatures, job, host)
        edges = Edges(partial(preparing.prepare, store, env), say)
        runs = RunsHere(signatures, store, host, os.urandom(4).hex(), env, edges)
        return asyncio.run(_trained_to_its_end(runs, job))
    except NotBegun as error:
        raise StallguardError(f"job {job} was ended before it began", why=str(error), code=STOPPED_ON_TIME) from error
    except (EnvironmentImpossible, Damaged, OSError) as error:
        raise StallguardError(
            f"job {job} cannot begin on {host}",
            why=str(error),
            cure=f"stallguard status {job} shows how it stands; or submit it again under another name",
            code=CANNOT_RUN,
        ) from error
    except StoreError as error:
        raise unusable(membership.store, error) from error


async def _trained_to_its_end(runs: RunsHere, job: str) -> int:
    loop = asyncio.get_running_loop()
    ends: set[asyncio.Task[None]] = set()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: ends.add(asyncio.ensure_future(runs.end())))
    return await runs.train(job, "")


def _refuse_one(store: Store, signatures: Signatures, job: str, host: str) -> None:
    data = store.read(orders.Submission.place(job=job)) if orders.JOB_NAME.fullmatch(job) else None
    if data is None:
        raise StallguardError(
            f"there is no job {job} in {store.url}",
            cure=f"submit it first: stallguard fleet submit --name {job} train.py",
            code=NO_SUCH_RUN,
        )
    orders.decode_submission(data, signatures, job)
    cordon = store.read(orders.Cordon.place(host=host))
    found = orders.decode_cordon(cordon, host, signatures) if cordon is not None else None
    if found is not None and not found.is_lifted and not found.lifts_itself:
        raise StallguardError(
            f"machine {host} takes no jobs",
            why=f"it is cordoned: {found.why}",
            cure=f"when it is mended: stallguard fleet uncordon {host}",
            code=STOPPED_ON_TIME,
        )
