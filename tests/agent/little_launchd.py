"""A service manager of a few lines: starts what a property list says, and starts it again where it failed."""

from __future__ import annotations

import os
import plistlib
import subprocess
import threading
from pathlib import Path


class LittleLaunchd:
    """Keeps one job as KeepAlive {SuccessfulExit: false} asks, on a thread, until it ends in good order."""

    def __init__(self, plist: bytes, throttle: float = 0.1) -> None:
        self.keys = plistlib.loads(plist)
        self.throttle = throttle
        self.codes: list[int] = []
        self.process: subprocess.Popen | None = None
        self.paused = threading.Event()
        self.paused.set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="little-launchd")

    def start(self) -> None:
        self._thread.start()

    def _keep(self) -> None:
        while not self._stop.is_set():
            self.paused.wait()
            with Path(self.keys["StandardOutPath"]).open("ab") as log:
                self.process = subprocess.Popen(
                    self.keys["ProgramArguments"], cwd=self.keys.get("WorkingDirectory", "/"), stdin=subprocess.DEVNULL,
                    env=self.keys.get("EnvironmentVariables", {}) | {"HOME": os.environ["HOME"]}, stdout=log,
                    stderr=log,
                    process_group=0,
                )  # fmt: skip
            self.codes.append(self.process.wait())
            if self.codes[-1] == 0 or "KeepAlive" not in self.keys:
                return
            self._stop.wait(self.throttle)

    def wait(self, seconds: float) -> bool:
        """Wait for the job's end in good order."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def close(self) -> None:
        self._stop.set()
        self.paused.set()
        if self.process and self.process.poll() is None:
            self.process.terminate()
        self._thread.join()
