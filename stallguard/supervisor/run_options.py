"""What a detached run or a trial of `find-batch` or `compare` does otherwise than a plain run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stallguard.storage import paths
from stallguard.storage.paths import RunDir
from stallguard.supervisor.launcher import StartProcess, start_child

if TYPE_CHECKING:
    from stallguard.core.actions import Launch
    from stallguard.core.events import Event
    from stallguard.core.limits import Limits
    from stallguard.core.run import Run
    from stallguard.core.shutdown import Step
    from stallguard.supervisor.context import RunContext
    from stallguard.supervisor.launcher import EarlierRuns, Launcher

    # Given the run as it would begin anew.  Returns the run as it was left and the next actions; None: begin anew.
    TakeUp = Callable[[RunContext, Launcher, EarlierRuns, Limits, Run], Step | None]


def new_sockets(directory: RunDir) -> Path:
    """Make a directory for the sockets of a run."""
    return paths.socket_dir(owner=directory.path)


class RunOptions(NamedTuple):
    """The defaults are those of a plain run."""

    announce: bool = True  # write to the terminal what is guarded
    open_sockets: Callable[[RunDir], Path] = new_sockets
    output_to_file: bool = False  # the training writes to output.log itself
    start_process: StartProcess = start_child
    outcome_patience: float = 0.0  # seconds to try for, if the disk refuses the outcome
    save_core: bool = False  # save the core's value beside the journal, for a later stallguard
    take_up: TakeUp | None = None  # for a run that an earlier stallguard left
    trial: Launch | None = None  # the first launch of a trial, which ignores what earlier runs showed
    # Gets each event, and each record of the probe, from any thread.
    observe: Callable[[Event], None] | None = None
    sensor_periods: Mapping[str, float] = {}  # seconds between two readings, by sensor, in place of its own
    # Called once, before the first attempt starts.
    beside: Callable[[RunContext, Launcher], None] | None = None
    stop_when: Callable[[Run], bool] | None = None  # stop the training once this is true
