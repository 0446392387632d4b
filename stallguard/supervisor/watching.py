"""A run of a process that stallguard did not start: counted, judged and announced, never acted upon.

It differs from a plain run in this: the process is there already, its output is not ours, no checkpoint is made, and
its one attempt is never followed by another.  The settings of the user hold as far as they only watch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from stallguard.config import CurrentSettings, Loaded
from stallguard.core.limits import NEVER
from stallguard.launch.request import Request
from stallguard.probe.settings import VARIABLE
from stallguard.storage.run_files import Identity
from stallguard.supervisor import injected_probe
from stallguard.supervisor.child import Child
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.launcher import RunOptions
from stallguard.supervisor.observed import Observed
from stallguard.supervisor.session import Session
from stallguard.worker import Worker

# Gets the environment that a child of ours would get: a variable of it shows a probe where its supervisor is.
Give = Callable[[Mapping[str, str]], None]


def only_watching(loaded: Loaded, *, probe: bool = True) -> Loaded:
    """Return the settings without all that would act on the process.  `probe`: whether one is in it."""
    config = loaded.config
    run = replace(
        config.run,
        observe=True,
        probe=probe,
        resume="",
        stop_at="",
        max_time=NEVER,
        segments=NEVER,
        let_sleep=True,
        display_sleep=False,
    )
    policy = replace(
        config.policy, on_stall="notify", causes=(), memory_ahead="notify", empty_caches=False, on_nonfinite="notify",
        microbatches=1, batch=0, batch_flag="", batch_env="", really_smaller_batch=False, leave_machine=False,
    )  # fmt: skip
    watched = replace(
        config, run=run, policy=policy, checkpoint=replace(config.checkpoint, enabled=False),
        trackers=replace(config.trackers, resume=False), store=replace(config.store, url="", job=""),
    )  # fmt: skip
    return replace(loaded, config=watched)


def settings(load: Callable[[], Loaded], *, probe: bool = True) -> CurrentSettings:
    """Return settings that `load` reads, now and when their files change, without what would act.  Raises as `load`."""

    def watching() -> Loaded:
        return only_watching(load(), probe=probe)

    return CurrentSettings(watching(), watching)


def announce(context: RunContext, pid: int) -> None:
    """Say what is watched."""
    started = {"pid": str(pid), "command": " ".join(context.request.words), "run": context.directory.id}
    context.reporter.announce("watch.started", started)


def announce_limits(context: RunContext, follows: Path | None, refused: str = "") -> None:
    """Say what cannot be known from outside.  `follows`: the file that the process prints to; `refused`: why so."""
    if refused:
        context.reporter.announce("probe.impossible", {"why": refused})
    printed = f"its output is followed in {follows}" if follows else "no file is known that it prints to"
    context.reporter.announce("watch.limits", {"output": printed})


class Injection:
    """The probe of a process that the user has named: ordered when the watch begins, taken out when it ends."""

    def __init__(self, pid: int, follows: Path | None) -> None:
        """`follows`: as above."""
        self._pid, self._follows = pid, follows
        self._is_in = self._is_over = False
        self.context: RunContext | None = None

    def give(self, environment: Mapping[str, str]) -> None:
        """Order the probe; say why it is refused, and on a thread when it is in: its main thread can be busy."""
        context = self.context
        if context is None:
            return
        folder = Path(environment["PYTHONPATH"].split(os.pathsep)[0]).parent
        place = context.directory.probe
        refused = injected_probe.enter(self._pid, folder, environment[VARIABLE], place)
        self._is_in = not refused
        if refused:
            announce_limits(context, self._follows, refused)
        else:
            Worker(self._follow, "injection").start()

    def _follow(self) -> None:
        context = self.context
        if context is None:
            return
        why = injected_probe.await_entry(self._pid, context.directory.probe, lambda: self._is_over)
        if not self._is_over:
            context.reporter.announce("probe.impossible" if why else "probe.inside", {"why": why} if why else {})

    def end(self) -> None:
        """Order the probe out of a process that goes on."""
        self._is_over = True
        if self._is_in and self.context is not None:
            injected_probe.leave(self._pid, self.context.directory.probe)


def session(
    request: Request, settings: CurrentSettings, env: Mapping[str, str], who: Identity, give: Give | None = None,
    *, blind: bool = False, **more: Any,
) -> Session:  # fmt: skip
    """Return the session of a watch over the process `who`.

    `give`: as above; `blind`: the process has trained uncounted; `more`: other RunOptions.
    """

    def begin(_argv: Sequence[str], _exit_file: Path, _trouble: Callable[[str], None], /, **how: Any) -> Child:
        child = Observed(who, how["post"], how["before_post"], blind=blind)
        if give is not None:
            give(how["env"])
        return child

    options = {"announce": False, "is_foreign": True} | more
    return Session(request, settings, env, RunOptions(start_process=begin, **options))
