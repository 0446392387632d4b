"""`stallguard fleet`: several machines that train the jobs of one store."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stallguard import config, jsontext, units
from stallguard.agent.job import is_ours
from stallguard.agent.service_manager import manager, own_system
from stallguard.cli import _fleet
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.cli.verbs import Verb, VerbGroup, quieten
from stallguard.core.text import counted, duration
from stallguard.errors import NO_SUCH_RUN, USAGE, StallguardError
from stallguard.fleet.store import membership, orders

if TYPE_CHECKING:
    from stallguard.fleet.machines.machine_list import FleetMachine
    from stallguard.fleet.store import Store
    from stallguard.fleet.store.membership import Membership

JOBS = {
    "submit": Verb("submit:command", "Give a training to the fleet."),
    "sweep": Verb("sweep:command", "Submit each combination of parameters."),
}


@click.group("fleet", cls=VerbGroup, verbs=JOBS)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Train on several machines: a fleet with one store and one scheduler.

    \b
    Examples:
      stallguard fleet init --store file:///share/fleet --scheduler studio-1.local
      stallguard fleet scheduler --install
      stallguard fleet worker --install --between 22:00 07:00 --mains-only
      stallguard fleet machines
      stallguard fleet submit --needs metal train.py --epochs 200
    """  # noqa: D301 - click wants the real backspace
    quieten(ctx, tuple(command.commands))


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


_authority = click.option(
    "--authority", "authority_file", metavar="FILE", help="File of the authority.  [beside the fleet file]"
)


@command.command("init")
@click.option(
    "--store", "store_url", metavar="URL", help="Folder or bucket of the fleet: file:///..., s3://..."
)
@click.option("--scheduler", metavar="HOST[:PORT]", default="", help="Machine of the scheduler.  [this one]")
@click.option("--days", type=click.IntRange(1, 3650), help="Days that the certificates last.  [730]")
@click.option("--force", is_flag=True, help="Replace the fleet file of this machine.")
@click.option("--renew", is_flag=True, help="Make a new certificate for this machine.")
@click.option("--name", metavar="NAME", default="", help="Name of this machine as a member.  [its host name]")
@_authority
def init(
    store_url: str | None, scheduler: str, days: int | None, force: bool, renew: bool, name: str,
    authority_file: str | None,
) -> None:  # fmt: skip
    """Make a fleet: its authority, and the file that makes this machine a member of it."""
    from stallguard.fleet.machines import authority, founding

    place, lasts = membership.path(os.environ), days or founding.DAYS
    by = Path(authority_file) if authority_file else authority.beside(place)
    if renew:
        if store_url or scheduler or force:
            raise StallguardError(
                "--renew keeps store and scheduler",
                cure="stallguard fleet init --renew [--days N]",
                code=USAGE,
            )
        found = membership.recall(os.environ, shared=True) or membership.required(os.environ)
        member = founding.renew(found, lasts, place, by, _now(), name)
        echo(f"{member.fleet}: a new certificate of {member.name} for {counted(lasts, 'day')} in {place}")
        echo("restart the services of this machine; for each other member: stallguard fleet invite NAME")
        if found.schema == membership.SHARED:
            echo(f"{by} makes and revokes members: keep it offline, or on this machine alone")
        return
    if not store_url:
        raise StallguardError(
            "a fleet needs a store", cure="stallguard fleet init --store file:///share/fleet", code=USAGE
        )
    member = founding.found(store_url, scheduler, lasts, place, by, _now(), force=force, name=name)
    host = member.scheduler.removeprefix("tls://")
    for line in (
        f"{member.fleet}: made, with the store {member.store}",
        f"this machine is its member {member.name}, by {place}, for {counted(lasts, 'day')}",
        f"1. {by} makes and revokes members: keep it offline, or on this machine alone",
        "2. for each other machine or person: stallguard fleet invite NAME, and copy that file to it",
        f"3. on {host.rpartition(':')[0]}: stallguard fleet scheduler --install",
        "4. on each machine that trains: stallguard fleet worker --install",
    ):
        echo(line)


@command.command("invite")
@click.argument("name")
@click.option("--out", metavar="FILE", help="File to write.  [fleet-NAME.toml, beside the fleet file]")
@click.option("--days", type=click.IntRange(1, 3650), help="Days that its certificate lasts.  [730]")
@click.option("--force", is_flag=True, help="Replace that file.")
@_authority
def invite(name: str, out: str | None, days: int | None, force: bool, authority_file: str | None) -> None:
    """Make the fleet file of one more machine or person; NAME is that of the machine, without a dot."""
    from stallguard.fleet.machines import authority, founding

    member, own = membership.required(os.environ), membership.path(os.environ)
    file = Path(out) if out else own.with_name(f"{own.stem}-{authority.checked_name(name)}.toml")
    by = Path(authority_file) if authority_file else authority.beside(own)
    founding.invite(member, name, days or founding.DAYS, file, by, _now(), force=force)
    echo(
        f"{file}: makes who has it the member {name} of {member.fleet}, who can start programs on each machine"
    )
    echo(
        f"move it to ~/.config/stallguard/{membership.NAME} on that machine alone (scp -p, then remove it here)"
    )


@command.command("revoke")
@click.argument("name")
@_authority
def revoke(name: str, authority_file: str | None) -> None:
    """Turn a member out of the fleet: what it signs is refused, and its worker is turned away."""
    from stallguard.fleet.machines import authority, founding

    by = Path(authority_file) if authority_file else authority.beside(membership.path(os.environ))
    founding.revoke(membership.required(os.environ), name, by, _now())
    echo(f"{name}: revoked; scheduler and workers refuse it within a minute", err=True)
    echo("if it can write to the store, take that right away too: docs/fleet.md", err=True)


_installs = click.option("--install", is_flag=True, help="Run it at all times, as a service of this user.")
_uninstalls = click.option("--uninstall", is_flag=True, help="End and remove that service.")


@command.command("scheduler")
@click.option(
    "--listen", metavar="HOST:PORT", default="", help="Address to listen on.  [the port of the fleet file]"
)
@click.option("--dashboard", is_flag=True, help="Serve Dask's dashboard on 127.0.0.1:8787; needs bokeh.")
@_installs
@_uninstalls
def scheduler(listen: str, dashboard: bool, install: bool, uninstall: bool) -> None:
    """Place the jobs of the fleet on its machines; in the foreground, or as a service."""
    if uninstall:
        _uninstall("scheduler")
        return
    from stallguard.fleet.engine import dask_engine
    from stallguard.fleet.machines import founding, member_tls

    member = _checked_member()
    port = member_tls.endpoint(member.scheduler)[1]
    where = founding.scheduler_address(listen).removeprefix("tls://") if listen else f"0.0.0.0:{port}"
    if dashboard:
        dask_engine.require_dashboard()
    if install:
        _install("scheduler", ("--listen", where, *(("--dashboard",) if dashboard else ())), member)
        return
    _trim_log("scheduler")
    from stallguard.fleet.engine import scheduler_process

    scheduler_process.serve(member, where, _say, dashboard=dashboard)


@command.command("worker")
@click.option(
    "--between",
    nargs=2,
    metavar="HH:MM HH:MM",
    help="Take jobs only between these times of day: 22:00 07:00.",
)
@click.option("--mains-only", is_flag=True, help="Take no job on battery.")
@click.option("--slots", type=click.IntRange(1, 64), default=1, show_default=True, help="Jobs at once.")
@click.option("--memory", metavar="SIZE", help="Memory for jobs: 48GB.  [all without an eighth]")
@click.option("--name", metavar="HOST", help="Name of this machine in the fleet.  [that of its member]")
@_installs
@_uninstalls
def worker(
    between: tuple[str, str] | None,
    mains_only: bool,
    slots: int,
    memory: str | None,
    name: str | None,
    install: bool,
    uninstall: bool,
) -> None:
    """Train jobs of the fleet on this machine; in the foreground, or as a service."""
    if uninstall:
        _uninstall("worker")
        return
    from stallguard.fleet.machines import machine_list, offers
    from stallguard.fleet.machines.offers import WorkerOptions

    try:
        size = units.size(memory) if memory else None
    except ValueError as error:
        raise StallguardError(f"{memory!r} is not a size", cure="--memory 48GB", code=USAGE) from error
    window, member = offers.window(*between) if between else None, _checked_member()
    own = membership.own_host(member.name, orders.host_name(os.uname().nodename))
    host = machine_list.checked_host(name, member.name) if name else own
    asked = WorkerOptions(host, slots, size, window, mains_only)
    if install:
        # The name is fixed: the host name of a laptop changes with its network.
        words = ["--name", host, "--slots", str(slots)]
        words += ["--between", *between] if between else []
        words += ["--memory", str(size)] if size is not None else []
        words += ["--mains-only"] if mains_only else []
        _install("worker", tuple(words), member)
        return
    _trim_log("worker")
    from stallguard.fleet.engine import worker_process

    worker_process.work(member, asked, os.environ, _say)


def _say(line: str) -> None:
    echo(f"{_now().astimezone():%Y-%m-%d %H:%M:%S}  {line}", err=True)


@command.command("job")
@click.argument("job")
def job(job: str) -> None:
    """Train JOB of the fleet on this machine, in the foreground: for engines that start commands, such as Ray."""
    from stallguard.fleet.jobs import runs_here

    sys.exit(runs_here.train_one(membership.required(os.environ), job, os.environ, _say))


def _checked_member() -> Membership:
    """Return the fleet file of a machine that serves the fleet.  Raises StallguardError if it would not work."""
    from stallguard.fleet.engine import dask_engine
    from stallguard.fleet.store.signing import Signatures

    member = membership.required(os.environ)
    dask_engine.security(Signatures(member))  # its packages are there, its certificates valid
    _store(member)
    return member


def _store(member: Membership) -> Store:
    """Return the store of the fleet.  Raises StallguardError."""
    from stallguard.fleet.store import opening

    return opening.open_fleet_store(member)


def _install(kind: str, options: tuple[str, ...], member: Membership) -> None:
    from stallguard.fleet.machines import services

    own = manager(own_system(), os.environ)
    settings = config.load({}, os.environ, Path.cwd()).config
    job = services.service(kind, options, settings, os.environ, Path.cwd(), own.places)
    own.ready()
    own.install(job)
    echo(f"{job.name}: runs from now on, and from each login on; its log: {job.log}", err=True)
    for line in (*own.advice(job), services.secrets_left_out(member.store, os.environ)):
        if line:
            echo(line, err=True)


def _uninstall(kind: str) -> None:
    own = manager(own_system(), os.environ)
    name = f"fleet-{kind}"
    if not is_ours(own.program(name)) and not own.known(name).loaded:
        raise StallguardError(
            f"the {kind} of the fleet is not installed here",
            cure=f"stallguard fleet {kind} --install installs it",
            code=NO_SUCH_RUN,
        )
    own.uninstall(name)
    echo(f"{name}: removed", err=True)


def _trim_log(kind: str) -> None:
    """Cut the log of the service, if there is one: it grows for years."""
    from stallguard.agent import runner

    runner.trim(manager(own_system(), os.environ).places.log(f"fleet-{kind}"))


@command.command("machines")
@prints_json("One JSON object with all machines.", "stallguard.fleet.machines.machine_list:FleetMachines")
def show_machines(as_json: bool) -> None:
    """List the machines of the fleet: state, what they offer, their jobs, and which take none."""
    from stallguard.fleet.machines import machine_list

    member = membership.required(os.environ)
    store = _store(member)
    with _asking(store):
        signatures = _fleet.fresh(store, member)
        found = machine_list.read(store, signatures, _now())
        differ = machine_list.differences(machine_list.versions(store, signatures, found))
    if as_json:
        echo(jsontext.readable(machine_list.FleetMachines(machine_list.SCHEMA, member.fleet, found, differ)))
        return
    for machine in found:
        for line in _lines(machine):
            echo(line)
    for line in differ:
        echo(f"versions differ: {line}", err=True)
    if differ:
        echo("a training that goes on elsewhere can end with other weights, or start over", err=True)
    if not found:
        echo("no machine has had a worker; on each: stallguard fleet worker --install", err=True)


def _lines(machine: FleetMachine) -> list[str]:
    """Return a machine: a line of what it is, and lines of what it does."""
    from stallguard.fleet.machines import machine_list

    seen = f"{duration(machine.seen)} ago" if machine.seen is not None else ""
    card = machine.card
    chip = str(card.about.get("chip") or "") if card else ""
    offers = ", ".join(filter(None, (chip, machine_list.summary(card.resources) if card else "")))
    rows = [machine.why, f"trains {', '.join(card.jobs)}" if card and card.jobs else ""]
    if card:
        rows.append(", ".join(f"{name} {version}" for name, version in card.versions.items()))
    first = f"{machine.host:<20}  {machine.state:<10}  {seen:<14}  {offers}".rstrip()
    return [first, *(f"{'':<20}  {row}" for row in rows if row)]


@command.command("cordon")
@click.argument("host")
@click.option("--why", required=True, help="Reason, for everybody who lists the machines.")
def cordon(host: str, why: str) -> None:
    """Have a machine take no job from now on; what it trains goes on."""
    from stallguard.fleet.machines import machine_list
    from stallguard.fleet.store.signing import Signatures

    member = membership.required(os.environ)
    store = _store(member)
    with _asking(store):
        machine_list.cordon(store, Signatures(member), host, why, _now())
    echo(f"{host}: takes no job until stallguard fleet uncordon {host}", err=True)


@command.command("uncordon")
@click.argument("host")
def uncordon(host: str) -> None:
    """Let a machine take jobs again."""
    from stallguard.fleet.machines import machine_list

    member = membership.required(os.environ)
    store = _store(member)
    with _asking(store):
        machine_list.uncordon(store, _fleet.fresh(store, member), host)
    echo(f"{host}: takes jobs again", err=True)


@contextlib.contextmanager
def _asking(store: Store) -> Iterator[None]:
    from stallguard.fleet.store import StoreError, unusable

    try:
        yield
    except StoreError as error:
        raise unusable(store.url, error) from error
