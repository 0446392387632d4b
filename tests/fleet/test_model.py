"""The lease and the log under kills, freezes, partitions, outages, steps of the wall clock and a slow store."""

from __future__ import annotations

import functools
import os
from random import Random

import pytest

from stallguard.fleet.jobs import generations
from stallguard.fleet.machines import lease
from stallguard.fleet.store import joblog, records
from stallguard.fleet.store.joblog import Tail
from tests import examples
from tests.fleet.world import JOB, LASTS, Checker, Machine, World

SCHEDULES = examples.of(750, fast=75)
STEPS = 30  # of a random schedule
SEEDS = 20  # of each schedule that is followed
SEED = 0 if "CI" in os.environ else Random().getrandbits(32)  # of the first random schedule


def _start_or_kill_the_worker(world, machine, random):
    if machine.worker is None:
        machine.start_worker()
    else:
        machine.worker = None


def _training_ends(world, machine, random):
    for training in machine.trainings[-1:]:
        if training.lives:
            training.lives, training.end = False, random.randrange(2)


def _turn(of, name):
    setattr(of, name, not getattr(of, name))


EVENTS = (
    lambda world, machine, random: machine.start(),
    lambda world, machine, random: machine.kill(),
    lambda world, machine, random: _turn(machine, "frozen"),
    lambda world, machine, random: _turn(machine, "hung"),
    lambda world, machine, random: _turn(machine, "cut_off"),
    lambda world, machine, random: _turn(world, "away"),
    lambda world, machine, random: setattr(machine, "slow", random.randint(0, 12)),
    lambda world, machine, random: setattr(machine, "wall", machine.wall + random.randint(-(10**6), 10**6)),
    _start_or_kill_the_worker,
    _training_ends,
)


def _play(seed):
    """Play one random schedule over three machines: some of the events, and time that passes between them."""
    random = Random(seed)
    world = World(random)
    world.machines = [Machine(world, f"m{n}", 1 + random.uniform(-0.01, 0.01)) for n in range(3)]
    checker, events = Checker(world), random.sample(EVENTS, random.randint(1, len(EVENTS)))
    if random.random() < 0.5:
        world.machines[0].start_worker()
    world.machines[0].start()
    entries = 0
    for _ in range(STEPS):
        if random.random() < 0.2:
            for _ in range(random.randint(1, 70)):
                world.pass_second()
        else:
            random.choice(events)(world, random.choice(world.machines), random)
        number, newest = checker.check()
        if len(world.disk.inside[f"jobs/{JOB}/log"]) > entries:
            entries = len(world.disk.inside[f"jobs/{JOB}/log"])
            _readers_agree(world, number, newest)


def _readers_agree(world, number, newest):
    """The product's two ways to read a log find what the checker finds."""
    for steps in (joblog.read_end(JOB), joblog.catch_up(JOB, Tail())):
        tail = _read(steps, world.disk)
        assert (tail.number, tail.newest) == (number, newest[0] if newest else 0)
        assert tail.refused == 0


def _read(steps, disk):
    answer = None
    while True:
        try:
            answer = disk.do(steps.send(answer))
        except StopIteration as end:
            return end.value


@pytest.fixture(autouse=True)
def _entries_are_decoded_once(monkeypatch):
    """What is in a log is never changed, and read at each step."""
    monkeypatch.setattr(records, "decode", functools.cache(records.decode))


@pytest.mark.costly
def test_no_schedule_publishes_progress_twice_or_accepts_a_fenced_generation():
    for seed in range(SEED, SEED + SCHEDULES):
        try:
            _play(seed)
        except AssertionError as error:
            raise AssertionError(f"random schedule {seed}: {error}") from error


def _trusts_its_memory(job, tail, number, entry):
    """Append without fencing: after the slots that are taken the next one is tried."""
    import msgspec

    while True:
        slot = tail.slot + 1
        entry = msgspec.structs.replace(entry, newest=tail.newest, claim=tail.claimed_at)
        if (yield joblog.StoreRequest("create", records.slot_key(job, slot), records.encode(entry))):
            return joblog.follow(tail, slot, entry)
        tail = tail._replace(slot=slot)


def _cleans_all_but_the_newest_it_knows(self):
    self._kept = self._kept[-1:]
    wanted = {file.name for entry in self._kept[:-1] for file in entry.files}
    for name in (yield joblog.StoreRequest("names", f"jobs/{JOB}/data/{self._number}")):
        if name not in wanted:
            yield joblog.StoreRequest("remove", f"jobs/{JOB}/data/{self._number}/{name}")


def _take_over_from_a_frozen_one(world):
    first, second, _ = world.machines
    first.start()
    yield 10
    first.frozen = True
    second.start()
    yield 3 * int(LASTS)
    first.frozen = False
    yield 30


def _take_over_from_one_that_was_frozen_with_its_worker(world):
    first, second, _ = world.machines
    first.start_worker()
    first.start()
    yield 50
    world.still = True  # so nothing is published, which would show who has the job
    first.frozen = True
    second.start()
    yield 2 * int(LASTS)
    first.frozen = False
    yield 4 * int(LASTS)


def _take_over_from_one_that_is_cut_off(world):
    first, second, _ = world.machines
    first.start()
    yield 10
    first.cut_off = True  # its renewals that arrive late are taken for a sign of life
    second.start()
    yield 9 * int(LASTS)


def _end_while_the_store_is_slow(world):
    first = world.machines[0]
    first.start()
    yield 10
    first.slow = 5
    for _ in range(8):
        yield 5
        first.trainings[-1].progress += 1
    first.trainings[-1].lives, first.trainings[-1].end = False, 0
    yield 200


def _train(world):
    world.machines[0].start()
    yield 30


def _follow(schedule, seed):
    world = World(Random(seed))
    world.machines = [Machine(world, f"m{n}", 1.0) for n in range(3)]
    checker = Checker(world)
    checker.check()
    for seconds in schedule(world):
        for _ in range(seconds):
            world.pass_second()
            checker.check()
    return checker


def _follow_all(schedule):
    for seed in range(SEEDS):
        _follow(schedule, seed)


BREAKS = {
    "no fencing": (_take_over_from_a_frozen_one, joblog, "append", _trusts_its_memory),
    "ends too late": (_take_over_from_one_that_is_cut_off, lease, "LATE", (0.9, 1.2, 1.6)),
    "publishes what is behind": (_end_while_the_store_is_slow, joblog, "is_further", lambda entry, before: True),
    "believes a card after a pause": (
        _take_over_from_one_that_was_frozen_with_its_worker,
        lease,
        "is_unbroken",
        lambda *_: True,
    ),
    "removes too much": (_train, generations.Publication, "clean", _cleans_all_but_the_newest_it_knows),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", BREAKS)
def test_the_checker_finds_what_is_broken_on_purpose(name, monkeypatch):
    schedule, where, what, broken = BREAKS[name]
    numbers = [_follow(schedule, seed).check()[0] for seed in range(SEEDS)]
    assert set(numbers) == {2 if "take_over" in schedule.__name__ else 1}
    monkeypatch.setattr(where, what, broken)
    with pytest.raises(AssertionError):
        _follow_all(schedule)


# ---- the worker of a machine renews the leases of its runs ----------------------------------------------------------


def _beside_a_worker(world):
    """A run whose lease the card of its machine renews, and another machine that waits for the job."""
    first, second, _ = world.machines
    first.start_worker()
    first.start()
    second.start()
    yield 3 * int(LASTS)
    assert world.disk["beats/job@1@m0"]
    assert "beats/job@1" not in world.disk
    assert len(world.claims) == 1


def _the_run_is_killed(world):
    yield from _beside_a_worker(world)
    world.machines[0].kill()


def _the_run_stands_still(world):
    yield from _beside_a_worker(world)
    world.machines[0].hung = True


def _the_run_and_its_worker_are_killed_and_a_worker_begins(world):
    yield from _beside_a_worker(world)
    world.machines[0].kill()
    world.machines[0].worker = None
    yield int(LASTS) // 2
    world.machines[0].start_worker()


def _its_mark_cannot_be_removed_and_the_answer_comes_late(world):
    yield from _beside_a_worker(world)
    world.machines[0].kill()
    world.machines[0].slow = 6
    yield 20
    world.machines[0].slow = 0


ENDS = [
    _the_run_is_killed,
    _the_run_stands_still,
    _the_run_and_its_worker_are_killed_and_a_worker_begins,
    _its_mark_cannot_be_removed_and_the_answer_comes_late,
]


def _claims(schedule, seconds, seed=0):
    """Return how many holders a job had, so many seconds after the schedule."""

    def then(world):
        worlds.append(world)
        yield from schedule(world)
        yield seconds

    worlds = []
    _follow(then, seed)
    return len(worlds[0].claims)


@pytest.mark.costly
@pytest.mark.parametrize("schedule", ENDS)
def test_a_worker_that_lives_keeps_no_lease_for_a_run_that_does_not(schedule):
    assert {_claims(schedule, int(LASTS * 1.6), seed) for seed in range(SEEDS)} == {2}


@pytest.mark.parametrize("schedule", ENDS[:3])
def test_the_worker_that_keeps_each_mark_is_found(schedule, monkeypatch):
    monkeypatch.setattr("tests.fleet.world.Standing.renew", _keeps_each_mark)
    assert _claims(schedule, 6 * int(LASTS)) == 1


def _keeps_each_mark(self, alive, card):
    for name in set(alive) - self._marked:
        yield joblog.StoreRequest("replace", f"beats/{name}@{self._host}", b"1")
        self._marked.add(name)
    yield joblog.StoreRequest("replace", f"workers/{self._host}", card)
    return frozenset(self._marked)


def test_a_run_whose_worker_is_dead_renews_by_itself():
    def schedule(world):
        yield from _beside_a_worker(world)
        world.machines[0].worker = None
        yield 10 * int(LASTS)
        assert world.machines[0].trainings[0].lives
        assert "beats/job@1" in world.disk

    assert _claims(schedule, 0) == 1
