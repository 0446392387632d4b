"""Rates, shares and trends say what the readings say, and nothing where they say nothing."""

from __future__ import annotations

import pytest

from stallguard.core.diagnosis import metrics
from stallguard.core.events import Exited, Heartbeat, Sampled
from stallguard.core.history import History, remember
from stallguard.core.readings import Device, Process, Reading


def seen(*readings: tuple[float, Reading]) -> History:
    story = History(heartbeat=Heartbeat(at=0, attempt=1, beats=1))
    for at, reading in readings:
        story = remember(story, Sampled(at=at, reading=reading))
    return story


def cpu(*points: tuple[float, float | None]) -> History:
    return seen(*((at, Process(cpu=used)) for at, used in points))


def test_a_rate_is_over_the_window_only() -> None:
    story = cpu((0, 0), (10, 20), (20, 21), (30, 22))
    assert metrics.cpu(story, 30, 20) == pytest.approx(0.1)
    assert metrics.cpu(story, 30, 40) == pytest.approx(22 / 30)


def test_a_counter_that_fell_or_a_single_reading_says_nothing() -> None:
    assert metrics.cpu(cpu((0, 10), (10, 3)), 10) is None
    assert metrics.cpu(cpu((10, 3)), 10) is None
    assert metrics.cpu(cpu((0, None), (10, None)), 10) is None
    assert metrics.cpu(History(), 10) is None


def test_a_reading_that_is_too_old_does_not_speak_for_now() -> None:
    story = cpu((0, 1))
    assert metrics.newest(story.process, 29) is not None
    assert metrics.newest(story.process, 31) is None


def test_the_gpu_is_idle_where_our_time_on_it_stands_still() -> None:
    story = seen((0, Device(utilisation=0.9, moved=False)), (2, Device(utilisation=0.9, moved=False)))
    assert metrics.gpu_idle(story, 2, 10) is True
    assert metrics.gpu_idle(remember(story, Sampled(at=4, reading=Device(moved=True))), 4, 10) is False
    assert metrics.gpu_idle(seen((0, Device(utilisation=0.4))), 1, 10) is False
    assert metrics.gpu_idle(seen((0, Device(name="x"))), 1, 10) is None
    # A GPU that others use shows nothing about this run.  If no program uses it, this run does not.
    assert metrics.gpu_idle(seen((0, Device(utilisation=0.4, used_by_run=False))), 1, 10) is None
    assert metrics.gpu_idle(seen((0, Device(utilisation=0.0, used_by_run=False))), 1, 10) is True


def test_a_gpu_that_rested_once_after_the_end_is_not_busy_since() -> None:
    busy = [(float(at), Device(utilisation=0.99)) for at in range(0, 100, 2)]
    story = remember(seen(*busy), Exited(at=0, attempt=1, code=-9))
    assert metrics.gpu_busy_since(story, 1.0) == 97.0
    rested = remember(story, Sampled(at=100, reading=Device(utilisation=0.2)))
    assert metrics.gpu_busy_since(rested, 1.0) == 0.0


def test_a_state_counts_only_without_a_break() -> None:
    states = ["running"] + ["uninterruptible"] * 3 + ["sleeping"] + ["uninterruptible"] * 4
    story = seen(*((10.0 * n, Process(state=state)) for n, state in enumerate(states)))
    assert metrics.state_held(story, "uninterruptible", 82.0) == 32.0
    assert metrics.state_held(story, "stopped", 82.0) == 0.0


def test_the_share_of_input_is_that_of_the_last_minute() -> None:
    story = History()
    for n in range(60):
        late = max(0, n - 40)
        story = remember(
            story, Heartbeat(at=6.0 * n, attempt=1, input_s=0.1 * n + 5.0 * late, step_s=5.0 * n - 4.0 * late)
        )
    assert metrics.input_share(story) == pytest.approx(5.1 / 6.1)
    assert metrics.input_share(History()) is None
    assert metrics.input_share(remember(History(), Heartbeat(at=0, attempt=1))) is None


def grown(*sizes: int, every: float = 60.0) -> History:
    return seen(*((every * n, Process(footprint=size)) for n, size in enumerate(sizes)))


def test_a_leak_is_a_slope_and_a_cache_is_a_jump() -> None:
    leak = metrics.growth(grown(*(10**9 + 10**7 * n for n in range(40))))
    cache = metrics.growth(grown(*([10**9] * 20 + [2 * 10**9] * 20)))
    assert leak is not None
    assert cache is not None
    assert leak.slope == pytest.approx(10**7 / 60, rel=1e-6)
    assert leak.rising == 1.0
    assert cache.rising < 0.1


def test_warming_up_is_no_growth() -> None:
    trend = metrics.growth(grown(1, 10**9, *([2 * 10**9] * 10)))
    assert trend is not None
    assert trend.total == 0
    assert metrics.growth(grown(1, 2, 3)) is None


def test_the_pace_tells_the_usual_from_the_newest() -> None:
    story = History()
    at = 0.0
    for n in range(20):
        at += 6.0 if n < 19 else 60.0
        story = remember(story, Heartbeat(at=at, attempt=1, beats=10 * n, beat_at=at))
    assert metrics.pace(story) == pytest.approx((0.6, 6.0))
    assert metrics.pace(History()) is None
