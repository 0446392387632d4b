"""Threads that sleep by a timer (tqdm's monitor) count as the runtime's own whenever they begin, and no others do."""

from __future__ import annotations

from stallguard.core.detection import detector
from tests.simulation.alone import LIMITS, Alone
from tests.simulation.program import OWN

LATE = OWN | {"timed": 2}  # one more thread, which sleeps by a timer
WORKER = OWN | {"futex": 13}  # one more thread, which does not
STARVED = OWN | {"futex": 11, "sleep": 2}  # as many threads as ever, and one that has begun to sleep


class Threads(Alone):
    """Whose number of threads is known."""

    def work(self, seconds: float, census: dict[str, int]) -> Threads:
        """Train, one record a second, with threads that wait as in `census`."""
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            self.sample(
                cpu=self.tree.cpu + 1.0, minor_faults=self.tree.minor_faults + 50, census=census,
                threads=sum(census.values()),
            )  # fmt: skip
            self.progress(
                phase="step", phase_at=self.now, beats=self.heartbeat.beats + 10, fits=1, epoch=0,
                fit_beats=self.heartbeat.fit_beats + 10, batch=self.heartbeat.batch + 10,
            longest=0.1, longest_phase="step",
                step_s=self.heartbeat.step_s + 0.9,
            )  # fmt: skip
        return self

    def hang(self, census: dict[str, int], within: float = 300.0) -> float:
        """Return after how many seconds without any progress it is called stalled."""
        began = self.now
        while self.now - began < within:
            self.now += detector.wanted(self.detector_state, LIMITS).period
            self.sample(state="sleeping", census=census, threads=sum(census.values()))
            if self.detector_state.judgement.step == "stalled":
                return self.now - began
        return float("inf")


def test_a_deadlock_is_judged_as_soon_though_a_thread_that_sleeps_began_late():
    scene = Threads().work(600, OWN).work(8, LATE)

    assert scene.hang(LATE) <= 11


def test_so_it_is_long_after_it_began_and_after_it_ended():
    assert Threads().work(600, OWN).work(600, LATE).hang(LATE) <= 11
    assert Threads().work(600, LATE).work(8, OWN).hang(OWN) <= 11


def test_after_such_a_thread_ended_another_that_sleeps_is_a_reason_to_wait():
    assert Threads().work(600, LATE).work(8, OWN).hang(OWN | {"sleep": 2}) >= 29


def test_a_thread_that_began_with_the_silence_may_end_it():
    assert Threads().work(600, OWN).hang(LATE) >= 29


def test_an_old_thread_that_begins_to_sleep_is_a_source_that_waits():
    assert Threads().work(600, OWN).work(60, STARVED).hang(STARVED) >= 29
    assert Threads().work(600, OWN).work(60, WORKER).hang(WORKER | {"futex": 12, "sleep": 2}) >= 29


def test_what_a_run_learned_of_its_threads_holds_for_the_next_one():
    taught = detector.export(Threads().work(600, OWN).work(60, LATE).detector_state)
    scene = Threads(learned=taught)

    assert scene.work(60, OWN).hang(OWN | {"sleep": 2}) >= 29
    assert Threads(learned=taught).work(60, LATE).hang(LATE) <= 11


def test_more_censuses_are_taken_only_until_new_threads_are_known():
    scene = Threads().work(600, OWN)
    assert not detector.wanted(scene.detector_state, LIMITS).census
    scene.work(1, LATE)
    assert detector.wanted(scene.detector_state, LIMITS).census
    scene.work(6, LATE)
    assert not detector.wanted(scene.detector_state, LIMITS).census
