"""A run of a job that several machines share: takes the job, goes on where it stopped, publishes, and gives it back.

It differs from a plain run in what happens before its first attempt, beside it and after its end; the run itself knows
nothing of a store.  Must not decide who has the job: stallguard.fleet does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import stallguard
from stallguard import jsontext
from stallguard.config import CurrentSettings, Loaded
from stallguard.core import shutdown
from stallguard.core.events import UserCommand
from stallguard.core.messages import duration
from stallguard.errors import CANNOT_RUN, OWN_FAILURE, STOPPED_ON_TIME, USAGE, StallguardError, was_requested
from stallguard.fleet.jobs import generations, publishing
from stallguard.fleet.jobs.generations import Publication, verify
from stallguard.fleet.jobs.publishing import ELSEWHERE, KeptEnd, PublishingReports, PublishingThread
from stallguard.fleet.machines.keeper import HeldElsewhere, LeaseKeeper, LeaseWatch, Taken, take
from stallguard.fleet.machines.machine_beat import MachineFiles
from stallguard.fleet.store import Store, StoreError, joblog, membership, opening, records, unusable
from stallguard.fleet.store.joblog import Fenced, Tail, perform
from stallguard.fleet.store.membership import Membership
from stallguard.fleet.store.opening import open_store, split
from stallguard.fleet.store.orders import JOB_NAME, Stop, decode_stop, host_name
from stallguard.fleet.store.records import Claim, Damaged, Generation, Holder, HolderEnd, MachineRecord
from stallguard.fleet.store.signing import NotSigned, Signatures
from stallguard.host import system
from stallguard.launch import earlier_run
from stallguard.launch.earlier_run import heritage
from stallguard.launch.request import Inherited, Request, command_of, prepare, project_of
from stallguard.storage import paths, run_files
from stallguard.storage.paths import RunDir
from stallguard.supervisor import terminal_lines
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.launcher import Launcher, RunOptions
from stallguard.supervisor.notices import Terminal, wants_color
from stallguard.supervisor.session import Session
from stallguard.supervisor.signals import deferred_signals

LEAST_LEASE = 3.0  # s: a renewal, its answer and the end of a training must fit into it
PATIENCE = 60.0  # s that the end of a run waits for a store that does not answer
QUIET = "STALLGUARD_JOB_QUIET"  # the mark of a lease that the fleet's dispatcher has watched run out
MACHINE = "STALLGUARD_MACHINE"  # another name for this machine than the system's
ORPHANED = "its stallguard was killed, and a new run takes the job"
SIGNALS = {"term": "TERM", "kill": "KILL"}


class HeldJob(NamedTuple):
    """A job that is ours.  `claimed`: with our claim; `now`: seconds that also pass while the machine sleeps."""

    name: str
    store: Store
    claimed: Taken
    lasts: float
    now: Callable[[], float]

    @property
    def tail(self) -> Tail:
        """The log as our claim found it."""
        return self.claimed.tail

    @property
    def machine(self) -> MachineFiles:
        """What there is to do with the worker of this machine."""
        assert self.tail.claim is not None  # noqa: S101 - ours
        return MachineFiles(self.store.url, self.tail.claim.holder.host, self.tail.claim.holder.boot)


def guard(words: tuple[str, ...], settings: CurrentSettings, env: Mapping[str, str], name: str = "") -> int:
    """Train the job of the settings, if it is not trained elsewhere and not done; return the exit code.

    Raises StallguardError.
    """
    cwd, loaded = Path.cwd(), settings.loaded
    _refuse(loaded)
    command_of(words, loaded, env, cwd)  # raises now if it cannot be started
    wanted = loaded.config.output
    color = wants_color(wanted.color, env, tty=terminal_lines.look(2).kind == "terminal")
    screen = Terminal(sys.stderr, quiet=wanted.quiet, color=color, verbose=wanted.verbose)
    try:
        fleet = membership.recall(env)
        signatures = Signatures(fleet) if fleet else None  # with which orders are verified
        job = _taken(loaded, screen, signatures)
        if isinstance(job, HolderEnd):
            if not job.is_finished:
                raise _stopped(loaded.config.store.job, job.why, job.at)
            facts = {"job": loaded.config.store.job, "run": job.run, "at": job.at}
            screen.announce("job.done", facts)
            return 0
        screen.announce("job.taken", {"job": job.name, "number": str(job.tail.number)})
        return _trained(job, words, settings, env, name, screen, signatures)
    finally:
        screen.close()


def _refuse(loaded: Loaded) -> None:
    store, wanted = loaded.config.store, loaded.config.run.resume
    if not store.url:
        raise StallguardError("store.job needs a store", cure="name one: --store file:///share/fleet", code=USAGE)
    if not JOB_NAME.fullmatch(store.job):
        why = "it is part of a path in the store: letters, digits, dots, dashes and underscores"
        raise StallguardError(f"{store.job!r} cannot be the name of a job", why=why, code=USAGE)
    if wanted:
        raise StallguardError(
            f"run.resume ({loaded.origins['run.resume']}) and store.job contradict each other",
            why="a job goes on from its newest published checkpoint, on any machine",
            cure="leave out --resume; to start from scratch, choose another name for the job",
            code=USAGE,
        )
    if not LEAST_LEASE <= store.lease <= records.LONGEST_LEASE:
        raise StallguardError(
            f"store.lease cannot be {duration(store.lease)}",
            cure=f"choose {duration(LEAST_LEASE)} to {duration(records.LONGEST_LEASE)}",
            code=USAGE,
        )


def _asked_to_stop(store: Store, job: str, signatures: Signatures | None) -> Stop | None:
    """Return the order to end a job; None if no member of this fleet has given one.  Raises StoreError."""
    data = store.read(Stop.place(job=job)) if signatures else None
    if data is None or signatures is None:
        return None
    signatures.refresh(store)
    with contextlib.suppress(Damaged):
        return decode_stop(data, signatures, job)
    return None


def _stopped(job: str, why: str, at: str) -> StallguardError:
    return StallguardError(
        f"job {job} was stopped: nothing is trained",
        why=f"{why}, at {at}",
        cure="a stopped job stays stopped; to train it anew, give it another name: --job NAME",
        code=CANNOT_RUN,
    )


def _opened(url: str, fleet: Membership | None) -> Store:
    """Return the store of a URL.  Raises StoreError; StallguardError also if it is not that of `fleet`."""
    if fleet and split(fleet.store) == split(url):
        return opening.open_fleet_store(fleet)
    return open_store(url)


def _taken(loaded: Loaded, screen: Terminal, signatures: Signatures | None) -> HeldJob | HolderEnd:
    settings, clock = loaded.config.store, system

    def now() -> float:
        return clock.monotonic() + clock.asleep()

    def watched(by: Claim) -> None:
        facts = {"job": settings.job, "duration": duration(settings.lease)}
        screen.announce("job.watched", facts | _holder(by))

    about = system.facts()
    host = machine_name(os.environ)
    holder = Holder(
        host=host, boot=system.boot(), pid=os.getpid(), nonce=os.urandom(8).hex(), lasts=settings.lease,
        about=dict(about),
    )  # fmt: skip
    card = MachineRecord(
        schema=records.SCHEMA, host=host, boot=holder.boot, at=run_files.utc(), version=stallguard.__version__,
        about=dict(about),
    )  # fmt: skip
    try:
        store = _opened(settings.url, signatures.member if signatures else None)
        if stop := _asked_to_stop(store, settings.job, signatures):
            raise _stopped(settings.job, f"you asked ({stop.by})", stop.at)
        mine = f"machines/{host}", jsontext.exact(card)
        store.replace(*mine)
        for end in publishing.kept(store.url, settings.job):  # of an earlier run here
            publishing.publish(end, store, signatures)
        watching = LeaseWatch(now, time.sleep, watched, lambda: store.replace(*mine))
        taken = take(store, settings.job, holder, run_files.utc, watching, os.environ.get(QUIET, ""))
    except HeldElsewhere as error:
        who = _holder(error.by)
        raise StallguardError(
            f"job {settings.job} is being trained by {who['host']} (pid {who['pid']})",
            why=f"it has had the job since {error.by.at} as holder {error.by.number}, and renews its lease",
            cure=f"wait for its end, or end it: stallguard stop {settings.job} --store {settings.url}",
            code=STOPPED_ON_TIME,
        ) from error
    except StoreError as error:
        raise unusable(settings.url, error) from error
    except Damaged as error:
        raise StallguardError(
            f"job {settings.job} cannot go on",
            why=str(error),
            cure="put it back from a backup of the store; or start the training anew under another name: --job NAME",
            code=CANNOT_RUN,
        ) from error
    return taken if isinstance(taken, HolderEnd) else HeldJob(settings.job, store, taken, settings.lease, now)


def end_orphans(store: str, job: str, env: Mapping[str, str]) -> list[str]:
    """End the trainings of a job on this machine whose stallguard was killed; return their runs.

    They have no lease, so another run can have the job at any moment.  A training makes a last checkpoint if it can.
    Raises StallguardError if one does not end.
    """
    found = []
    for run, _ in generations.runs_of(store, job):
        if (attempt := earlier_run.find_orphan(run)) is None:
            continue
        if earlier_run.end_orphan(run, attempt, ORPHANED):
            raise StallguardError(
                f"the training of run {run.id} (pid {attempt.process.pid}) does not end; its stallguard was killed",
                why=f"job {job} must not be trained twice on {machine_name(env)}",
                cure="another machine can take the job; this one has to be started anew if the process stays",
                code=CANNOT_RUN,
            )
        found.append(run.id)
    return found


def machine_name(env: Mapping[str, str]) -> str:
    """Return the name of this machine in a fleet, which is part of paths in the store."""
    return host_name(env.get(MACHINE) or os.uname().nodename)


def _holder(claim: Claim) -> dict[str, str]:
    return {"host": claim.holder.host, "pid": str(claim.holder.pid)}


def _trained(
    job: HeldJob, words: tuple[str, ...], settings: CurrentSettings, env: Mapping[str, str], name: str,
    screen: Terminal, signatures: Signatures | None,
) -> int:  # fmt: skip
    """Train a job that is ours; give it back in any case."""
    loaded, thread = settings.loaded, list[PublishingThread]()

    def asked() -> str:
        for one in thread:  # a scheduler has news of this job for a reader too
            one.want()
        stop = _asked_to_stop(job.store, job.name, signatures)
        return f"you asked ({stop.by}, at {stop.at})" if stop else ""

    publication = Publication(job.name, job.tail.number, job.tail, signatures)
    keeper = LeaseKeeper(
        job.store, job.name, job.tail, job.claimed.began, job.lasts, job.now,
        ends_if_away=loaded.config.store.if_away == "end", asked=asked, machine=job.machine,
    )  # fmt: skip
    keeper.start()
    request: Request | None = None
    is_given_back, failed, why_not = False, OWN_FAILURE, ""
    try:
        with deferred_signals() as kept:
            for run in end_orphans(job.store.url, job.name, env):
                screen.announce("job.orphan_ended", {"job": job.name, "run": run})
            request, slot = _prepared(job, words, loaded, env, name, screen, signatures)
            generations.keep(request.run, job.store.url, job.name, slot)

            def beside(context: RunContext, launcher: Launcher) -> None:
                keeper.attach(lambda order, why: _obey(order, why, context, launcher))
                reports = PublishingReports(
                    context.reporter.trouble, lambda text: context.reporter.note("store", text), keeper.fenced
                )
                made = PublishingThread(
                    job.store, job.name, publication, context.directory, loaded.config.store.cost, reports,
                    session.status, job.machine,
                )  # fmt: skip
                thread.append(made)
                made.start()

            session = Session(request, settings, env, RunOptions(beside=beside))
            code = session.guard(kept)
            facts = _facts_of_end(request.run, session, loaded)
            facts["final"] = bool(keeper.stopped and code)
            ended_why = end.why if (end := run_files.outcome(request.run)) else ""
            why = thread[0].conclude(code, ended_why, min(PATIENCE, job.lasts), **facts)
            is_given_back = True
            thread[0].close()
            if why and why != ELSEWHERE:  # that was said when it was noticed
                mine = (job.store.url, job.name, request.run.id, job.tail.number)
                publishing.keep(KeptEnd(publishing.SCHEMA, *mine, code, ended_why, facts))
                screen.announce("job.not_concluded", {"job": job.name, "why": why})
            return code
    except StallguardError as error:
        failed, why_not = error.code, f": {'; '.join(error.lines()[:2])}"
        raise
    finally:
        if not is_given_back:  # nothing was trained: the next one need not wait
            with contextlib.suppress(StoreError, Fenced):
                run = request.run.id if request else ""
                given_back = publication.conclude(
                    run, run_files.utc(), failed, f"it could not begin{why_not}", reason=records.NOT_BEGUN
                )
                perform(given_back, job.store)
        keeper.close()


def _facts_of_end(run: RunDir, session: Session, loaded: Loaded) -> dict[str, Any]:
    """Return the facts of a records.HolderEnd that say who ended a run, and whether the machine is the reason."""
    end, ended = run_files.outcome(run), session.context.current.run
    requested = end is not None and was_requested(end.code, end.why, end.script_code)
    return {
        "fault": shutdown.machine_at_fault(ended, loaded.config.policy.healthy) if ended else "",
        "script_code": ended.current.script_code if ended else None,
        "reason": records.REQUESTED if requested else "",
    }


def _obey(order: str, why: str, context: RunContext, launcher: Launcher) -> None:
    """Do what the lease orders; from the thread that counts its time."""
    if order == "end":
        context.mailbox.post(UserCommand(at=context.clock.monotonic(), verb="finish", argument=why))
    else:
        launcher.signal(SIGNALS[order])


def _announce_another_machine(job: HeldJob, generation: Generation, screen: Terminal) -> None:
    """Say if bits can differ from now on, because the checkpoint was made by another chip or system."""
    try:
        claim = perform(joblog.entry_at(job.name, generation.claim), job.store)
    except StoreError:
        claim = None
    if not isinstance(claim, Claim) or not claim.holder.about:
        screen.announce("job.unknown_machine", {})
    elif others := generations.differences(claim.holder.about, system.facts()):
        screen.announce("job.another_machine", {"host": claim.holder.host, "differences": others})


def _prepared(
    job: HeldJob, words: tuple[str, ...], loaded: Loaded, env: Mapping[str, str], name: str, screen: Terminal,
    signatures: Signatures | None,
) -> tuple[Request, int]:  # fmt: skip
    """Return the request of a run that goes on from the job's newest generation that is whole, and its slot.

    It is fetched, if it is not here.  In the store of the fleet of `signatures` a member has to have published it; if
    none has, the training starts over.
    """
    cwd = Path.cwd()
    project = project_of(loaded, cwd)
    here = generations.newest(job.store.url, job.name, job.tail.newest)
    if here is not None:
        heritage(here.id, command_of(words, loaded, env, cwd).argv, cwd, project)
        inherited = Inherited(here.id, here)
        return prepare(words, loaded, env, cwd, name=name, inherited=inherited), job.tail.newest
    if job.tail.generation is None:
        return prepare(words, loaded, env, cwd, name=name), job.tail.newest
    fetched = RunDir(paths.home() / "fetched" / f"{job.name}-{os.getpid()}")
    try:
        if signatures is not None and split(signatures.member.store) != split(job.store.url):
            signatures = None  # in that store those who are in no fleet train too
        if signatures is not None:
            signatures.refresh(job.store)
        generation, slot = _fetched(job, job.tail.generation, fetched, screen, signatures)
        inherited = Inherited(generation.run, fetched)
        return prepare(words, loaded, env, cwd, name=name, inherited=inherited), slot
    except NotSigned as error:
        screen.announce("job.generation_foreign", {"job": job.name, "why": str(error)})
        return prepare(words, loaded, env, cwd, name=name), job.tail.newest
    except (StoreError, Damaged, OSError) as error:
        raise unusable(job.store.url, error) from error
    finally:
        shutil.rmtree(fetched.path, ignore_errors=True)


def _fetched(
    job: HeldJob, generation: Generation, place: RunDir, screen: Terminal, signatures: Signatures | None
) -> tuple[Generation, int]:
    """Fetch the newest generation that is whole; return it and its slot.  Raises Damaged if none is, and as `fetch`."""
    slot = job.tail.newest
    while True:
        try:
            if signatures is not None:
                verify(generation, job.name, signatures)
            screen.announce("job.fetched", {"job": job.name, "run": generation.run, "at": generation.at})
            generations.fetch_generation(job.store, job.name, generation, place)
        except Damaged as error:
            older = perform(joblog.entry_at(job.name, generation.newest), job.store) if generation.newest else None
            if not isinstance(older, Generation) or generation.newest >= slot:
                raise
            facts = {"job": job.name, "at": generation.at, "why": str(error), "before": older.at}
            screen.announce("job.generation_damaged", facts)
            generation, slot = older, generation.newest
        else:
            _announce_another_machine(job, generation, screen)
            return generation, slot
