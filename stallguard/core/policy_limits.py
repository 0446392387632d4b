"""The settings of the restart policy, with their units and reasons.  This module may not decide anything."""

from __future__ import annotations

import msgspec

ON_STALL = ("auto", "restart", "halve", "cpu", "stop", "notify")
SCALINGS = ("off", "linear", "sqrt")


class PolicyLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often, how soon and how the next attempt may come."""

    on_stall: str = "auto"  # one of ON_STALL; auto: the remedy that fits the cause
    causes: tuple[str, ...] = ()  # the same for single causes, stronger than on_stall: "device-wait=halve"
    min_batch: int = 1  # rows that a micro-batch keeps at least
    max_factor: int = 64  # micro-batches a batch at most, where the rows are not known
    max_restarts: int = 10  # within the window; what is spent comes back as it ages
    restart_window: float = 3600.0  # s
    fruitless: int = 2  # restarts in a row without new progress after which it gives up
    healthy: float = 1800.0  # s of an attempt that got on, after which its troubles are no habit
    backoff: float = 2.0  # s before the second restart in a row; the first comes at once, then it doubles
    backoff_cap: float = 120.0  # s
    microbatches: int = 1  # slices that each batch is trained in from the start, and at least
    batch: int = 0  # rows that the script is given at first; 0: its own business
    batch_flag: str = ""  # the script's option for it
    batch_env: str = ""  # the variable that the script reads it from
    really_smaller_batch: bool = False  # where Keras takes the batch size: fewer rows instead of slices
    scale_lr: str = "off"  # one of SCALINGS: what the learning rate does then
    regrow: bool = False
    regrow_after: float = 1800.0  # s of good progress at one size before a larger one is tried

    @property
    def gives_size(self) -> bool:
        """Whether the script is told its batch size, so that slicing it as well would be wrong."""
        return bool(self.batch or self.batch_flag or self.batch_env)


DEFAULTS = PolicyLimits()
