"""The environment of an attempt's child: the user's, and the variables that load the probe.

Pure: dictionaries in, dictionaries out.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from stallguard.launch import run_seed
from stallguard.probe import process_key, settings
from stallguard.probe.settings import ProbeSettings
from stallguard.storage import private

INJECT = Path(__file__).resolve().parent.parent / "probe" / "inject"
OURS = "STALLGUARD_"
HOME = "STALLGUARD_HOME"
# Its default is to be ignored, in each program that has no probe (yet), and no batch system sends it.  SIGUSR1 is the
# user's: Slurm sends it before the time limit, and a script without a handler ends by it, as without stallguard.
STACKS_SIGNAL = int(signal.SIGURG)


def child_environment(user: Mapping[str, str], wish: ProbeSettings, inject: Path = INJECT) -> dict[str, str]:
    """Return the child's environment: the user's, the probe's directory first on PYTHONPATH, and `wish`."""
    # What a `stallguard run` inside of this one needs: the settings, and where the runs are.
    kept = {
        name: value
        for name, value in user.items()
        if not name.startswith(OURS) or "__" in name or name == HOME
    }
    path = user.get("PYTHONPATH")
    kept["PYTHONPATH"] = str(inject) if not path else f"{inject}{os.pathsep}{path}"
    if wish.seed and not user.get("PYTHONHASHSEED"):  # an empty one counts as none
        kept["PYTHONHASHSEED"] = hash_seed = run_seed.hash_seed(wish.seed)
        wish = wish.replace(hash_seed=hash_seed)
    kept[settings.VARIABLE] = settings.encode(wish)
    return kept


def keep_reference(pages: Path, environment: Mapping[str, str], project: str) -> None:
    """Write digests of the variables of an attempt's first process: those that differ later belong to one process.

    `project`: its root, if it can have another path on another machine.

    Raises OSError.
    """
    lines = (f"{digest} {name}\n" for name, digest in process_key.digests(environment, project).items())
    file = pages / process_key.REFERENCE
    with open(file, "w", encoding="utf-8", errors="surrogateescape", opener=private.opener) as out:
        out.writelines(lines)
