"""Of several trainings each has readings of its own process tree, however busy the others are."""

from __future__ import annotations

import sys
from collections.abc import Collection

import psutil
import pytest

from stallguard.core.readings import Device, Process
from stallguard.sensors import SensedTraining, Target
from stallguard.sensors.sensor_registry import DeviceSensor, ProcessSensor
from tests.host.children import eventually, running
from tests.sensors.clocks import Hands

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
# A launcher, with a training that is busy and one that sleeps and has a sleeping worker.
LAUNCHER = """
import os, time
def busy():
    while True: pass
def sleeping():
    if os.fork() == 0: time.sleep(60)
    time.sleep(60)
children = []
for work in (busy, sleeping):
    child = os.fork()
    if child == 0: work()
    children.append(child)
print(*children, flush=True)
time.sleep(60)
"""


@linux
def test_a_busy_training_does_not_show_in_the_readings_of_one_that_sleeps() -> None:
    with running(LAUNCHER) as child:
        target, hands = Target(root=child.pid), Hands()
        sensor = ProcessSensor(target, hands)
        assert eventually(lambda: sensor.read() and len(target.members) == 4)
        sleeping, busy = sorted(psutil.Process(child.pid).children(), key=lambda one: -len(one.children()))
        busy, sleeping = busy.pid, sleeping.pid
        target.trainings = (SensedTraining(busy), SensedTraining(sleeping, period=0.25, census=True))

        def read() -> dict[int, Process]:
            hands.now += 1.0
            found = sensor.read()
            assert isinstance(found, list)
            return {reading.pid: reading for reading in found}

        first = read()
        assert eventually(lambda: (read()[busy].cpu or 0.0) > (first[busy].cpu or 0.0) + 0.2)
        last = read()

    assert (last[sleeping].cpu or 0.0) - (first[sleeping].cpu or 0.0) < 0.05
    assert (last[busy].members, last[sleeping].members) == (1, 2)
    assert last[sleeping].census == {"sleep": 2}
    assert len(target.members) == 4, "other sensors ask for all processes of the run"
    assert {pid: len(tree) for pid, tree in target.trees.items()} == {busy: 1, sleeping: 2}


@linux
def test_a_training_in_doubt_is_read_four_times_a_second_and_one_that_stalled_long_ago_seldom() -> None:
    with running(LAUNCHER) as child:
        target, hands = Target(root=child.pid), Hands()
        sensor = ProcessSensor(target, hands)
        assert eventually(lambda: sensor.read() and len(target.members) == 4)
        calm, doubted, stalled = target.members[1:4]
        target.trainings = (
            SensedTraining(calm),
            SensedTraining(doubted, period=0.25),
            SensedTraining(stalled, period=2.5),
        )
        readings = []
        for _ in range(24):
            hands.now += 0.25
            readings += sensor.read()

    pids = [reading.pid for reading in readings]
    assert (pids.count(calm), pids.count(doubted), pids.count(stalled)) == (6, 24, 3)


class Gpu:
    """Whose work is that of one process."""

    worker = 11

    def read(self, pids: Collection[int], family: Collection[int]) -> Device:
        others = len({9, 10, 11, 12} - {*pids, *family})
        return Device(name="one for all", utilisation=0.9, moved=self.worker in pids, used_by_run=True, others=others)


def test_the_gpu_time_of_one_training_is_none_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallguard.host.system.Gpu", Gpu)
    target = Target(members=(10, 11, 12))
    sensor = DeviceSensor(target)

    whole = sensor.read()
    target.trees = {11: (11,)}
    alone = sensor.read()
    target.trees = {11: (11,), 12: (12,)}
    each = sensor.read()

    assert [(reading.pid, reading.moved) for reading in whole + alone] == [(0, True), (0, True)]
    assert [(reading.pid, reading.moved) for reading in each] == [(11, True), (12, False)]
    assert [reading.others for reading in whole + alone + each] == [1] * 4, "no process of the run is another program"
