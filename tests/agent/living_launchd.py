"""The recorded launchctl with real processes behind it: what it starts runs, and is started again where it fails."""

from __future__ import annotations

import contextlib
import io
import json
import plistlib
from collections.abc import Sequence
from pathlib import Path

from stallguard.agent.service_manager import ToolAnswer
from tests.agent.fake_launchctl import Fake
from tests.agent.little_launchd import LittleLaunchd


class LivingLaunchd:
    """Answers as the fake does; the processes are a little launchd's."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.living: dict[str, LittleLaunchd] = {}

    @property
    def state(self) -> dict:
        file = self.place / "state.json"
        return json.loads(file.read_text()) if file.exists() else {"jobs": {}}

    def ask(self, words: Sequence[str]) -> ToolAnswer:
        self._look()
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = Fake(self.place).call(list(words))
        self._follow(words)
        return ToolAnswer(code, out.getvalue())

    def _look(self) -> None:
        """Write down what has become of the processes."""
        state = self.state
        for label, job in state["jobs"].items():
            little = self.living.get(label)
            if little is None or little.process is None:
                continue
            lives = little.process.poll() is None
            job["pid"] = little.process.pid if lives else None
            job["exit"] = little.codes[-1] if little.codes else None
            job["runs"] = job["base"] + len(little.codes) - (not lives)
        (self.place / "state.json").write_text(json.dumps(state))

    def _follow(self, words: Sequence[str]) -> None:
        """Do to the processes what the fake did to its state."""
        state = self.state
        for label, job in state["jobs"].items():
            little = self.living.get(label)
            if words[0] == "kill" and words[-1].endswith(f"/{label}") and little:
                little.process.terminate()
                job["ending"] = None
            elif job["pid"] and job.get("leaving") is None and (little is None or little.wait(0)):
                self.living[label] = self._started(job)
        for label in [label for label in self.living if words[0] == "bootout" and words[1].endswith(f"/{label}")]:
            self.living.pop(label).close()
        (self.place / "state.json").write_text(json.dumps(state))

    def _started(self, job: dict) -> LittleLaunchd:
        little = LittleLaunchd(plistlib.dumps(job["keys"]))
        little.start()
        while little.process is None and not little.wait(0.01):
            pass
        job["base"] = job["runs"]
        job["pid"], job["exit"] = (little.process.pid, None) if little.process else (None, 78)
        return little

    def close(self) -> None:
        for little in self.living.values():
            little.close()
