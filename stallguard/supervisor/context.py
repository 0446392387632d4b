"""What every part of a run needs, as one value that Session makes and hands to the parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stallguard.config import Loaded
from stallguard.config.sections import Config
from stallguard.host.clock import Clock
from stallguard.launch.request import Request
from stallguard.storage.paths import RunDir
from stallguard.supervisor.current_run import CurrentRun
from stallguard.supervisor.mailbox import Mailbox
from stallguard.supervisor.output.carrier import OutputCarrier
from stallguard.supervisor.output.notices import Terminal
from stallguard.supervisor.recorder import Recorder
from stallguard.supervisor.reporter import Reporter

if TYPE_CHECKING:
    from stallguard.supervisor.output.file import OutputFile


class CurrentSettings:
    """The settings that hold now.  The thread that watches the settings files replaces them."""

    def __init__(self, loaded: Loaded) -> None:
        """Hold `loaded` until `replace`."""
        self.loaded = loaded
        self._followers: list[Callable[[Config], None]] = []

    @property
    def config(self) -> Config:
        """The values of the settings."""
        return self.loaded.config

    def follow(self, follower: Callable[[Config], None]) -> None:
        """Call `follower` with each later change."""
        self._followers.append(follower)

    def replace(self, loaded: Loaded) -> None:
        """Hold `loaded` from now on."""
        if loaded != self.loaded:
            self.loaded = loaded
            for follower in self._followers:
                follower(loaded.config)


class RunContext(NamedTuple):
    """`env`: the user's environment; `sockets`: the directory of the sockets; `began`: monotonic seconds."""

    request: Request
    env: Mapping[str, str]
    settings: CurrentSettings
    sockets: Path
    clock: Clock
    began: float
    mailbox: Mailbox
    journal: Recorder
    current: CurrentRun
    reporter: Reporter
    terminal: Terminal
    output: OutputCarrier | OutputFile

    @property
    def directory(self) -> RunDir:
        """The run's directory."""
        return self.request.run
