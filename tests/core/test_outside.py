"""What is said of a run in which no training library was loaded, and when."""

from __future__ import annotations

import pytest

from stallguard.core.outside import AFTER, NO_LIBRARY, NO_PROBE, ProbeReports, watched


@pytest.mark.parametrize(
    ("reports", "seconds", "barred", "said"),
    [
        (ProbeReports(ever=False, waiting=True, loading=False), AFTER, "", NO_LIBRARY),
        (ProbeReports(ever=False, waiting=True, loading=False), AFTER - 1, "", ""),
        (ProbeReports(ever=False, waiting=False, loading=False), AFTER, "", NO_PROBE),
        (
            ProbeReports(ever=False, waiting=False, loading=False),
            AFTER,
            "it is a shell",
            f"{NO_PROBE}: it is a shell",
        ),
        # A launcher that loads nothing waits as long as its child trains, and after that.
        (ProbeReports(ever=True, waiting=True, loading=False), AFTER, "", ""),
        # A worker of a pool imports a library, and sends nothing until it trains.
        (ProbeReports(ever=False, waiting=True, loading=True), AFTER, "", ""),
    ],
)
def test_only_what_is_known_is_said(reports: ProbeReports, seconds: float, barred: str, said: str) -> None:
    assert watched(reports, seconds, barred) == said
