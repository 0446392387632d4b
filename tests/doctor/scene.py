"""A Mac and a Linux machine on which nothing is wrong, to be spoiled one fact at a time."""

from __future__ import annotations

import msgspec

from stallguard.core.readings import Device, Machine, Memory
from stallguard.doctor.facts import Environment, Installed, MachineFacts, PlaceFacts
from stallguard.host.types import ListedGpu, Preferences, Sleep

GB = 10**9
METAL = {"tensorflow": "2.18.1", "tensorflow-metal": "1.2.0", "keras": "3.8.0", "numpy": "2.0.2"}
CPU = {"tensorflow-cpu": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6"}

MAC = MachineFacts(
    system="Darwin",
    environment=Environment(
        path="/env/bin/python",
        why="the virtual environment /env is active",
        installed=Installed("/env/bin/python", (3, 11, 9), machine="arm64", packages=METAL),
        framework="tensorflow",
    ),
    variables={"HOME": "/Users/you"},
    about={"machine": "arm64", "cores": 10, "rosetta": False},
    memory=Memory(total=32 * GB, available=20 * GB, pressure="normal", swap_used=0),
    machine=Machine(power="ac", thermal="nominal", low_power=False, lid_closed=False),
    device=Device(name="Apple M4", utilisation=0.02, recoveries=0),
    preferences=Preferences(Sleep(0.0, low_power=False), (ListedGpu("Apple M4", 10),)),
    places=(
        PlaceFacts("runs", "/Users/you/runs", True, 200 * GB, 1),
        PlaceFacts("swap", "/private/var/vm", False, 200 * GB, 2),
    ),
    socket_trouble="",
    working="/Users/you/project",
)
LINUX = msgspec.structs.replace(
    MAC,
    system="Linux",
    environment=msgspec.structs.replace(
        MAC.environment, installed=Installed("/env/bin/python", (3, 11, 9), machine="x86_64", packages=CPU)
    ),
    about={"machine": "x86_64", "cores": 8, "rosetta": None},
    device=None,
    preferences=Preferences(),
)


def spoiled(facts: MachineFacts, **changes) -> MachineFacts:
    """Return facts with other values; `memory__available` reaches into `memory`."""
    for name, value in changes.items():
        facts = _changed(facts, name.split("__"), value)
    return facts


def _changed(value, path, new):
    inner = new if len(path) == 1 else _changed(getattr(value, path[0]), path[1:], new)
    return msgspec.structs.replace(value, **{path[0]: inner})


def packages(facts: MachineFacts, **versions: str | None) -> MachineFacts:
    """Return facts with other packages; None takes one away, an underscore stands for a hyphen."""
    changes = {name.replace("_", "-"): version for name, version in versions.items()}
    merged = facts.environment.installed.packages | changes
    kept = {name: version for name, version in merged.items() if version is not None}
    return spoiled(facts, environment__installed__packages=kept)
