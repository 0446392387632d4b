"""A run of a process that stallguard did not start: counted, judged and announced, never acted upon.

It differs from a plain run in this: the process is there already, its output is not ours, no checkpoint is made, and
its one attempt is never followed by another.  The settings of the user hold as far as they only watch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from stallguard.config import CurrentSettings, Loaded
from stallguard.core.limits import NEVER
from stallguard.launch.request import Request
from stallguard.storage.run_files import Identity
from stallguard.supervisor.child import Child
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.launcher import RunOptions
from stallguard.supervisor.observed import Observed
from stallguard.supervisor.session import Session

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
        config.policy, on_stall="notify", causes=(), memory_ahead="notify", on_nonfinite="notify", microbatches=1,
        batch=0, batch_flag="", batch_env="", really_smaller_batch=False, leave_machine=False,
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


def announce(context: RunContext, pid: int, follows: Path | None) -> None:
    """Say what is watched, and what cannot be known of it.  `follows`: the file that the process prints to."""
    started = {"pid": str(pid), "command": " ".join(context.request.words), "run": context.directory.id}
    printed = f"its output is followed in {follows}" if follows else "no file is known that it prints to"
    context.reporter.announce("watch.started", started)
    context.reporter.announce("watch.limits", {"output": printed})


def session(
    request: Request, settings: CurrentSettings, env: Mapping[str, str], who: Identity, give: Give | None = None,
    **more: Any,
) -> Session:  # fmt: skip
    """Return the session of a watch over the process `who`.  `give`: as above; `more`: other RunOptions."""

    def begin(_argv: Sequence[str], _exit_file: Path, _trouble: Callable[[str], None], /, **how: Any) -> Child:
        child = Observed(who, how["post"], how["before_post"])
        if give is not None:
            give(how["env"])
        return child

    options = {"announce": False, "is_foreign": True} | more
    return Session(request, settings, env, RunOptions(start_process=begin, **options))
