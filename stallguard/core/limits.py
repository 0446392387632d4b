"""All limits that the core needs, in one value; units in the names' comments.

The parts belong to their modules (detector, policy); this module only holds them together.
"""

from __future__ import annotations

import math

import msgspec

from stallguard.core.detector_limits import DetectorLimits
from stallguard.core.policy_limits import PolicyLimits


class StopLimits(msgspec.Struct, frozen=True):
    """How an attempt is ended."""

    grace: float = 10.0  # seconds between SIGTERM and SIGKILL: time for a last checkpoint
    kill_wait: float = 20.0  # seconds after SIGKILL until the process is called unkillable
    batch_wait: float = (
        120.0  # longest wait for the end of a batch, and of the script after it, at a set time
    )
    saving_wait: float = 60.0  # longest wait for a checkpoint that is still growing


class Limits(msgspec.Struct, frozen=True):
    """What `advance` may use to decide."""

    detector: DetectorLimits = DetectorLimits()
    policy: PolicyLimits = PolicyLimits()
    stop: StopLimits = StopLimits()
    observe: bool = False  # tell, never act
    segment: float = math.inf  # seconds of an attempt after which the next one takes its place
    cool_down: float = 30.0  # seconds between the two
