"""What the verbs of `stallguard fleet` do, without their options and words: found, serve, submit, list, cordon.

Each is called once in a process, and imports what it needs: `fleet machines` must not wait for Dask.  What a person
should know is given to `say`, a line each.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import getpass
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stallguard.core.text import counted
from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, USAGE, StallguardError
from stallguard.fleet.jobs import view
from stallguard.fleet.store import Store, StoreError, membership, opening, orders, signing, unusable
from stallguard.fleet.store.membership import Membership
from stallguard.fleet.store.records import Damaged
from stallguard.fleet.store.signing import Signatures
from stallguard.storage import run_files

if TYPE_CHECKING:
    from stallguard.fleet.jobs.submitting import Submitted
    from stallguard.fleet.machines.machine_list import FleetMachines

Say = Callable[[str], None]


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def found(
    store_url: str, scheduler: str, days: int | None, authority_file: str | None, name: str, *, force: bool
) -> list[str]:
    """Make a fleet, whose first member is this machine; return what follows.  Raises StallguardError."""
    signing.require_package()
    from stallguard.fleet.machines import founding

    place, lasts = membership.path(os.environ), days or founding.DAYS
    by = Path(authority_file or founding.beside(place))
    member = founding.found(store_url, scheduler, lasts, place, by, _now(), force=force, name=name)
    host = member.scheduler.removeprefix("tls://")
    return [
        f"{member.fleet}: made, with the store {member.store}",
        f"this machine is its member {member.name}, by {place}, for {counted(lasts, 'day')}",
        f"1. {by} makes and revokes members: keep it offline, or on this machine alone",
        "2. for each other machine or person: stallguard fleet invite NAME, and copy that file to it",
        f"3. on {host.rpartition(':')[0]}: stallguard fleet scheduler --install",
        "4. on each machine that trains: stallguard fleet worker --install",
    ]


def renew(days: int | None, authority_file: str | None) -> list[str]:
    """Make a new certificate for this machine; return what follows.  Raises StallguardError."""
    signing.require_package()
    from stallguard.fleet.machines import founding

    place, lasts = membership.path(os.environ), days or founding.DAYS
    by = Path(authority_file or founding.beside(place))
    before = membership.required(os.environ)
    member = founding.invite(before, before.name, lasts, place, by, _now(), force=True)
    return [
        f"{member.fleet}: a new certificate of {member.name} for {counted(lasts, 'day')} in {place}",
        "restart the services of this machine; for each other member: stallguard fleet invite NAME",
    ]


def invite(name: str, out: str | None, days: int | None, authority_file: str | None, *, force: bool) -> list[str]:
    """Make the fleet file of one more member; return what follows.  Raises StallguardError."""
    signing.require_package()
    from stallguard.fleet.machines import authority, founding

    member, own = membership.required(os.environ), membership.path(os.environ)
    file = Path(out) if out else own.with_name(f"{own.stem}-{authority.checked_name(name)}.toml")
    by = Path(authority_file or founding.beside(own))
    founding.invite(member, name, days or founding.DAYS, file, by, _now(), force=force)
    return [
        f"{file}: makes who has it the member {name} of {member.fleet}, who can start programs on each machine",
        f"move it to ~/.config/stallguard/{membership.NAME} on that machine alone (scp -p, then remove it here)",
    ]


def revoke(name: str, authority_file: str | None) -> None:
    """Turn a member out of the fleet.  Raises StallguardError."""
    signing.require_package()
    from stallguard.fleet.machines import founding

    by = Path(authority_file or founding.beside(membership.path(os.environ)))
    founding.revoke(membership.required(os.environ), name, by, _now())


def serve_scheduler(listen: str, say: Say, *, dashboard: bool) -> None:
    """Be the scheduler until a signal comes.  Raises StallguardError."""
    member, where = _listening(listen, dashboard=dashboard)
    from stallguard.fleet.engine import scheduler_process
    from stallguard.fleet.machines import services

    services.trim_log("scheduler")
    scheduler_process.serve(member, where, say, dashboard=dashboard)


def install_scheduler(listen: str, *, dashboard: bool) -> list[str]:
    """Have the scheduler run at all times; return what follows.  Raises StallguardError."""
    from stallguard.fleet.machines import services

    member, where = _listening(listen, dashboard=dashboard)
    words = ("--listen", where, *(("--dashboard",) if dashboard else ()))
    return services.install("scheduler", words, member.store, os.environ)


def _listening(listen: str, *, dashboard: bool) -> tuple[Membership, str]:
    """Return the fleet file, and the address to listen on."""
    from stallguard.fleet.engine import dask_engine
    from stallguard.fleet.machines import member_tls

    member = _checked_member()
    port = member_tls.endpoint(member.scheduler)[1]
    where = member_tls.scheduler_address(listen).removeprefix("tls://") if listen else f"0.0.0.0:{port}"
    if dashboard:
        dask_engine.require_dashboard()
    return member, where


def work(
    name: str | None, slots: int, memory: int | None, between: tuple[str, str] | None, say: Say, *,
    mains_only: bool, install: bool,
) -> list[str]:  # fmt: skip
    """Be the worker of this machine until a signal comes; `install`: have it run at all times, return what follows.

    `memory`: bytes for jobs.  Raises StallguardError.
    """
    from stallguard.fleet.machines import machine_list, offers, services

    window, member = offers.window(*between) if between else None, _checked_member()
    own = membership.own_host(member.name, orders.host_name(os.uname().nodename))
    host = machine_list.checked_host(name, member.name) if name else own
    if install:
        # The name is fixed: the host name of a laptop changes with its network.
        words = ["--name", host, "--slots", str(slots)]
        words += ["--between", *between] if between else []
        words += ["--memory", str(memory)] if memory is not None else []
        words += ["--mains-only"] if mains_only else []
        return services.install("worker", tuple(words), member.store, os.environ)
    services.trim_log("worker")
    from stallguard.fleet.engine import worker_process

    asked = offers.WorkerOptions(host, slots, memory, window, mains_only)
    worker_process.work(member, asked, os.environ, say)
    return []


def uninstall(kind: str) -> str:
    """End and remove the service of scheduler or worker; return its name.  Raises StallguardError."""
    from stallguard.fleet.machines import services

    return services.uninstall(kind, os.environ)


def train(job: str, say: Say) -> int:
    """Train a job on this machine, without a worker; return its exit code.  Raises StallguardError."""
    from stallguard.fleet.jobs import runs_here

    return runs_here.train_one(membership.required(os.environ), job, os.environ, say)


def _checked_member() -> Membership:
    """Return the fleet file of a machine that serves the fleet.  Raises StallguardError if it would not work."""
    from stallguard.fleet.engine import dask_engine

    member = membership.required(os.environ)
    dask_engine.security(Signatures(member))  # its packages are there, its certificates valid
    opening.open_fleet_store(member)
    return member


def machines(say: Say) -> FleetMachines:
    """Return all machines, and the versions that differ.  Raises StallguardError."""
    from stallguard.fleet.machines import machine_list

    with _fleet(say) as (store, signatures):
        listed = machine_list.read(store, signatures, _now())
        differ = machine_list.differences(machine_list.versions(store, signatures, listed))
    return machine_list.FleetMachines(machine_list.SCHEMA, signatures.member.fleet, listed, differ)


def cordon(host: str, why: str, say: Say) -> None:
    """Have a machine take no job from now on.  Raises StallguardError."""
    from stallguard.fleet.machines import machine_list

    with _fleet(say) as (store, signatures):
        machine_list.cordon(store, signatures, host, why, _now())


def uncordon(host: str, say: Say) -> None:
    """Let a machine take jobs again.  Raises StallguardError."""
    from stallguard.fleet.machines import machine_list

    with _fleet(say) as (store, signatures):
        machine_list.uncordon(store, signatures, host)


@contextlib.contextmanager
def _fleet(say: Say, why: str = "", then: str = "") -> Iterator[tuple[Store, Signatures]]:
    """Yield the store of the fleet of this machine, and what verifies signatures.  Raises StallguardError.

    `why`, `then`: for the error of a store that fails: what follows from it, and what to do after it was tried.
    """
    member = membership.required(os.environ)
    store = opening.open_fleet_store(member)
    try:
        yield store, view.fresh(store, member, say)
    except StoreError as error:
        raise unusable(member.store, f"{error}{why}", then) from error


def submit(wishes: Sequence[orders.Wish], revision: str, say: Say, *, agreed: bool) -> Submitted:
    """Pack the project of this directory, and put it and the jobs into the fleet's store.  Raises StallguardError.

    `agreed`: as for packing.pack.
    """
    from stallguard.fleet.jobs import packing, submitting

    by = f"{getpass.getuser()}@{os.uname().nodename}"
    with (
        _fleet(say, "; it can be that not all was submitted", "; then submit again") as (store, signatures),
        tempfile.TemporaryDirectory(prefix="stallguard-pack-") as place,
    ):
        packed = packing.pack(wishes[0].words, Path.cwd(), Path(place), os.environ, revision=revision, agreed=agreed)
        for line in packed.lines():  # before it can be read by others
            say(line)
        submitting.put_code(store, packed.code, packed.archive)
        done = {
            wish.job: submitting.submit(store, signatures, wish, packed.code, by, run_files.utc()) for wish in wishes
        }
        notes = _notes(store, signatures, wishes, packed.code.changed, revision)
    return submitting.Submitted(
        schema=submitting.SCHEMA, fleet=signatures.member.fleet, jobs=[job for job, is_new in done.items() if is_new],
        present=[job for job, is_new in done.items() if not is_new], code=packed.code.digest,
        revision=packed.code.revision, changed=packed.code.changed, files=packed.files,
        size=packed.size, left_out=list(packed.secrets), notes=notes,
    )  # fmt: skip


def _notes(
    store: Store, signatures: Signatures, wishes: Sequence[orders.Wish], changed: bool, revision: str
) -> list[str]:
    """Return what a person should know: whether a machine fits, and which code was taken."""
    from stallguard.fleet.jobs import submitting

    notes = []
    fit, why = submitting.fitting(store, signatures, wishes[0].needs)
    if not fit:
        notes.append(f"no machine can take it now, so it waits: {why}")
    if changed and not revision:
        notes.append("the files as they are were taken; they differ from the last commit")
    return notes


def hand_over(job: str, needs: Mapping[str, float], ray: str) -> None:
    """Hand a job to the Ray cluster at `ray`.  Raises StallguardError."""
    from stallguard.fleet.jobs import submitting

    submitting.hand_over(ray, job, f"{_now():%H%M%S}-{os.urandom(2).hex()}", needs)


def hand_over_again(job: str, ray: str, say: Say) -> None:
    """Hand a job that is in the store to Ray once more.  Raises StallguardError."""
    with _fleet(say) as (store, signatures):
        data = store.read(orders.Submission.place(job=job)) if orders.JOB_NAME.fullmatch(job) else None
        if data is None:
            raise StallguardError(f"there is no job {job} in {store.url}", code=NO_SUCH_RUN)
        try:
            submission = orders.decode_submission(data, signatures, job)
        except Damaged as error:
            raise StallguardError(f"the submission of {job} cannot be read", why=str(error), code=CANNOT_RUN) from error
    hand_over(job, submission.needs, ray)


def wish(
    name: str, words: tuple[str, ...], options: tuple[str, ...], needs: Sequence[str], priority: int,
    environment: Sequence[str], *, for_ray: bool,
) -> orders.Wish:  # fmt: skip
    """Return the job that options of `fleet submit` name.  Raises StallguardError."""
    from stallguard.fleet.jobs import submitting

    return orders.Wish(
        job=name or submitting.job_name(words, _now()), words=words, options=options, needs=submitting.needs(needs),
        priority=priority, environment=variables(environment), engine=orders.RAY if for_ray else orders.DASK,
    )  # fmt: skip


def variables(environment: Sequence[str]) -> dict[str, str]:
    """Return the variables of --env: NAME=VALUE, or NAME for that of this process.  Raises StallguardError."""
    named: dict[str, str] = {}
    for text in environment:
        name, is_given, value = text.partition("=")
        if not name or (not is_given and name not in os.environ):
            raise StallguardError(f"there is no variable {text!r}", cure="--env NAME=VALUE", code=USAGE)
        named[name] = value if is_given else os.environ[name]
    return named
