"""Where a storm takes place: a folder with the disk of the runs, and the service manager that starts the job.

The disk can be filled and made read-only.  It is a small tmpfs, so the machine's own disk is never full; a system on
which none can be mounted (no root, or macOS) has the folder itself as its disk, without the faults of the disk.

The service manager starts a job's program, and starts it again if it fails, as stallguard's own unit says
(agent/systemd.py: Restart=on-failure, RestartSec, KillMode=process): an exit code of 0 ends the job, anything else is
followed by another start, and the training is not ended with stallguard.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from stallguard.agent.job import AgentJob


class Service:
    """One job.  `codes`: how each of its processes ended, a signal as a negative number."""

    def __init__(self, job: AgentJob) -> None:
        self._job = job
        self.codes: list[int] = []
        self.process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="service")

    def start(self) -> None:
        self._thread.start()

    def _keep(self) -> None:
        while not self._stopped.is_set():
            with Path(self._job.log).open("ab") as log:
                self.process = subprocess.Popen(
                    self._job.program, cwd=self._job.cwd, env=self._job.env, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
            self.codes.append(self.process.wait())
            if self.codes[-1] == 0:
                return
            self._stopped.wait(self._job.throttle)

    @property
    def supervisor(self) -> int | None:
        """The process that supervises now; None between two."""
        process = self.process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def is_over(self) -> bool:
        """Whether the job ended, and is not started again."""
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return self.is_over

    def close(self) -> None:
        self._stopped.set()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
        self._thread.join()


SIZE = 768  # MB: the checkpoints of a night, and the 64 MB that stallguard leaves free for the script
BLOCK = bytes(1 << 20)


class Place:
    """`work`: the script's directory; `orders`: how it is halted, and what it notes; `home`: STALLGUARD_HOME."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work, self.orders, self.temporary = folder / "work", folder / "orders", folder / "tmp"
        self._disk = folder / "disk"
        self.home = self._disk / "kept"
        for path in (self.work, self.orders, self.temporary, self._disk):
            path.mkdir()
        self.has_disk = _mounted("-t", "tmpfs", "-o", f"size={SIZE}m", "tmpfs", str(self._disk))
        self.home.mkdir(mode=0o700)

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            for size in (len(BLOCK), 4096, 1):
                with contextlib.suppress(OSError):
                    while file.write(BLOCK[:size]):
                        pass

    def make_room(self) -> None:
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self._disk / "ballast"

    def make_read_only(self) -> bool:
        """Let nothing be made or opened for writing below `home`; what is open stays writable."""
        home = str(self.home)
        return _mounted("--bind", home, home) and _mounted("-o", "remount,ro,bind", home)

    def make_writable(self) -> None:
        """Undo `make_read_only`.  Lazily: what was opened for reading meanwhile stays open."""
        subprocess.run(["umount", "--lazy", str(self.home)], check=False, capture_output=True)

    def close(self) -> None:
        while os.path.ismount(self.home):
            self.make_writable()
        if self.has_disk:
            subprocess.run(["umount", "--lazy", str(self._disk)], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def _mounted(*words: str) -> bool:
    if sys.platform == "darwin":
        return False
    with contextlib.suppress(OSError):
        return subprocess.run(["mount", *words], check=False, capture_output=True).returncode == 0
    return False


@contextlib.contextmanager
def opened() -> Iterator[Place]:
    place = Place(Path(tempfile.mkdtemp(prefix="sg-storm-")))
    try:
        yield place
    finally:
        place.close()
