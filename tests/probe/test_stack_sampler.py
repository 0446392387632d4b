"""The sampler: whose time goes where, within a fixed size, at a cost that no training notices."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest

from stallguard.collectors import stack_profile
from stallguard.core.profile import FEEDER, TRAINING
from stallguard.probe import beats as b
from stallguard.probe import outbox, stack_sampler, wire
from stallguard.probe.sender import TICK
from stallguard.probe.stack_sampler import LONGEST, MOST, PERIOD, StackSampler
from stallguard.storage import stack_samples
from stallguard.supervisor.attempt_watch import ProfileWatch
from tests.calls import MICROSECONDS, calls_of

SECOND = 1_000_000_000


@pytest.fixture
def beats():
    beats = b.Beats(outbox.begin(outbox.private(), 1, 2, 3))
    beats.claimed = True
    return beats


@pytest.fixture
def sampler(beats, tmp_path, monkeypatch):
    # Else a sample that a busy machine makes slow puts off the next.
    monkeypatch.setattr(stack_sampler, "SHARE", 0)
    return StackSampler(beats, str(tmp_path / "7.profile"), {})


def taken(sampler: StackSampler, tmp_path: Path) -> stack_samples.StackSamples:
    """Return what a supervisor reads."""
    sampler.write()
    samples = stack_samples.read(stack_samples.path(tmp_path, 7))
    assert samples is not None
    return samples


def share_of(function: str, samples: stack_samples.StackSamples) -> float:
    """Return the share of the training thread's time that is sampled in a function itself."""
    stacks = [one for one in samples.stacks if one.role == TRAINING]
    inside = [one for one in stacks if samples.lines[one.stack[-1]].function == function]
    return sum(one.milliseconds for one in inside) / sum(one.milliseconds for one in stacks)


class Thread:
    """A thread that stands in a function of this file until it is released."""

    def __init__(self, target):
        self.stands, self.go = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=target, args=(self,))

    def __enter__(self):
        self.thread.start()
        assert self.stands.wait(30)
        return self

    def __exit__(self, *exc):
        self.go.set()
        self.thread.join()


def stand(here):
    here.stands.set()
    here.go.wait()


def sampled_by_another(sampler, *times):
    """Sample as the sender does: from a thread that is not the one that trains, while that one waits for it."""
    waiting = threading.get_ident()

    def sample():  # nothing tells a thread that another one waits for it: its stack shows it
        while not any(
            frame.f_code.co_name == "join" for frame, _ in traceback.walk_stack(sys._current_frames()[waiting])
        ):
            time.sleep(0.001)
        for now in times:
            sampler.turn(now)

    helper = threading.Thread(target=sample)
    helper.start()
    helper.join()


def test_time_goes_to_the_line_of_the_training_thread_and_to_its_phase(sampler, beats, tmp_path):
    beats.enter(b.STEP)
    sampled_by_another(sampler, SECOND, 3 * SECOND)
    profile = stack_profile.summarise(taken(sampler, tmp_path))
    assert profile.seconds == 2.0
    assert profile.phases == {"step": 2.0}
    spot = next(one for one in profile.spots if one.role == TRAINING)
    assert (Path(spot.file).name, spot.function, spot.does) == ("test_stack_sampler.py", "sampled_by_another", "lock")
    assert spot.calls in {"threading.start", "threading.join"}


def phases_of(sampler, tmp_path):
    return stack_profile.summarise(taken(sampler, tmp_path)).phases


def test_the_time_of_an_open_gap_is_that_of_no_phase_until_progress_comes(sampler, beats, tmp_path):
    beats.enter(b.BETWEEN)
    sampled_by_another(sampler, SECOND, 4 * SECOND)
    assert phases_of(sampler, tmp_path) == {"between": 3.0}
    sampled_by_another(sampler, 9 * SECOND)
    assert phases_of(sampler, tmp_path) == {"no progress": 8.0}
    beats.moved()
    sampled_by_another(sampler, 10 * SECOND)
    assert phases_of(sampler, tmp_path) == {"between": 9.0}


@pytest.mark.parametrize("ends", [True, False])
def test_a_gap_that_was_judged_a_stall_stays_apart_and_no_other(sampler, beats, tmp_path, ends):
    beats.enter(b.BETWEEN)
    sampled_by_another(sampler, SECOND, 4 * SECOND)
    beats.moved()
    sampled_by_another(sampler, 5 * SECOND, 14 * SECOND)
    sampler.write()
    mark_stall(tmp_path, 12 * SECOND)
    if ends:
        beats.moved()
        sampled_by_another(sampler, 15 * SECOND, 16 * SECOND)
        beats.moved()
        sampled_by_another(sampler, 17 * SECOND)
    # 1 s to 4 s; from the last sample before a gap was seen it is the gap's.
    expected = {"between": 6.0, "no progress": 10.0} if ends else {"between": 3.0, "no progress": 10.0}
    assert phases_of(sampler, tmp_path) == expected


def test_a_hang_at_the_exit_that_was_judged_is_no_time_of_its_phase(sampler, beats, tmp_path):
    beats.enter(b.FINISHING)
    sampled_by_another(sampler, SECOND, 9 * SECOND)
    sampler.write()
    assert phases_of(sampler, tmp_path) == {"finishing": 8.0}
    mark_stall(tmp_path, 9 * SECOND)
    sampled_by_another(sampler, 15 * SECOND)
    assert phases_of(sampler, tmp_path) == {"no progress": 14.0}


def test_a_function_that_hung_in_a_stall_is_not_slow_for_it(beats, tmp_path):
    key, functions = ("input", "/home/ada/train.py", 7, "generate"), {}
    sampler = StackSampler(beats, str(tmp_path / "7.profile"), functions)
    functions[key] = [1, SECOND]
    beats.enter(b.STEP)
    sampled_by_another(sampler, SECOND, 12 * SECOND)
    sampler.write()
    mark_stall(tmp_path, 12 * SECOND)
    functions[key] = [2, 12 * SECOND]
    beats.moved()
    sampled_by_another(sampler, 13 * SECOND)
    assert [one.milliseconds for one in taken(sampler, tmp_path).functions] == [1000]


def mark_stall(tmp_path: Path, now: int) -> None:
    """Write into the samples that a stall was judged, as the supervisor does."""
    assert ProfileWatch(tmp_path, print).mark_stall([7], now / SECOND)


def test_the_work_of_the_probe_in_the_training_thread_has_a_phase_of_its_own(sampler, beats, tmp_path):
    beats.enter(b.CHECKPOINT)
    beats.own_work += 1
    sampled_by_another(sampler, SECOND, 11 * SECOND)
    assert phases_of(sampler, tmp_path) == {"stallguard": 10.0}
    beats.own_work -= 1
    beats.moved()
    sampled_by_another(sampler, 12 * SECOND)
    assert phases_of(sampler, tmp_path) == {"stallguard": 10.0, "checkpoint": 1.0}


def test_a_thread_that_runs_the_scripts_code_counts_and_an_idle_one_of_a_pool_does_not(sampler, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool, Thread(stand):
        pool.submit(int).result()
        sampled_by_another(sampler, SECOND, 2 * SECOND)
        samples = taken(sampler, tmp_path)
    feeders = [one for one in samples.stacks if one.role == FEEDER]
    functions = [{samples.lines[number].function for number in one.stack} for one in feeders]
    assert [("stand" in names) for names in functions if "_worker" not in names].count(True) == 1
    assert not any("_worker" in names for names in functions)


def shares(sampler, monkeypatch, tmp_path, function: str, work, pause: float, seconds: float = 2.5):
    """Return the share of the samples in which `work` was found, and the true one, of a thread that also sleeps.

    Sampled sixteen times a second by a thread like the sender's.
    """
    monkeypatch.setattr(stack_sampler, "PERIOD", SECOND // 16)
    monkeypatch.setattr(stack_sampler, "SHARE", 10)
    sampler._times.clear()
    ended = threading.Event()

    def sample():
        while not ended.is_set():
            time.sleep(sampler.pause(time.monotonic_ns(), TICK))
            sampler.turn(time.monotonic_ns())
        sampler.restore()

    helper = threading.Thread(target=sample)
    helper.start()
    works, began = 0.0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        start = time.perf_counter()
        work()
        works += time.perf_counter() - start
        time.sleep(pause)
    passed = time.perf_counter() - began
    ended.set()
    helper.join()
    return share_of(function, taken(sampler, tmp_path)), works / passed


@pytest.mark.costly
def test_python_code_that_runs_for_milliseconds_at_a_time_gets_its_share(sampler, monkeypatch, tmp_path):
    def work():
        sum(number * number for number in range(50_000))

    # It runs for 2 to 4 ms.  With the usual switch interval each sample falls on the sleep.
    usual = sys.getswitchinterval()
    of_three = (shares(sampler, monkeypatch, tmp_path, "<genexpr>", work, 0.002) for _ in range(3))
    assert any(found > true / 4 for found, true in of_three)
    assert sys.getswitchinterval() == usual


@pytest.mark.costly
def test_batches_that_last_half_as_long_as_a_tick_are_not_sampled_in_step_with_it(sampler, monkeypatch, tmp_path):
    def work():
        end = time.perf_counter() + 0.02
        while time.perf_counter() < end:
            pass

    # Two batches, of 20 ms of Python and 7 ms of sleep, last as long as a tick and a wait for the lock.  If the thread
    # sleeps from tick to tick, it always wakes up in the last 5 ms of the Python code, and finds what follows.
    of_three = (shares(sampler, monkeypatch, tmp_path, "work", work, 0.007) for _ in range(3))
    assert any(abs(found - true) < 0.25 for found, true in of_three)


@pytest.mark.costly
def test_native_code_that_keeps_the_lock_for_long_gets_its_share(sampler, monkeypatch, tmp_path):
    numbers = [number * 0.618 % 1.0 for number in range(600_000)]  # some 25 to 150 ms

    def sort():
        sorted(numbers)

    of_three = (shares(sampler, monkeypatch, tmp_path, "sort", sort, 0.02) for _ in range(3))
    assert any(abs(found - true) < 0.3 for found, true in of_three)


def test_a_stack_too_deep_for_a_table_keeps_the_line_of_the_script(sampler, tmp_path):
    library = {"deep": None, "stand": stand}
    code = "def deep(levels, here):\n    deep(levels - 1, here) if levels else stand(here)\n"
    exec(compile(code, "/usr/lib/python3/dist-packages/keras/deep.py", "exec"), library)  # noqa: S102

    def script(here):
        library["deep"](2 * stack_sampler.DEPTH, here)

    with Thread(script):
        sampled_by_another(sampler, SECOND, 2 * SECOND)
    samples = taken(sampler, tmp_path)
    stacks = [[samples.lines[number].function for number in one.stack] for one in samples.stacks]
    assert any("script" in names and "deep" in names for names in stacks)


def test_the_training_thread_itself_takes_no_sample(sampler, tmp_path):
    sampled_by_another(sampler, SECOND)
    sampler.turn(2 * SECOND)  # a note is sent at once
    sampled_by_another(sampler, 3 * SECOND)
    profile = stack_profile.summarise(taken(sampler, tmp_path))
    assert sum(profile.phases.values()) == profile.seconds == 2.0


def test_a_process_that_has_not_trained_is_not_sampled(sampler, beats, tmp_path):
    beats.claimed = False
    sampler.turn(SECOND)
    sampler.turn(2 * SECOND)
    sampler.write()
    assert not (tmp_path / "7.profile").exists()


def test_its_file_is_made_as_the_training_begins_not_in_a_later_gap(sampler, tmp_path):
    sampled_by_another(sampler, SECOND)
    assert (tmp_path / "7.profile").stat().st_size == wire.PROFILE_SIZE
    assert stack_samples.read(tmp_path / "7.profile") is None


def test_samples_come_half_a_second_apart_and_not_in_step(sampler, monkeypatch):
    pauses = []
    monkeypatch.setattr(stack_sampler, "thread_time", lambda: 0.0)  # a busy machine makes the pauses longer
    monkeypatch.setattr(sampler, "_add", lambda _frames, now: pauses.append(now - (sampler._last or now)))
    sampled_by_another(sampler, *(SECOND + tick * SECOND // 20 for tick in range(4000)))
    assert PERIOD * 0.75 <= sum(pauses) / len(pauses) <= PERIOD * 1.25
    assert len(set(pauses)) > 3


def test_a_long_silence_counts_for_a_minute_at_most(sampler, tmp_path):
    sampled_by_another(sampler, SECOND, SECOND + 10 * LONGEST)
    assert taken(sampler, tmp_path).milliseconds == LONGEST // 1_000_000


@pytest.mark.costly
def test_the_table_keeps_its_size_and_loses_no_time(sampler, tmp_path):
    for number in range(3 * MOST):
        stack = tuple((f"/home/ada/{'x' * 200}.py", line, f"f{number}") for line in range(60))
        sampler._times[TRAINING, "step", stack] = (number + 1) * SECOND
    before = sum(sampler._times.values())
    samples = taken(sampler, tmp_path)
    assert (tmp_path / "7.profile").stat().st_size == wire.PROFILE_SIZE
    assert sum(one.milliseconds for one in samples.stacks) == before // 1_000_000
    heaviest = max((one for one in samples.stacks if one.stack), key=lambda one: one.milliseconds)
    assert samples.lines[heaviest.stack[0]].function == f"f{3 * MOST - 1}"
    sampled_by_another(sampler, SECOND, 2 * SECOND)
    assert len(sampler._times) <= MOST + 1


def test_a_reader_gets_nothing_of_a_file_that_is_being_written(sampler, tmp_path):
    sampled_by_another(sampler, SECOND, 2 * SECOND)
    taken(sampler, tmp_path)
    sampler._page[0] += 1  # a write has begun
    assert stack_samples.read(stack_samples.path(tmp_path, 7)) is None


def test_a_sample_costs_less_than_a_thousandth_of_a_core(sampler):
    def deep(levels):
        if levels:
            deep(levels - 1)
            return
        for number in range(2):  # the first learns the lines
            sampler._last = SECOND
            samples.append(calls_of(lambda number=number: sampler._add(sys._current_frames(), SECOND + number)))

    samples: list[int] = []
    deep(60)
    assert 2 * samples[-1] * MICROSECONDS < 1000, "two a second must stay below 0.1 % of a core"


def test_a_process_that_is_forked_before_a_sample_has_the_usual_switch_interval(sampler):
    usual = sys.getswitchinterval()
    sampled_by_another(sampler, SECOND)
    sampler.pause(sampler._due - SECOND // 100, TICK)
    assert sys.getswitchinterval() < usual / 10
    if (child := os.fork()) == 0:
        sampler.restore()  # as the probe does in each forked process
        os._exit(0 if sys.getswitchinterval() == usual else 1)
    assert os.waitpid(child, 0)[1] == 0
    sampled_by_another(sampler, sampler._due)
    assert sys.getswitchinterval() == usual


def test_a_script_that_read_the_interval_before_a_sample_and_sets_it_later_does_not_keep_it(sampler):
    usual = sys.getswitchinterval()
    sampled_by_another(sampler, SECOND)
    sampler.pause(sampler._due - SECOND // 100, TICK)
    read = sys.getswitchinterval()
    sampled_by_another(sampler, sampler._due)
    sys.setswitchinterval(read)
    sampler.pause(sampler._due - SECOND // 100, TICK)
    sampled_by_another(sampler, sampler._due)
    assert sys.getswitchinterval() == usual


def test_an_interval_that_the_script_sets_before_a_sample_stays(sampler):
    usual = sys.getswitchinterval()
    sampled_by_another(sampler, SECOND)
    sampler.pause(sampler._due - SECOND // 100, TICK)
    sys.setswitchinterval(0.02)
    try:
        sampled_by_another(sampler, sampler._due)
        assert sys.getswitchinterval() == 0.02
    finally:
        sys.setswitchinterval(usual)


def test_the_thread_sleeps_until_the_next_sample_and_for_a_tick_if_that_is_far(sampler):
    assert sampler.pause(SECOND, TICK) == TICK, "no sample has been taken"
    sampled_by_another(sampler, SECOND)
    assert sampler.pause(SECOND, TICK) == TICK
    assert sampler.pause(sampler._due - 20_000_000, TICK) == 0.02
    assert sampler.pause(sampler._due + SECOND, TICK) == stack_sampler.SHORTEST
    sampler.restore()
