"""Machines on one machine: each has its own network, processes, host name and home, made of Linux namespaces.

All of them share one bridge with the host, as machines of a lab share a network.  A machine is killed by its first
process, with which the kernel kills each other one of it; it is cut off by its link, and by an empty directory over the
shared folder, which is where NFS would fail.  Needs root.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path


class Network:
    """A bridge, from `open` to `close`."""

    def __init__(self) -> None:
        """Choose a name and addresses by the pid of the bench: two benches do not meet."""
        number = os.getpid()
        self.name = f"sgf{number % 100000}"
        self.prefix = f"10.{64 + number % 128}.{number // 128 % 250}"
        self.host = f"{self.prefix}.1"

    def open(self) -> None:
        """Make it.  Raises CalledProcessError."""
        run("ip", "link", "add", self.name, "type", "bridge")
        run("ip", "addr", "add", f"{self.host}/24", "dev", self.name)
        run("ip", "link", "set", self.name, "up")

    def close(self) -> None:
        run("ip", "link", "del", self.name, check=False)


class Machine:
    """One machine, from `boot` to `remove`.  `share`: the folder of the store, which it can lose."""

    def __init__(self, network: Network, number: int, place: Path, share: Path | None) -> None:
        """`place`: for its home."""
        self.network, self.number, self.share = network, number, share
        self.host = f"m{number}"
        self.home = place / self.host
        self.home.mkdir()
        self._space = f"{network.name}-{number}"
        self._process: subprocess.Popen[bytes] | None = None
        self.log = self.home / "worker.log"

    def connect(self) -> None:
        outer, inner = f"{self._space}o", f"{self._space}i"
        run("ip", "netns", "add", self._space)
        run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
        run("ip", "link", "set", inner, "netns", self._space)
        run("ip", "link", "set", outer, "master", self.network.name, "up")
        inside = ("ip", "netns", "exec", self._space, "ip")
        run(*inside, "addr", "add", f"{self.network.prefix}.{10 + self.number}/24", "dev", inner)
        run(*inside, "link", "set", inner, "up")
        run(*inside, "link", "set", "lo", "up")

    def boot(self, command: list[str], environment: Mapping[str, str]) -> None:
        """Start its worker, as its first process."""
        starts = f'hostname {self.host}; exec "$@"'
        inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "sh", "-c", starts, "sh"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self._space, *inside, *command],
                env={**environment, "HOME": str(self.home), "STALLGUARD_HOME": str(self.home / "sg")},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    @property
    def first(self) -> int:
        assert self._process is not None  # noqa: S101 - it was booted
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return int(children.read_text().split()[0])

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self.first, signal.SIGKILL)
            self._process.wait(30)

    def cut_off(self) -> None:
        """Take network and shared folder away; its processes go on."""
        run("ip", "link", "set", f"{self._space}o", "down")
        if self.share is not None:
            run("nsenter", "-t", str(self.first), "-m", "mount", "-t", "tmpfs", "none", str(self.share))

    def reconnect(self) -> None:
        run("ip", "link", "set", f"{self._space}o", "up")
        if self.share is not None:
            run("nsenter", "-t", str(self.first), "-m", "umount", str(self.share))

    def end(self) -> None:
        """End its worker as a user does, and all else with it."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                os.kill(self.first, signal.SIGTERM)
                self._process.wait(30)
        self.kill()

    def remove(self) -> None:
        with contextlib.suppress(OSError, IndexError, subprocess.TimeoutExpired):
            self.end()
        run("ip", "netns", "del", self._space, check=False)

    def trained(self, job: str) -> list[float]:
        return [float(line.split()[1]) for line in self.lines(job) if line.startswith("trains ")]

    def digests(self, job: str) -> list[str]:
        return [line.split()[1] for line in self.lines(job) if line.startswith("digest ")]

    def lines(self, job: str) -> list[str]:
        path = self.home / "sg" / "fleet" / "logs" / f"{job}.log"
        return path.read_text(errors="replace").splitlines() if path.exists() else []


def run(*words: str, check: bool = True) -> None:
    """Run a tool of the system.  Raises CalledProcessError."""
    subprocess.run(words, check=check, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(what: str, holds: object, limit: float, period: float = 0.5) -> None:
    """Wait until `holds()` is true.  Raises TimeoutError after `limit` seconds."""
    end = time.monotonic() + limit
    while not holds():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError(f"not within {limit:.0f} s: {what}")
        time.sleep(period)
