"""The table of checks, in the order of the output.

To add one: write a function from facts to findings in environment_checks, machine_checks or here, and a row here.

Here are the checks of the fleet that this machine is in: its file, its certificates, its scheduler, its store.  On a
machine in no fleet they find nothing.  What is away now can be back at night, so it is a
warning; what does not mend itself is a failure.
"""

from __future__ import annotations

from collections.abc import Iterator

from stallguard.core.text import counted
from stallguard.doctor import environment_checks as environment
from stallguard.doctor import machine_checks as machine
from stallguard.doctor.facts import Check, CheckResult, CheckText, MachineFacts, fail, ok, warn

SOON = 30.0  # days before their end from which certificates are to be renewed
RENEW = "on the machine with the authority's file: stallguard fleet invite NAME (its own: fleet init --renew)"


def member(facts: MachineFacts) -> Iterator[CheckText]:
    """Is the fleet file one that can be used?"""
    fleet = facts.fleet
    if fleet is None:
        return
    if fleet.trouble:
        yield fail(fleet.trouble, fleet.cure)
    else:
        yield ok(f"{fleet.name}, by {fleet.path}")


def certificates(facts: MachineFacts) -> Iterator[CheckText]:
    """How long do the certificates last?"""
    days = facts.fleet.days if facts.fleet else None
    if days is None:
        return
    if days <= 0:
        yield fail(f"the certificate of this member expired {counted(round(-days), 'day')} ago", RENEW)
    elif days < SOON:
        yield warn(f"the certificate of this member lasts {counted(round(days), 'day')}", RENEW)
    else:
        yield ok(f"the certificate of this member lasts {counted(round(days), 'day')}")


def scheduler(facts: MachineFacts) -> Iterator[CheckText]:
    """Does the scheduler answer, and are both sides of one fleet?"""
    fleet = facts.fleet
    if fleet is None or not fleet.scheduler:
        return
    if fleet.refused:
        yield fail(
            f"{fleet.scheduler}: {fleet.unreachable}", "files of one fleet belong on both machines, and no revoked one"
        )
    elif fleet.unreachable:
        cure = "on that machine: stallguard fleet scheduler --install; and let its firewall pass that port"
        yield warn(f"{fleet.scheduler} does not answer: {fleet.unreachable}", cure)
    else:
        yield ok(f"{fleet.scheduler} answers with a certificate of the fleet")


def store(facts: MachineFacts) -> Iterator[CheckText]:
    """Is the store there, does it keep what stallguard relies on, and is it this fleet's?"""
    fleet = facts.fleet
    if fleet is None or fleet.store is None:
        return
    broken = [one for one in fleet.store.promises if not one.kept]
    for one in broken:
        cure = "it must have room and be writable; docs/fleet.md says which stores are known to work"
        yield fail(f"{fleet.store.url} must not be used: {one.promise}: {one.seen}", cure)
    if fleet.store.trouble:
        yield warn(f"the store cannot be used: {fleet.store.trouble}", fleet.store.cure or "mount it")
    elif fleet.foreign:
        yield fail(fleet.foreign, "copy the right file to this machine, or mount the right folder")
    elif not broken:
        yield ok(f"{fleet.store.url} keeps what stallguard relies on")


CHECKS: dict[str, Check] = {
    "interpreter": environment.interpreter,
    "rosetta": environment.rosetta,
    "frameworks": environment.frameworks,
    "plug-in": environment.plugin,
    "keras": environment.keras,
    "numpy": environment.numpy,
    "openmp": environment.openmp,
    "versions": environment.versions,
    "sitecustomize": environment.customised,
    "deep": environment.deep,
    "gpu": machine.gpu,
    "gpu build": machine.reach,
    "memory": machine.memory,
    "swap": machine.swap,
    "power": machine.power,
    "heat": machine.heat,
    "sleep": machine.sleep,
    "disk": machine.disk,
    "places": machine.places,
    "permissions": machine.permissions,
    "others": machine.others,
    "command": environment.command,
    "notifications": machine.notifications,
    "traces": machine.traces,
    "plug-ins": machine.added,
    "store": machine.store,
    "fleet": member,
    "certificates": certificates,
    "scheduler": scheduler,
    "fleet's store": store,
}


def examine(facts: MachineFacts) -> list[CheckResult]:
    """Return the findings of all checks for `facts`."""
    return [CheckResult(name, *said) for name, check in CHECKS.items() for said in check(facts)]
