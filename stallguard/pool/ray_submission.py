"""Hands a job to a Ray cluster: `ray job submit` starts `stallguard fleet job NAME` on a machine with what it needs.

The job is in the store as each other one; Ray only chooses the machine.  So a job that Ray starts twice (its raylet was
killed, and the training lives on as an orphan) is trained once, and one that is submitted again goes on.

Only the command line of Ray is used (its package is 200 MB and needs one version in the whole cluster).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.pool.submitting import GB

LIMIT = 120.0  # s; `ray job submit --no-wait` takes about 10


def command(ray: str, address: str, job: str, attempt: str, needs: Mapping[str, float]) -> list[str]:
    """Return the command that hands a job to Ray.

    `ray`: the program; `address`: of the cluster's dashboard, "http://host:8265"; `attempt`: Ray takes each submission
    id once.  Options: https://docs.ray.io/en/latest/cluster/running-applications/job-submission/cli.html
    """
    words = [ray, "job", "submit", "--address", address, "--no-wait", "--submission-id", f"{job}-{attempt}"]
    words += [
        "--entrypoint-num-cpus",
        "1",
    ]  # what a slot is for a worker: Ray starts no more at once than it has
    if needs.get("cuda"):
        words += ["--entrypoint-num-gpus", f"{needs['cuda']:g}"]
    if needs.get("memory"):
        words += ["--entrypoint-memory", str(int(needs["memory"] * GB))]
    own = {name: amount for name, amount in needs.items() if name in ("metal", "mlx")}
    if own:  # the cluster's owner names these: ray start --resources '{"metal": 1}'
        words += ["--entrypoint-resources", json.dumps(own)]
    return [*words, "--", "stallguard", "fleet", "job", job]


def submit(
    address: str, job: str, attempt: str, needs: Mapping[str, float],
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run,
) -> Sequence[str]:  # fmt: skip
    """Hand a job to Ray; return the command that did it.  Raises StallguardError."""
    ray = shutil.which("ray")
    if ray is None:
        raise StallguardError(
            "there is no program ray",
            why="a job is handed to a Ray cluster with Ray's own command line",
            cure="install it: stallguard-train[ray]; the job is in the store, so --ray can be repeated with --again",
            code=CANNOT_RUN,
        )
    words = command(ray, address, job, attempt, needs)
    try:
        done = run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise _refused(address, f"it did not answer within {LIMIT:.0f} s") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise _refused(address, "; ".join(lines[-3:])[:400] or f"exit code {done.returncode}")
    return words


def _refused(address: str, why: str) -> StallguardError:
    return StallguardError(
        f"the Ray cluster at {address} did not take the job",
        why=why,
        cure="the job is in the store: hand it over again with --again when the cluster answers",
        code=CANNOT_RUN,
    )
