"""Brings the code of a job to this machine, and makes its environment."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stallguard.fleet import orders
from stallguard.fleet.orders import Submission
from stallguard.fleet.records import Damaged
from stallguard.fleet.store import Store
from stallguard.pool import environments, unpacking
from stallguard.pool.runs_here import Prepared

PYTHON = "--python"  # the option of `run` that names an interpreter


def prepare(
    store: Store, env: Mapping[str, str], submission: Submission, is_given_up: Callable[[], bool]
) -> Prepared:
    """Return where a job can begin.  `is_given_up`: the making of an environment ends then.

    Raises EnvironmentImpossible, StoreError, Damaged, OSError.
    """
    code = submission.code
    project = unpacking.present(code.digest, submission.job)
    if project is None:
        with tempfile.TemporaryDirectory(prefix="stallguard-code-") as place:
            archive = Path(place) / "archive"
            if not store.get(orders.code_key(code.digest), archive):
                raise Damaged(f"its code ({code.digest[:12]}) is not in the store")
            project = unpacking.unpack(archive, code.digest, submission.job)
    folder = unpacking.working_folder(project, code.folder)
    wanted = _value(submission.options, PYTHON)
    env = {**env, **submission.environment}
    interpreter = environments.interpreter(project, code.folder, wanted, env, is_given_up=is_given_up)
    return Prepared(folder, project, "" if wanted else interpreter)


def _value(options: Sequence[str], name: str) -> str:
    return options[options.index(name) + 1] if name in options else ""
