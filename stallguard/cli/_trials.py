"""What `find-batch` and `compare` share: one guarded trial after the other, each of the same command.

Must not judge what a trial showed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stallguard import config
from stallguard.cli._console import echo
from stallguard.core.text import counted

if TYPE_CHECKING:  # completion must not wait for these imports
    from stallguard.core.actions import Launch
    from stallguard.core.trials import Trial
    from stallguard.supervisor.trial import TrialRun


class Interrupted(Exception):
    """The user ended the trials."""


class TrialSetting(NamedTuple):
    """What a trial is run with.  `flags`: settings of stallguard, over those of the command line."""

    label: str
    flags: Mapping[str, Any]
    env: Mapping[str, str]
    launch: Launch


class Trials:
    """Runs trials of one command."""

    def __init__(
        self, words: tuple[str, ...], flags: Mapping[str, Any], steps: int, seconds: float = 0.0
    ) -> None:
        """`flags`: settings as given on the command line; `steps`, `seconds`: as for TrialRun."""
        self.words, self.flags, self._steps, self._seconds = words, dict(flags), steps, seconds
        self.cwd = Path.cwd()

    def load(self, more: Mapping[str, Any], env: Mapping[str, str]) -> config.Loaded:
        """Return the settings of a trial.  Raises StallguardError."""
        from stallguard.supervisor.trial import SETTINGS

        return config.load({**self.flags, **SETTINGS, **more}, env, self.cwd)

    def run(self, setting: TrialSetting, kept: list[int]) -> TrialRun:
        """Run one trial to its end.  `kept`: signals that arrived before.

        Raises StallguardError if it cannot begin, and Interrupted if the user has ended the trials already.
        """
        from stallguard.launch.request import prepare
        from stallguard.supervisor.trial import TrialRun

        if kept:
            raise Interrupted
        loaded = self.load(setting.flags, setting.env)
        request = prepare(self.words, loaded, setting.env, self.cwd, trial=True)
        trial = TrialRun(
            request, loaded, setting.env, steps=self._steps, seconds=self._seconds, launch=setting.launch
        )
        trial.guard(kept)
        return trial


def report_trial(label: str, trial: Trial, good: str) -> None:
    """Print the outcome of one trial, while others follow."""
    outcome = f"fails: {trial.trouble}" if trial.trouble else good
    notes = "; ".join(
        filter(None, (counted(trial.batches, "batch", "batches"), trial.note, f"run {trial.run}"))
    )
    echo(f"stallguard: {label}: {outcome} ({notes})", err=True)
