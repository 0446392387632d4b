"""All sensors together against a real child, and plug-ins beside them."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stallguard.core.events import Event, Sampled
from stallguard.core.readings import Machine, Memory, Process, Reading
from stallguard.host import system
from stallguard.sensors import Target
from stallguard.sensors.sampler import Samplers
from stallguard.sensors.sensor_registry import ProcessSensor, SharingSensor, sensors
from stallguard.worker import living
from tests.host.children import eventually, running
from tests.sensors.clocks import Hands

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
SLEEPER = "import time; print(flush=True); time.sleep(60)"


@linux
def test_within_seconds_all_that_can_be_known_of_a_child_is_known(tmp_path: Path) -> None:
    before = living()
    mailbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
    troubles: list[str] = []
    with running(SLEEPER) as child:
        target = Target(root=child.pid, places=(tmp_path,))
        clock = system
        samplers = Samplers(sensors(target, clock, lambda n, e: troubles.append(f"{n}: {e}")), mailbox.put, clock)
        samplers.start()
        seen: set[type[Reading]] = set()
        until = time.monotonic() + 10
        while seen < {Process, Memory, Machine} and time.monotonic() < until:
            event = mailbox.get(timeout=10)
            assert isinstance(event, Sampled)
            seen.add(type(event.reading))
        samplers.close()
        assert target.members == (child.pid,)
    assert seen >= {Process, Memory, Machine}
    assert troubles == []
    assert living() <= before


@linux
def test_the_census_is_taken_now_and_then_and_with_every_urgent_reading() -> None:
    with running(SLEEPER) as child:
        hands = Hands()
        sensor = ProcessSensor(Target(root=child.pid), hands)
        taken = []
        for second in range(12):
            hands.now = 1000.0 + second
            taken.append(sensor.read().census is not None)
        assert taken == [second in (0, 10) for second in range(12)]
        sensor.hurry(True)
        assert eventually(lambda: sensor.read().census == {"sleep": 1})
        assert sensor.read().main_site == "sleep"
        sensor.hurry(False)
        assert sensor.read().census is None


@linux
def test_a_second_attempt_is_a_new_tree_with_totals_from_nothing() -> None:
    target = Target()
    sensor = ProcessSensor(target, system)
    assert sensor.read() is None
    with running("import time\nfor _ in range(1_500_000): pass\nprint(flush=True); time.sleep(60)") as child:
        target.root = child.pid
        first = sensor.read()
    with running(SLEEPER) as child:
        target.root, target.main, target.shared = child.pid, None, {child.pid: 5 << 20}
        second = sensor.read()
    assert second.cpu < first.cpu
    assert second.census is not None
    assert second.footprint >= second.rss  # what the first attempt shared is forgotten


@linux
def test_shared_pages_are_found_for_a_tree_of_several_and_not_asked_for_one() -> None:
    source = """
import os, time
held = bytearray(os.urandom(1 << 20)) * 60
if os.fork() == 0:
    sum(held[::4096])
print(flush=True); time.sleep(60)
"""
    with running(source) as child:
        target = Target(root=child.pid)
        process, sharing = ProcessSensor(target, system), SharingSensor(target)
        while len(target.members) < 2:
            process.read()
        sharing.read()
        assert target.shared[child.pid] > 50 << 20
        assert process.read().footprint < process.read().rss
        target.members = (child.pid,)
        sharing.read()
        assert target.shared == {child.pid: 0}


def test_watching_files_costs_nothing_until_it_begins() -> None:
    source = "import sys, stallguard.sensors.sensor_registry; print('watchdog' in sys.modules, 'psutil' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    answer = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, env=env)
    assert answer.stdout.strip() == "False False"
