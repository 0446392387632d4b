"""The settings that the core needs, each with its unit and the reason for its value; the detector's are in core.tuning.

Times are seconds.  This module must not decide anything.
"""

from __future__ import annotations

import math

import msgspec

from stallguard.core.tuning import DetectorLimits

ON_STALL = ("auto", "restart", "halve", "cpu", "stop", "notify")
SCALINGS = ("off", "linear", "sqrt")
MEMORY_AHEAD = ("restart", "notify", "off")
ON_NONFINITE = ("notify", "stop", "rollback")


# Slices of a batch at most if its rows are not known: more slices than rows change nothing.
MOST_SLICES = 64


class PolicyLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often, how soon and in which form the next attempt starts."""

    on_stall: str = "auto"  # one of ON_STALL; auto: the remedy that fits the cause
    causes: tuple[str, ...] = ()  # the same for single causes, stronger than on_stall: "device-wait=halve"
    min_batch: int = 1  # rows that a micro-batch keeps at least
    max_restarts: int = 10  # within the window
    restart_window: float = 3600.0  # s
    no_progress_limit: int = 2  # restarts in a row without new progress after which it gives up
    healthy: float = 1800.0  # s of an attempt with progress, after which earlier failures do not count
    backoff: float = 2.0  # s before the second restart in a row; the first comes at once, then it doubles
    microbatches: int = 1  # slices that each batch is trained in from the start, at least
    batch: int = 0  # rows that the script is given at first; 0: the script decides
    batch_flag: str = ""  # the script's option for it
    batch_env: str = ""  # the variable that the script reads it from
    really_smaller_batch: bool = False  # if Keras takes the batch size: fewer rows instead of slices
    scale_lr: str = "off"  # one of SCALINGS: what the learning rate does then
    memory_ahead: str = "restart"  # one of MEMORY_AHEAD: what follows if memory is about to run out
    on_nonfinite: str = "notify"  # one of ON_NONFINITE: what follows if the loss stops being finite
    leave_machine: bool = False  # give up if the machine is at fault: another one continues the job

    @property
    def gives_size(self) -> bool:
        """Whether the script gets its batch size from stallguard, so that slicing it as well would be wrong."""
        return bool(self.batch or self.batch_flag or self.batch_env)


DEFAULTS = PolicyLimits()


# Seconds after SIGKILL until the process is called unkillable: only a wait inside the kernel lasts that long.
KILL_WAIT = 20.0


class StopLimits(msgspec.Struct, frozen=True):
    """How an attempt is ended."""

    grace: float = 10.0  # seconds between SIGTERM and SIGKILL: time for a last checkpoint
    # Longest wait for the end of a batch, and of the script after it, at a set time.
    batch_wait: float = 120.0
    saving_wait: float = 60.0  # longest wait for a checkpoint that is still growing


class Limits(msgspec.Struct, frozen=True):
    """What `advance` decides by."""

    detector: DetectorLimits = DetectorLimits()
    policy: PolicyLimits = PolicyLimits()
    stop: StopLimits = StopLimits()
    observe: bool = False  # announce, never act
    saves: bool = True  # checkpoints are made
    segment: float = math.inf  # seconds of an attempt after which the next one takes its place
    cool_down: float = 30.0  # seconds between the two
