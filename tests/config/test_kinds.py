"""Orders for single causes: known names pass, any other is answered with the nearest."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallguard import config
from stallguard.core.diagnosis.causes import CAUSES
from stallguard.core.limits import ON_STALL
from stallguard.core.policy import ORDERS
from stallguard.errors import USAGE, StallguardError


def causes(raw: object) -> tuple[str, ...]:
    return config.load({"policy.causes": raw}, {"HOME": "/nowhere"}, Path("/")).config.policy.causes


def test_every_cause_and_every_order_is_known() -> None:
    assert set(ON_STALL) == {"auto", *ORDERS}
    pairs = tuple(f"{cause}={order}" for cause in CAUSES for order in ON_STALL)
    assert causes(list(pairs)) == pairs


@pytest.mark.parametrize(
    "raw",
    ["device-wait=halve, gil-held=stop", "device-wait = halve,gil-held= stop", ["device-wait =halve", "gil-held=stop"]],
)
def test_a_list_may_be_written_as_text_and_with_spaces(raw: object) -> None:
    assert causes(raw) == ("device-wait=halve", "gil-held=stop")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("devise-wait=halve", "there is no cause 'devise-wait'; did you mean device-wait?"),
        ("device-wait=half", "there is no order 'half'; did you mean halve?"),
        ("device-wait=zzz", "there is no order 'zzz'; the orders are auto, restart, halve, cpu, stop, notify"),
        ("device-wait", "'device-wait' is not of the form cause=order"),
    ],
)
def test_what_is_unknown_is_named_with_the_nearest(raw: str, why: str) -> None:
    with pytest.raises(StallguardError) as caught:
        causes(raw)
    assert (caught.value.why, caught.value.code) == (why, USAGE)
