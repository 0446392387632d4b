"""The sampler: whose time goes where, within a fixed size, at a cost that no training notices."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from stallguard.collectors import stack_profile
from stallguard.core.profile import FEEDER, TRAINING
from stallguard.probe import beats as b
from stallguard.probe import page, stack_sampler, wire
from stallguard.probe.stack_sampler import LONGEST, MOST, PERIOD, StackSampler
from stallguard.storage import stack_samples

SECOND = 1_000_000_000


@pytest.fixture
def beats():
    beats = b.Beats(page.begin(page.private(), 1, 2, 3))
    beats.claimed = True
    return beats


@pytest.fixture
def sampler(beats, tmp_path):
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
    """Sample as the sender does: from a thread that is not the one that trains."""
    helper = threading.Thread(target=lambda: [sampler.turn(now) for now in times])
    helper.start()
    helper.join()


def test_time_goes_to_the_line_of_the_training_thread_and_to_its_phase(sampler, beats, tmp_path):
    beats.enter(b.STEP)
    sampled_by_another(sampler, SECOND, 3 * SECOND)
    profile = stack_profile.summarise(taken(sampler, tmp_path))
    assert profile.seconds == 2.0
    assert profile.phases == {"step": 2.0}
    spot = next(one for one in profile.spots if one.role == TRAINING)
    assert (Path(spot.file).name, spot.function, spot.does) == (
        "test_stack_sampler.py",
        "sampled_by_another",
        "lock",
    )
    assert spot.calls in {"threading.start", "threading.join"}


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


def test_python_code_that_runs_for_a_millisecond_at_a_time_gets_its_share(sampler, beats, tmp_path):
    def sample():
        for number in range(1, 150):
            time.sleep(0.02)
            sampler._due = 0
            sampler.turn(number * SECOND)

    usual = sys.getswitchinterval()
    helper = threading.Thread(target=sample)
    helper.start()
    works = waits = 0.0
    while helper.is_alive():
        began = time.perf_counter()
        sum(number * number for number in range(12_000))
        middle = time.perf_counter()
        time.sleep(0.001)
        works += middle - began
        waits += time.perf_counter() - middle
    helper.join()
    # Without the short switch interval each sample falls on the sleep; on a busy machine most still do.
    assert share_of("<genexpr>", taken(sampler, tmp_path)) > works / (works + waits) / 10
    assert sys.getswitchinterval() == usual


def test_native_code_that_keeps_the_lock_for_long_gets_its_share(sampler, tmp_path):
    numbers = [number * 0.618 % 1.0 for number in range(600_000)]  # some 25 to 150 ms
    seconds = itertools.count(1)

    def sort():
        sorted(numbers)

    def sample():
        for _ in range(40):
            began = time.monotonic_ns()
            time.sleep(0.05)
            sampler._due = 0
            sampler.turn(next(seconds) * SECOND, time.monotonic_ns() - began - 50_000_000)

    def shares():
        """Return the share that was found, and the true one."""
        helper = threading.Thread(target=sample)
        helper.start()
        sorts = waits = 0.0
        while helper.is_alive():
            began = time.perf_counter()
            sort()
            middle = time.perf_counter()
            time.sleep(0.01)
            sorts += middle - began
            waits += time.perf_counter() - middle
        helper.join()
        return share_of("sort", taken(sampler, tmp_path)), sorts / (sorts + waits)

    # Of 0.8, 0.3 to 0.6 is found: the lock is handed over after the call, sometimes in the line that follows.  Samples
    # some milliseconds after that fall on the sleep: 0.06 to 0.12.
    assert any(found > true / 4 for found, true in (shares() for _ in range(3)))


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


def test_samples_come_half_a_second_apart_and_not_in_step(sampler, monkeypatch):
    pauses = []
    monkeypatch.setattr(stack_sampler, "thread_time", lambda: 0.0)  # a busy machine makes the pauses longer
    monkeypatch.setattr(sampler, "_add", lambda _frames, passed: pauses.append(passed))
    sampled_by_another(sampler, *(SECOND + tick * SECOND // 20 for tick in range(4000)))
    assert PERIOD * 0.75 <= sum(pauses) / len(pauses) <= PERIOD * 1.25
    assert len(set(pauses)) > 3


def test_a_long_silence_counts_for_a_minute_at_most(sampler, tmp_path):
    sampled_by_another(sampler, SECOND, SECOND + 10 * LONGEST)
    assert taken(sampler, tmp_path).milliseconds == LONGEST // 1_000_000


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
        began = time.thread_time()
        for number in range(200):
            sampler._due = 0
            sampler._add(sys._current_frames(), number)
        self_cost.append((time.thread_time() - began) / 200)

    self_cost: list[float] = []
    deep(60)
    assert self_cost[0] < 0.0005, "two a second must stay below 0.1 % of a core"


def test_a_process_that_is_forked_during_a_sample_has_the_usual_switch_interval(sampler, monkeypatch):
    found = []

    def fork_instead(_seconds):
        assert sys.getswitchinterval() < 0.001
        if (child := os.fork()) == 0:
            sampler.restore()  # as the probe does in each forked process
            os._exit(0 if sys.getswitchinterval() > 0.001 else 1)
        found.append(os.waitpid(child, 0)[1])

    monkeypatch.setattr(stack_sampler, "sleep", fork_instead)
    sampled_by_another(sampler, SECOND)
    assert found == [0]
    assert sys.getswitchinterval() > 0.001
