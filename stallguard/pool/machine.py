"""Reads what `offers` and `hours` judge: this machine and the environment of its jobs.

Imports no framework: the environment's interpreter is asked for the versions of its packages.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from stallguard.doctor import interrogate
from stallguard.host import system
from stallguard.host.preferences import preferences
from stallguard.launch import interpreter
from stallguard.pool.hours import Power
from stallguard.pool.offers import MachineFacts


def machine(env: Mapping[str, str], cwd: Path, python: str | None = None) -> MachineFacts:
    """Return what this machine has, within about a second on a Mac.

    `python`: of the environment; None: that which `stallguard run` would choose in `cwd`.  Raises StallguardError if
    there is no such interpreter.
    """
    choice = interpreter.choose(python, env, shutil.which, cwd=cwd)
    return MachineFacts(
        about=system.facts(),
        memory=system.memory(),
        gpus=preferences().gpus,
        cards=system.cuda_cards(),
        installed=interrogate.environment(choice, deep=False).installed,
    )


def power(watch: system.MachineWatch, now: float) -> Power:
    """Return what feeds the machine.  `now`: monotonic seconds."""
    return Power(watch.read(now, (), system.asleep()).power, system.has_battery())
