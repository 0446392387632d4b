"""`stallguard fleet`: several machines that train the jobs of one store."""

from __future__ import annotations

import datetime as dt
import sys

import click

from stallguard import jsontext, units
from stallguard.cli._console import echo, note, prints_json
from stallguard.cli.verbs import Verb, VerbGroup, quieten
from stallguard.core.text import duration
from stallguard.errors import USAGE, StallguardError
from stallguard.fleet import seam

JOBS = {
    "submit": Verb("submit:command", "Give a training to the fleet."),
    "sweep": Verb("submit:sweep", "Submit each combination of parameters."),
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


_authority = click.option(
    "--authority", "authority_file", metavar="FILE", help="File of the authority.  [beside the fleet file]"
)


@command.command("init")
@click.option("--store", "store_url", metavar="URL", help="Folder or bucket of the fleet: file:///..., s3://...")
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
    if renew:
        if store_url or scheduler or force or name:
            raise StallguardError(
                "--renew keeps store, scheduler and name", cure="stallguard fleet init --renew [--days N]", code=USAGE
            )
        lines = seam.renew(days, authority_file)
    elif store_url:
        lines = seam.found(store_url, scheduler, days, authority_file, name, force=force)
    else:
        raise StallguardError(
            "a fleet needs a store", cure="stallguard fleet init --store file:///share/fleet", code=USAGE
        )
    for line in lines:
        echo(line)


@command.command("invite")
@click.argument("name")
@click.option("--out", metavar="FILE", help="File to write.  [fleet-NAME.toml, beside the fleet file]")
@click.option("--days", type=click.IntRange(1, 3650), help="Days that its certificate lasts.  [730]")
@click.option("--force", is_flag=True, help="Replace that file.")
@_authority
def invite(name: str, out: str | None, days: int | None, force: bool, authority_file: str | None) -> None:
    """Make the fleet file of one more machine or person; NAME is that of the machine, without a dot."""
    for line in seam.invite(name, out, days, authority_file, force=force):
        echo(line)


@command.command("revoke")
@click.argument("name")
@_authority
def revoke(name: str, authority_file: str | None) -> None:
    """Turn a member out of the fleet: what it signs is refused, and its worker is turned away."""
    seam.revoke(name, authority_file)
    note(f"{name}: revoked; scheduler and workers refuse it within a minute")
    note("if it can write to the store, take that right away too: docs/fleet.md")


_installs = click.option("--install", is_flag=True, help="Run it at all times, as a service of this user.")
_uninstalls = click.option("--uninstall", is_flag=True, help="End and remove that service.")


@command.command("scheduler")
@click.option("--listen", metavar="HOST:PORT", default="", help="Address to listen on.  [the port of the fleet file]")
@click.option("--dashboard", is_flag=True, help="Serve Dask's dashboard on 127.0.0.1:8787; needs bokeh.")
@_installs
@_uninstalls
def scheduler(listen: str, dashboard: bool, install: bool, uninstall: bool) -> None:
    """Place the jobs of the fleet on its machines; in the foreground, or as a service."""
    if uninstall:
        _uninstall("scheduler")
    elif install:
        _noted(seam.install_scheduler(listen, dashboard=dashboard))
    else:
        seam.serve_scheduler(listen, _say, dashboard=dashboard)


@command.command("worker")
@click.option(
    "--between", nargs=2, metavar="HH:MM HH:MM", help="Take jobs only between these times of day: 22:00 07:00."
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
    try:
        size = units.size(memory) if memory else None
    except ValueError as error:
        raise StallguardError(f"{memory!r} is not a size", cure="--memory 48GB", code=USAGE) from error
    _noted(seam.work(name, slots, size, between, _say, mains_only=mains_only, install=install))


def _say(line: str) -> None:
    note(f"{dt.datetime.now().astimezone():%Y-%m-%d %H:%M:%S}  {line}")


@command.command("job")
@click.argument("job")
def job(job: str) -> None:
    """Train JOB of the fleet on this machine, in the foreground: for engines that start commands, such as Ray."""
    sys.exit(seam.train(job, _say))


def _noted(lines: list[str]) -> None:
    for line in lines:
        note(line)


def _uninstall(kind: str) -> None:
    note(f"{seam.uninstall(kind)}: removed")


@command.command("machines")
@prints_json("One JSON object with all machines.", "stallguard.fleet.machines.machine_list:FleetMachines")
def show_machines(as_json: bool) -> None:
    """List the machines of the fleet: state, what they offer, their jobs, and which take none."""
    found = seam.machines(note)
    if as_json:
        echo(jsontext.readable(found))
        return
    for machine in found.machines:
        for line in _lines(machine):
            echo(line)
    for line in found.differ:
        note(f"versions differ: {line}")
    if found.differ:
        note("a training that goes on elsewhere can end with other weights, or start over")
    if not found.machines:
        note("no machine has had a worker; on each: stallguard fleet worker --install")


def _lines(machine: seam.FleetMachine) -> list[str]:
    """Return a machine: a line of what it is, and lines of what it does."""
    seen = f"{duration(machine.seen)} ago" if machine.seen is not None else ""
    card = machine.card
    chip = str(card.about.get("chip") or "") if card else ""
    offers = ", ".join(filter(None, (chip, seam.summary(card.resources) if card else "")))
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
    seam.cordon(host, why, note)
    note(f"{host}: takes no job until stallguard fleet uncordon {host}")


@command.command("uncordon")
@click.argument("host")
def uncordon(host: str) -> None:
    """Let a machine take jobs again."""
    seam.uncordon(host, note)
    note(f"{host}: takes jobs again")
