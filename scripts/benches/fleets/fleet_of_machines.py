"""A fleet of machines made of namespaces: its files, its scheduler, and what its store has."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fleets import published, s3_server
from fleets.machines import Machine, Network
from stallguard.fleet.store import membership
from stallguard.fleet.store.opening import open_store

CHILD = Path(__file__).resolve().parents[1] / "fleet_child.py"
PORT = 8786


class Fleet:
    """A fleet with its files in `place`."""

    def __init__(self, place: Path, network: Network, kind: str, lease: float, environment: dict[str, str]) -> None:
        """`kind`: file or s3; `environment`: of all its processes."""
        self.place, self.network, self.lease = place, network, lease
        self.environment = {**environment, "STALLGUARD_FLEET": str(place / "fleet.toml")}
        share = place / "share"
        (share / "fleet").mkdir(parents=True)
        self.folder = share / "fleet" if kind == "file" else None
        self.url = f"file://{share}/fleet" if kind == "file" else s3_server.URL
        self.hub = place / "hub"
        self.project = place / "project"
        self.project.mkdir()
        shutil.copy(CHILD, self.project / "train.py")
        self.machines = [Machine(network, number, place, share if kind == "file" else None) for number in (1, 2, 3)]
        self.say("fleet", "init", "--name", "hub", "--store", self.url, "--scheduler", f"{network.host}:{PORT}")
        for machine in self.machines:
            self.say("fleet", "invite", machine.host, "--out", str(self.file_of(machine)))
        self.member = membership.required(self.environment)
        self.store = open_store(self.url)
        self.scheduler: subprocess.Popen[bytes] | None = None

    def say(self, *words: str, file: Path | None = None) -> str:
        """Run a verb of stallguard in the project, as a person on another machine does; return its output.

        `file`: another fleet file.  Raises RuntimeError if it fails.
        """
        code, output = self.tried(*words, file=file)
        if code:
            raise RuntimeError(f"stallguard {' '.join(words)}: {code}: {output}")
        return output

    def tried(self, *words: str, file: Path | None = None, limit: float = 120.0) -> tuple[int | None, str]:
        """Run a verb; return its exit code and its output.  None: it is ended after `limit` seconds."""
        own = {"STALLGUARD_FLEET": str(file)} if file else {}
        with subprocess.Popen(
            [sys.executable, "-m", "stallguard", *words], cwd=self.project, env=self.of(self.hub) | own, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as child:  # fmt: skip
            code: int | None = None
            try:
                output, _ = child.communicate(timeout=limit)
                code = child.returncode
            except subprocess.TimeoutExpired:
                child.terminate()
                output, _ = child.communicate(timeout=30)
            return code, output or "nothing was said"

    @contextlib.contextmanager
    def process(self, *words: str) -> Iterator[None]:
        """Run a verb beside, until the block ends."""
        with subprocess.Popen(
            [sys.executable, "-m", "stallguard", *words], cwd=self.project, env=self.of(self.place / "beside"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as child:  # fmt: skip
            try:
                yield
            finally:
                child.terminate()
                child.wait(30)

    def of(self, home: Path) -> dict[str, str]:
        """Return the environment of a process with that home."""
        return {**self.environment, "HOME": str(home), "STALLGUARD_HOME": str(home / "sg")}

    def start_scheduler(self) -> None:
        with (self.place / "scheduler.log").open("ab") as log:
            self.scheduler = subprocess.Popen(
                [sys.executable, "-m", "stallguard", "fleet", "scheduler"], env=self.of(self.hub),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill_scheduler(self) -> None:
        if self.scheduler is not None and self.scheduler.poll() is None:
            self.scheduler.kill()
            self.scheduler.wait(30)

    def boot(self, machine: Machine) -> None:
        machine.boot(
            [sys.executable, "-m", "stallguard", "fleet", "worker", "--name", machine.host],
            {**self.environment, "STALLGUARD_FLEET": str(self.file_of(machine))},
        )

    def file_of(self, machine: Machine) -> Path:
        return self.place / f"{machine.host}.toml"

    def is_ready(self, machine: Machine) -> bool:
        line = f"{machine.host} is connected to"
        return machine.log.exists() and line in machine.log.read_text(errors="replace")

    def held_by(self, machine: Machine, jobs: list[str]) -> str:
        """Return a job that a machine trains and has published something of, "" for none."""
        return next((job for job in jobs if published.holder(self.store, job) == (machine.host, True)), "")

    def finished(self, jobs: list[str]) -> list[str]:
        return [job for job in jobs if published.read(self.store, job).finished]

    def close(self) -> None:
        if self.scheduler is not None and self.scheduler.poll() is None:
            self.scheduler.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.scheduler.wait(30)
        self.kill_scheduler()
        for machine in self.machines:
            machine.remove()

    def keep(self, target: Path) -> None:
        """Copy the logs, to see what went wrong."""
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.place / "scheduler.log", target)
        for machine in self.machines:
            shutil.copy(machine.log, target / f"{machine.host}.log")
            with contextlib.suppress(OSError):
                shutil.copytree(machine.home / "sg" / "fleet" / "logs", target / machine.host, dirs_exist_ok=True)
