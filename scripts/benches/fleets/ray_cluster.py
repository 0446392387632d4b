"""A Ray cluster of one machine on the loopback interface, and the jobs of a fleet through it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil

from fleets import published
from fleets.fleet_of_machines import CHILD
from fleets.machines import wait_for
from fleets.trainings import COPIES, SEEDS, alone, arguments
from harness.results import Goal, table
from stallguard.fleet.store import Store, membership
from stallguard.fleet.store.opening import open_store

STARTS = 120.0  # s
LONGEST = 1500.0  # s that all jobs may take


class RayCluster:
    """A cluster of the program `ray`, from `open` to `close`; its jobs find `stallguard` on PATH."""

    def __init__(self, ray: Path, place: Path, environment: dict[str, str], processors: int) -> None:
        """`place`: for its files; `environment`: of its jobs."""
        self._ray, self._place, self._processors = ray, place, processors
        path = os.pathsep.join((str(ray.parent), str(Path(sys.executable).parent), environment.get("PATH", "")))
        self.environment = {**environment, "PATH": path, "RAY_DISABLE_IMPORT_WARNING": "1"}
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"http://127.0.0.1:{free_port()}"

    def open(self) -> None:
        """Start it.  Raises TimeoutError."""
        port = self.address.rpartition(":")[2]
        words = [
            "start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", str(free_port()),
            "--dashboard-host", "127.0.0.1", "--dashboard-port", port, "--num-cpus", str(self._processors),
            "--temp-dir", str(self._place / "ray"), "--disable-usage-stats",
        ]  # fmt: skip
        with (self._place / "ray.log").open("wb") as log:
            self._process = subprocess.Popen(
                [str(self._ray), *words], env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        wait_for("the cluster answers", self._answers, STARTS)

    def _answers(self) -> bool:
        try:
            address = f"{self.address}/api/version"
            with urllib.request.urlopen(address, timeout=2) as answer:  # noqa: S310 - its own address
                return bool(answer.status == 200)
        except OSError:
            return False

    def close(self) -> None:
        """End it, with all processes that it started; not those of another cluster, as `ray stop` does."""
        if self._process is None:
            return
        members = [self._process.pid, *(one.pid for one in psutil.Process(self._process.pid).children(recursive=True))]
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(10)


def through_ray(ray: Path, environment: dict[str, str], say: Callable[[str], None]) -> list[Goal]:
    """Train the jobs through a Ray cluster, print what came out, and return the goals."""
    with tempfile.TemporaryDirectory(prefix="sgp-") as made:
        project = Path(made)
        shutil.copy(CHILD, project / "train.py")
        jobs = {f"ray-{seed}-{copy}": arguments(seed) for seed in range(SEEDS) for copy in range(COPIES)}
        began = time.monotonic()
        store, digests, stack = train(ray, environment, project, jobs, say)
        with stack:
            logs = {job: published.read(store, job) for job in jobs}
        seconds = time.monotonic() - began
        expected = {seed: alone(project, environment, seed) for seed in range(SEEDS)}
    wrong = sum({*digests[job]} != {expected[int(job.split("-")[1])]} for job in jobs)
    twice = sum(bool(log.fenced or log.repeated or log.after_end or log.finished > 1) for log in logs.values())
    finished = sum(log.finished for log in logs.values())
    row = ("Ray", f"{finished}/{len(jobs)}", str(wrong), str(twice), f"{seconds:.0f}")
    print(table(("engine", "finished", "other weights", "published twice", "s"), [row]))
    return [
        Goal("jobs that did not finish", len(jobs) - finished, 0),
        Goal("jobs with other weights", wrong, 0),
        Goal("jobs published twice", twice, 0),
    ]


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def train(
    ray: Path, environment: dict[str, str], project: Path, jobs: dict[str, list[str]], say: Callable[[str], None]
) -> tuple[Store, dict[str, list[str]], contextlib.ExitStack]:
    """Train jobs, given with their arguments, through a cluster; return the store, and each job's weights at its ends.

    The caller closes the stack, with which all files go.
    """
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sgr-")))
        (place / "store").mkdir()
        own = {
            **environment, "HOME": str(place), "STALLGUARD_HOME": str(place / "sg"),
            "STALLGUARD_FLEET": str(place / "fleet.toml"),
        }  # fmt: skip
        cluster = RayCluster(ray, place, own, os.cpu_count() or 1)
        stack.callback(cluster.close)
        cluster.open()
        stallguard(cluster, project, "fleet", "init", "--store", f"file://{place}/store", "--scheduler", "127.0.0.1")
        for job, arguments in jobs.items():
            stallguard(
                cluster,
                project,
                "fleet",
                "submit",
                "--name",
                job,
                "--ray",
                cluster.address,
                "--",
                "train.py",
                *arguments,
            )
        say(f"ray: {len(jobs)} jobs are submitted")
        store = open_store(membership.required(own).store)
        wait_for("all jobs finish", lambda: all(published.read(store, job).finished for job in jobs), LONGEST, 2)
        logs = place / "sg" / "fleet" / "logs"
        digests = {
            job: [line.split()[1] for line in lines(logs / f"{job}.log") if line.startswith("digest ")] for job in jobs
        }
        return store, digests, stack.pop_all()


def stallguard(cluster: RayCluster, project: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stallguard", *words], cwd=project, env=cluster.environment, text=True, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"stallguard {' '.join(words)}: {done.returncode}: {done.stdout}")


def lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []
