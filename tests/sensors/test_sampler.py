"""Samplers: periods, urgency, blocked and failing sensors, and an end that leaves no thread."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from stallguard.core.events import Event, Sampled, SensorBlocked
from stallguard.core.readings import Memory, Reading
from stallguard.host import system
from stallguard.sensors.sampler import Sampler, Samplers
from stallguard.worker import living


class Steady:
    """Says how often it was asked."""

    name = "steady"

    def __init__(self, period: float = 0.02, urgent_period: float = 0.02) -> None:
        self.period, self.urgent_period = period, urgent_period
        self.asked = 0
        self.hurried: list[bool] = []
        self.closed = False

    def hurry(self, on: bool) -> None:
        self.hurried.append(on)

    def read(self) -> Reading | None:
        self.asked += 1
        return Memory(total=self.asked)

    def close(self) -> None:
        self.closed = True


class Stuck:
    """Hangs in its first reading until it is freed."""

    name = "stuck"
    period = 0.01
    deadline = 0.05

    def __init__(self) -> None:
        self.free = threading.Event()
        self.asked = 0

    def read(self) -> Reading | None:
        self.asked += 1
        if self.asked == 1:
            self.free.wait(20)
        return Memory(total=self.asked)


class Broken:
    """Fails always."""

    name = "broken"
    period = 0.01

    def __init__(self) -> None:
        self.asked = 0

    def read(self) -> Reading | None:
        self.asked += 1
        raise OSError("no such thing")


def until(what) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


Mailbox = queue.SimpleQueue[Event]


def test_a_sensor_is_read_at_once_and_then_every_period() -> None:
    mailbox: Mailbox = queue.SimpleQueue()
    sampler = Sampler(Steady(), mailbox.put, system)
    sampler.start()
    events = [mailbox.get(timeout=5) for _ in range(3)]
    sampler.close()
    assert [e.reading for e in events if isinstance(e, Sampled)] == [Memory(total=n) for n in (1, 2, 3)]
    assert events[2].at - events[0].at >= 0.03


class Several(Steady):
    """Has two readings at a time."""

    def read(self) -> list[Reading]:
        return [Memory(total=1), Memory(total=2)]


def test_each_of_several_readings_is_posted() -> None:
    mailbox: Mailbox = queue.SimpleQueue()
    sampler = Sampler(Several(period=60.0), mailbox.put, system)
    sampler.start()
    events = [mailbox.get(timeout=5) for _ in range(2)]
    sampler.close()
    assert [e.reading for e in events if isinstance(e, Sampled)] == [Memory(total=1), Memory(total=2)]


def test_urgency_wakes_a_sleeping_sensor_and_ends_again() -> None:
    mailbox: Mailbox = queue.SimpleQueue()
    sensor = Steady(period=60.0)
    sampler = Sampler(sensor, mailbox.put, system)
    sampler.start()
    mailbox.get(timeout=5)
    sampler.urgent(True)
    for _ in range(4):
        mailbox.get(timeout=5)
    sampler.urgent(False)
    sampler.close()
    assert sensor.hurried == [True, False]


def test_asking_for_urgency_again_and_again_changes_nothing() -> None:
    sensor = Steady(period=60.0, urgent_period=60.0)
    sampler = Sampler(sensor, lambda _event: None, system)
    sampler.start()
    for _ in range(50):
        sampler.urgent(True)
        time.sleep(0.002)
    sampler.close()
    assert sensor.hurried == [True]
    assert sensor.asked <= 2


def test_urgency_that_comes_and_goes_is_no_reason_to_read_before_the_period_is_over() -> None:
    sensor = Steady(period=60.0, urgent_period=30.0)
    sampler = Sampler(sensor, lambda _event: None, system)
    sampler.start()
    for _ in range(25):
        sampler.urgent(True)
        time.sleep(0.002)
        sampler.urgent(False)
        time.sleep(0.002)
    sampler.close()
    assert sensor.asked == 1


def test_a_blocked_sensor_is_reported_once_holds_up_no_other_and_goes_on_when_it_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stallguard.sensors.sampler.LOOK", 0.02)
    mailbox: Mailbox = queue.SimpleQueue()
    stuck, steady = Stuck(), Steady()
    samplers = Samplers([stuck, steady], mailbox.put, system)
    samplers.start()
    until(lambda: steady.asked > 5 and mailbox.qsize() > steady.asked)
    stuck.free.set()
    until(lambda: stuck.asked > 1)
    samplers.close()
    events = [mailbox.get() for _ in range(mailbox.qsize())]
    blocked = [e for e in events if isinstance(e, SensorBlocked)]
    assert [e.sensor for e in blocked] == ["stuck"]
    assert blocked[0].seconds >= 0.05


def test_close_returns_though_a_sensor_hangs() -> None:
    stuck = Stuck()
    samplers = Samplers([stuck], lambda _event: None, system)
    samplers.start()
    begin = time.monotonic()
    samplers.close()
    assert time.monotonic() - begin < 3
    stuck.free.set()


def test_a_failing_sensor_is_reported_once_asked_ever_more_rarely_and_ends_nothing() -> None:
    announced: list[str] = []
    sensor = Broken()

    def trouble(name: str, error: Exception) -> None:
        announced.append(f"{name}: {error}")

    sampler = Sampler(sensor, lambda _event: None, system, trouble)
    sampler.start()
    time.sleep(0.5)
    sampler.close()
    assert announced == ["broken: no such thing"]
    assert 3 <= sensor.asked <= 8


def test_a_plug_in_that_returns_something_else_is_trouble_not_an_event() -> None:
    class Foreign:
        name = "foreign"
        period = 60.0

        def read(self) -> Reading | None:
            return "42 degrees"  # type: ignore[return-value]

    announced: list[Exception] = []
    posted: list[Event] = []
    sampler = Sampler(Foreign(), posted.append, system, lambda _name, error: announced.append(error))
    sampler.start()
    sampler.close()
    assert posted == []
    assert isinstance(announced[0], TypeError)


def test_close_ends_the_threads_and_closes_the_sensors() -> None:
    before = living()
    sensor = Steady(period=60.0)
    samplers = Samplers([sensor], lambda _event: None, system)
    samplers.start()
    samplers.close()
    assert living() == before
    assert sensor.closed
