"""The table of checks, in the order of the output.

To add one: write a function from facts to findings in environment_checks, machine_checks or fleet_checks, and a row
here.
"""

from __future__ import annotations

from stallguard.doctor import environment_checks as environment
from stallguard.doctor import fleet_checks as fleet
from stallguard.doctor import machine_checks as machine
from stallguard.doctor.facts import MachineFacts
from stallguard.doctor.findings import Check, CheckResult

CHECKS: dict[str, Check] = {
    "interpreter": environment.interpreter,
    "rosetta": environment.rosetta,
    "frameworks": environment.frameworks,
    "plug-in": environment.plugin,
    "keras": environment.keras,
    "numpy": environment.numpy,
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
    "fleet": fleet.member,
    "certificates": fleet.certificates,
    "scheduler": fleet.scheduler,
    "fleet's store": fleet.store,
}


def examine(facts: MachineFacts) -> list[CheckResult]:
    """Return the findings of all checks for `facts`."""
    return [
        CheckResult(name, said.severity, said.what, said.cure)
        for name, check in CHECKS.items()
        for said in check(facts)
    ]
