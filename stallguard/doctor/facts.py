"""The facts for the checks, and what a check finds, as values.

None in a fact: not known, which no check must take for good or bad.  Must not read anything itself.

A finding has a severity.  ok: no problem.  note: information.  warn: can cost time or results.  fail: the training
would fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from stallguard.core.readings import Device, Machine, Memory
from stallguard.host.types import Preferences


class Installed(msgspec.Struct, frozen=True):
    """The output of inside/installed.py in the training's interpreter."""

    executable: str
    version: tuple[int, int, int]
    implementation: str = "CPython"
    machine: str = ""
    translated: bool | None = None
    packages: dict[str, str] = {}
    plugins: tuple[str, ...] = ()
    backend: tuple[str, str] = ("", "")  # the backend of Keras, and the setting that selects it
    sitecustomize: str = ""
    openmp: tuple[str, ...] = ()  # files of runtimes of OpenMP, each once


class Deep(msgspec.Struct, frozen=True):
    """The output of inside/deep.py after it imported the framework and computed."""

    version: str = ""
    devices: dict[str, float] = {}  # seconds of a first product there
    seconds: float = 0.0
    trouble: str = ""  # why there is no result


class Environment(msgspec.Struct, frozen=True):
    """The training environment.  `trouble`: why its interpreter did not answer."""

    path: str
    why: str
    installed: Installed | None = None
    trouble: str = ""
    framework: str = ""  # the one that `deep` tested
    deep: Deep | None = None


class PlaceFacts(msgspec.Struct, frozen=True):
    """A directory that a run needs.  Sizes in bytes."""

    what: str
    path: str
    writable: bool
    free: int | None = None
    device: int | None = None  # equal for places on one file system


class Heavy(msgspec.Struct, frozen=True):
    """Processes of one name that are not stallguard's and use many resources."""

    name: str
    count: int
    cores: float  # that it keeps busy
    memory: int  # bytes
    who: tuple[str, ...] = ()  # "train.py, pid 4242": the busiest first, at most three


class StorePromise(msgspec.Struct, frozen=True):
    """Whether a store keeps one of its promises."""

    promise: str  # what was tried
    kept: bool  # whether the store does it
    seen: str  # what was seen instead, or how long it took


class StoreFacts(msgspec.Struct, frozen=True):
    """A store of several machines, as it was tried."""

    url: str  # of the settings
    promises: tuple[StorePromise, ...] = ()  # each that was tried
    trouble: str = ""  # why it cannot be used at all
    cure: str = ""  # what to do then


class FleetFacts(msgspec.Struct, frozen=True):
    """The fleet that this machine is in, as it was tried."""

    path: str  # of the fleet file
    name: str = ""  # of the fleet
    trouble: str = ""  # why the fleet file cannot be used
    cure: str = ""  # what to do then
    days: float | None = None  # that the certificates last; negative: since when they do not
    scheduler: str = ""  # its address
    unreachable: str = ""  # why the scheduler does not answer
    refused: bool = False  # whether it answered, and one of both sides refused the other
    store: StoreFacts | None = None  # the fleet's store
    foreign: str = ""  # why it is not this fleet's


class MachineFacts(msgspec.Struct, frozen=True):
    """Everything, gathered once."""

    system: str  # Darwin or Linux
    environment: Environment
    variables: dict[str, str]  # variables of the user's environment that checks use
    about: dict[str, Any]  # host.system.facts()
    memory: Memory
    machine: Machine
    device: Device | None
    preferences: Preferences
    places: tuple[PlaceFacts, ...]
    socket_trouble: str
    working: str  # the working directory
    guarded: str = ""  # the protected folder of macOS that contains it
    heavy: tuple[Heavy, ...] = ()
    runs: tuple[str, ...] = ()  # other live runs
    added: tuple[tuple[str, str, str], ...] = ()  # plug-ins of stallguard: name, what it names, package
    jobs: tuple[tuple[str, tuple[str, ...]], ...] = ()  # overnight jobs with their times of day
    # From the settings; addresses and commands of notifications are left out, because they can contain secrets.
    notifies_desktop: bool = False
    notifies_addresses: bool = False
    has_apprise: bool = True
    unusable_addresses: tuple[str, ...] = ()  # by their schemes: Apprise does not understand them
    wants_traces: bool = False  # metrics.otlp is set
    has_otel: bool = True  # the extra of that name is installed
    foreign_command: str = ""  # another program `stallguard` that PATH names first
    let_sleep: bool = False  # the settings allow the machine to sleep during a run
    store: StoreFacts | None = None  # None: the settings name none
    fleet: FleetFacts | None = None  # None: it is in none

    @property
    def is_metal(self) -> bool:
        """Whether the GPU is one that TensorFlow uses through Metal: Apple's."""
        return self.system == "Darwin" and (self.about.get("machine") == "arm64" or bool(self.about.get("rosetta")))


OK, NOTE, WARN, FAIL = "ok", "note", "warn", "fail"
SEVERITIES = (OK, NOTE, WARN, FAIL)


class CheckResult(msgspec.Struct, frozen=True):
    """What was found, and what to do about it.  `name`: the check, as in the table."""

    name: str
    severity: str
    what: str
    cure: str = ""


CheckText = tuple[str, str, str]  # a CheckResult without the name of its check, which the table adds
Check = Callable[[MachineFacts], Iterator[CheckText]]


def ok(what: str) -> CheckText:
    """Return a finding without a problem."""
    return OK, what, ""


def note(what: str, cure: str = "") -> CheckText:
    """Return information."""
    return NOTE, what, cure


def warn(what: str, cure: str) -> CheckText:
    """Return a problem that can cost time or results."""
    return WARN, what, cure


def fail(what: str, cure: str) -> CheckText:
    """Return a problem that would make the training fail."""
    return FAIL, what, cure


def worst(findings: list[CheckResult]) -> str:
    """Return the worst severity."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default=OK)
