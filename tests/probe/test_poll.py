"""The poll thread counts the batches that nobody else can see, and no other."""

from __future__ import annotations

import pytest

from stallguard.probe import beats as b
from stallguard.probe import outbox, wire
from stallguard.probe.poll import FAILURES, PolledOptimizer, Poller


class Number:
    """A framework's variable."""

    def __init__(self):
        self.value = 0

    def numpy(self):
        return self.value


class Optimizer:
    """A Keras optimizer, as far as the poll thread looks."""

    def __init__(self):
        self._iterations = Number()


@pytest.fixture
def optimizer():
    return Optimizer()


@pytest.fixture
def beats():
    return b.Beats(outbox.begin(outbox.private(), 1, 2, 3))


@pytest.fixture
def poller(beats, optimizer):
    import weakref

    made = Poller(beats)
    made._watched.append(PolledOptimizer(weakref.ref(optimizer)))
    return made


def counted(beats):
    return beats.slots[wire.SLOT["beats"]]


def test_sees_every_batch_of_a_loop_inside_one_call(poller, beats, optimizer):
    before = beats.call_begins()
    for value in (1, 14, 27, 38):
        optimizer._iterations.value = value
        poller.look()
    optimizer._iterations.value = 40
    beats.call_ends(before, b.FUNCTION)
    poller.look()
    assert counted(beats) == 40
    assert wire.SOURCES[beats.slots[wire.SLOT["source"]]] == "poll"


def test_a_loop_that_ends_between_two_looks_counts_too(poller, beats, optimizer):
    beats.call_ends(beats.call_begins(), b.FUNCTION)
    optimizer._iterations.value = 40
    poller.look()
    assert counted(beats) == 40


def test_the_last_batches_of_a_fit_that_ends_during_a_read_count_once(poller, beats, optimizer):
    """The read of many counters lasts: this one returns an earlier count, then the fit ends."""
    beats.fitting = 1
    number = optimizer._iterations

    def read_then_end():
        value, number.value = number.value, 40
        beats.fitting = 0
        return value

    number.value = 16
    number.numpy = read_then_end
    poller.look()
    del number.numpy
    beats.call_ends(beats.call_begins(), b.ON_BATCH)
    poller.look()
    assert (counted(beats), beats.polled) == (1, False)


def test_where_each_call_is_one_update_the_calls_count(poller, beats, optimizer):
    for look in range(30):
        for _ in range(look % 4):
            optimizer._iterations.value += 1
            beats.call_ends(beats.call_begins(), b.FUNCTION)
        poller.look()
    assert counted(beats) == optimizer._iterations.value
    assert wire.SOURCES[beats.slots[wire.SLOT["source"]]] == "function"


def test_a_slow_step_whose_update_came_early_counts_once(poller, beats, optimizer):
    for _ in range(10):
        before = beats.call_begins()
        poller.look()
        optimizer._iterations.value += 1
        poller.look()
        beats.call_ends(before, b.FUNCTION)
        poller.look()
    assert counted(beats) == 10


def test_gives_the_count_back_when_another_loop_follows(poller, beats, optimizer):
    beats.call_ends(beats.call_begins(), b.FUNCTION)
    optimizer._iterations.value = 40
    poller.look()
    for _ in range(5):
        for _ in range(10):
            optimizer._iterations.value += 1
            beats.call_ends(beats.call_begins(), b.FUNCTION)
        poller.look()
    assert counted(beats) == 90


def test_leaves_the_batches_of_keras_own_loops_alone(poller, beats, optimizer):
    before = beats.fit_begins()
    beats.fitting += 1
    optimizer._iterations.value = 10
    poller.look()
    optimizer._iterations.value = 20
    beats.fitting -= 1
    beats.fit_ends()
    beats.leave(before)
    poller.look()
    assert counted(beats) == 0
    assert beats.slots[wire.SLOT["iterations"]] == 20


def test_a_restored_counter_is_no_training(poller, beats, optimizer):
    poller.look()
    optimizer._iterations.value = 5000
    beats.restores += 1
    poller.look()
    assert counted(beats) == 0


def test_a_counter_set_by_the_script_is_no_training(poller, beats, optimizer):
    poller.look()
    optimizer._iterations.value = 5000
    poller.look()
    poller.look()
    assert counted(beats) == 0


def test_two_optimizers_of_one_batch_are_one_beat(poller, beats, optimizer):
    import weakref

    other = Optimizer()
    poller._watched.append(PolledOptimizer(weakref.ref(other)))
    for _ in range(20):
        optimizer._iterations.value += 1
        other._iterations.value += 1
        beats.call_ends(beats.call_begins(), b.FUNCTION)
        if counted(beats) % 5 == 0:
            poller.look()
    assert counted(beats) == 20


def test_the_record_says_when_the_device_last_answered(poller, beats, optimizer):
    poller.look()
    first = beats.slots[wire.SLOT["poll_ns"]]
    poller.look()
    assert beats.slots[wire.SLOT["poll_ns"]] > first > 0
    assert beats.slots[wire.SLOT["iterations"]] == 0


def test_an_optimizer_that_cannot_be_read_is_left_alone(beats):
    import weakref

    bare = type("Bare", (), {})()
    watched = PolledOptimizer(weakref.ref(bare))
    assert [watched.advance() for _ in range(FAILURES)] == [0] * FAILURES
    assert not watched.alive()


def test_a_collected_optimizer_is_forgotten(poller, beats, optimizer):
    poller.look()
    gone = Optimizer()
    import weakref

    watched = PolledOptimizer(weakref.ref(gone))
    del gone
    assert not watched.alive()
