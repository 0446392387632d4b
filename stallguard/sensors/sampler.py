"""Runs each sensor in its own daemon thread and posts its readings.

A sensor that hangs in the kernel blocks only its thread: that is posted once as SensorBlocked, and the sensor
is not read again until it returns.  This module must not depend on any sensor.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable

from stallguard.core.events import Event, Sampled, SensorBlocked
from stallguard.core.readings import AnyReading
from stallguard.host.clock import Clock
from stallguard.sensors import Sensor
from stallguard.worker import REFUSALS, Worker

DEADLINE = 5.0  # seconds
LOOK = 1.0  # seconds between two checks of the deadlines
LONGEST_PAUSE = 60.0  # seconds; the interval after repeated failures
PATIENCE = 0.2  # seconds that close waits for a thread; a blocked one is abandoned

Post = Callable[[Event], None]
Trouble = Callable[[str, Exception], None]


class Sampler:
    """One sensor and its thread."""

    def __init__(self, sensor: Sensor, post: Post, clock: Clock, trouble: Trouble | None = None) -> None:
        """Prepare to read `sensor`.  `trouble` is called when it first fails."""
        self._sensor, self._post, self._clock, self._trouble = sensor, post, clock, trouble
        self._thread = Worker(self._run, f"sensor-{sensor.name}")
        self._wake = threading.Event()
        self._closing = False
        self._urgent = False
        self._began: float | None = None  # when the present reading began
        self._is_reported = False
        self._failures = 0

    def start(self) -> None:
        """Begin to read at once, then every period.  A thread that the system refuses is a failure of this sensor."""
        try:
            self._thread.start()
        except REFUSALS as error:
            if self._trouble is not None:
                self._trouble(self._sensor.name, error)

    def urgent(self, on: bool) -> None:
        """Read at the sensor's urgent period, from now on or no longer."""
        if on == self._urgent:
            return
        hurry = getattr(self._sensor, "hurry", None)
        if hurry is not None:
            hurry(on)
        self._urgent = on
        self._wake.set()

    def check(self) -> None:
        """Post SensorBlocked once if the present reading takes longer than the sensor's deadline."""
        began = self._began
        if began is None or self._is_reported:
            return
        waited = self._clock.monotonic() - began
        if waited > getattr(self._sensor, "deadline", DEADLINE):
            self._is_reported = True
            self._post(SensorBlocked(at=self._clock.monotonic(), sensor=self._sensor.name, seconds=waited))

    def close(self) -> None:
        """End the thread; a blocked one is abandoned."""
        self._closing = True
        self._wake.set()
        self._thread.join(PATIENCE)
        close = getattr(self._sensor, "close", None)
        if close is not None and not self._thread.is_alive():
            close()

    def _run(self) -> None:
        while not self._closing:
            readings: list[AnyReading] = []
            self._is_reported = False
            self._began = self._clock.monotonic()
            try:
                readings = _as_known(self._sensor.read())
            except Exception as error:  # noqa: BLE001 - a sensor, ours or a plug-in's, must never end the night
                if self._failures == 0 and self._trouble is not None:
                    self._trouble(self._sensor.name, error)
                self._failures = min(self._failures + 1, 10)
            else:
                self._failures = 0
            self._began = None
            for reading in readings:
                if not self._closing:
                    self._post(Sampled(at=self._clock.monotonic(), reading=reading))
            self._pause(self._clock.monotonic())

    def _pause(self, since: float) -> None:
        """Wait for the sensor's period.  A change of it takes effect at once, and is no reading by itself."""
        while not self._closing:
            period: float = self._sensor.period
            if self._urgent:
                period = getattr(self._sensor, "urgent_period", period)
            if self._failures:
                period = max(period, min(LONGEST_PAUSE, period * 2.0**self._failures))
            left = since + period - self._clock.monotonic()
            if left <= 0.0:
                return
            self._wake.wait(left)
            self._wake.clear()


def _as_known(returned: object) -> list[AnyReading]:
    found: list[AnyReading] = []
    for one in returned if isinstance(returned, list | tuple) else [returned]:
        if isinstance(one, AnyReading):
            found.append(one)
        elif one is not None:
            kind = type(one).__name__
            raise TypeError(f"a sensor returns a reading of stallguard.core.readings, not {kind}")
    return found


class Samplers:
    """All sensors of a run, and the thread that checks their deadlines."""

    def __init__(self, sensors: Iterable[Sensor], post: Post, clock: Clock, trouble: Trouble | None = None) -> None:
        """Prepare to read all `sensors`.  `trouble` is called when one first fails."""
        self._each = {sensor.name: Sampler(sensor, post, clock, trouble) for sensor in sensors}
        self._closing = threading.Event()
        self._thread = Worker(self._look, "sensor-deadlines")

    def start(self) -> None:
        """Begin to read them all."""
        for sampler in self._each.values():
            sampler.start()
        with contextlib.suppress(*REFUSALS):  # no SensorBlocked is posted then
            self._thread.start()

    def urgent(self, on: bool) -> None:
        """Read at each sensor's urgent period, from now on or no longer."""
        for sampler in self._each.values():
            sampler.urgent(on)

    def close(self) -> None:
        """End all threads that are not blocked."""
        self._closing.set()
        for sampler in self._each.values():
            sampler.close()
        self._thread.join(2 * LOOK)

    def _look(self) -> None:
        while not self._closing.wait(LOOK):
            for sampler in self._each.values():
                sampler.check()
