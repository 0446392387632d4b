"""The service manager of a storm: starts a job's program, and starts it again if it fails, as its unit says.

Restart=on-failure, RestartSec and KillMode=process of stallguard's own unit (agent/systemd.py): an exit code of 0 ends
the job, anything else is followed by another start, and the training is not ended with stallguard.
"""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

from stallguard.agent.job import AgentJob


class Service:
    """One job.  `codes`: how each of its processes ended, a signal as a negative number."""

    def __init__(self, job: AgentJob) -> None:
        """Start nothing yet."""
        self._job = job
        self.codes: list[int] = []
        self.process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="service")

    def start(self) -> None:
        """Start the job."""
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
        """Wait for the end of the job; return whether it came."""
        self._thread.join(seconds)
        return self.is_over

    def close(self) -> None:
        """End what runs; it is not started again."""
        self._stopped.set()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
        self._thread.join()
