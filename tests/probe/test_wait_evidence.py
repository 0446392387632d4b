"""The probe tells what the training's thread waits for, and which other threads could end that, at little cost."""

from __future__ import annotations

import contextlib
import gc
import inspect  # noqa: F401 - it imports dis, as training libraries do
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from stallguard.probe import libraries, outbox, wire
from stallguard.probe.beats import BETWEEN, HAND, STEP, TORCH, Beats
from stallguard.probe.wait_evidence import FEW, WaitEvidence
from tests.calls import MICROSECONDS, calls_of

ROOT = Path(__file__).resolve().parents[2]
SECOND = 1_000_000_000
CALLS_EACH = 50  # calls of functions that a look at a thread can take


class Watched:
    """A training thread and helpers of a test, and the record that the probe makes of them."""

    def __init__(self) -> None:
        self.beats = Beats(outbox.begin(outbox.private(), 1, 2, 3))
        self.waits = WaitEvidence(self.beats)
        self.now = time.monotonic_ns() + SECOND  # after all that the beats have as progress
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []

    def thread(self, function: Callable[[], object], *, trains: bool = False) -> threading.Thread:
        """Start a thread, and give it the time to reach its wait."""
        one = threading.Thread(target=function, daemon=True)
        one.start()
        self.threads.append(one)
        time.sleep(0.1)
        if trains:
            self.beats._thread = one.ident or 0
        return one

    def goes_on(self, one: threading.Thread, action: Callable[[], object]) -> None:
        """Do what wakes a thread, and wait until it stands elsewhere."""

        def place() -> tuple[int, int]:
            frame = sys._current_frames()[one.ident or 0]
            return id(frame.f_code), frame.f_lasti

        seen = [place()]
        action()
        deadline = time.monotonic() + 30
        while seen[-1] == seen[0] or seen[-3:] != [seen[-1]] * 3:  # on its way it is at each place for microseconds
            assert time.monotonic() < deadline, "the thread does not go on"
            time.sleep(0.01)
            seen.append(place())

    def look(self, times: int = 1, *, trains: bool = False) -> tuple[str, int, int]:
        """Look at the threads of the test; return (wait, since, wakers) of the record."""
        mine = {thread.ident for thread in self.threads}
        for _ in range(times):
            if trains:
                self.beats.add(HAND, 1)
            self.now += SECOND // 2
            frames = {ident: frame for ident, frame in sys._current_frames().items() if ident in mine}
            self.waits.look(frames, self.now)
        slots = self.beats.slots
        wait = wire.WAITS[slots[wire.SLOT["wait"]]]
        return wait, slots[wire.SLOT["wait_ns"]], slots[wire.SLOT["wakers"]]


@pytest.fixture
def watched() -> Iterator[Watched]:
    there = Watched()
    yield there
    there.stop.set()
    for thread in there.threads:
        thread.join(5)


def begin_a_step_of_keras(beats: Beats) -> None:
    """Begin a step in a fit whose batches follow one another: its time is in the object alone until it is published."""
    beats.hot = object()
    beats.began, beats.stepping = time.monotonic_ns(), True


@pytest.mark.parametrize("progress", [
    begin_a_step_of_keras, lambda beats: beats.moved(),
    lambda beats: beats.step_ends(TORCH, BETWEEN), lambda beats: beats.enter(STEP),
    lambda beats: beats.step_ends(TORCH), lambda beats: beats.add(HAND, 1),
], ids=["step of Keras", "moved", "update", "phase", "step", "batch"])  # fmt: skip
@pytest.mark.parametrize("late", [False, True], ids=["before the turn", "in the turn"])
def test_a_wait_begins_after_the_last_progress_that_the_record_shows(
    watched: Watched, progress: Callable[[Beats], object], late: bool
) -> None:
    """Else the detector takes it for a wait that has ended, and judges a lock 20 s later."""
    watched.beats.fitting = 1  # in Trainer's loop the update of an optimizer is progress without a time
    lock = threading.Lock()

    def waits() -> None:
        lock.acquire()

    with lock:
        watched.thread(waits, trains=True)
        watched.look()
        before = time.monotonic_ns()
        progress(watched.beats)
        watched.now = (before if late else time.monotonic_ns()) - SECOND // 2
        watched.look()
        watched.beats.publish()
        watched.now = time.monotonic_ns()
        wait, since, _ = watched.look()
        watched.beats.publish()
    assert wait == "lock"
    assert since / SECOND > watched.beats.slots[wire.SLOT["progress_ns"]] / SECOND


def children_of(python: str) -> list[tuple[str, int, str, int]]:
    script = ROOT / "tests" / "probe" / "children" / "waits.py"
    done = subprocess.run(
        [python, str(script)], env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True,
        text=True, check=True, timeout=60,
    )  # fmt: skip
    found: list[tuple[str, int, str, int]] = json.loads(done.stdout)
    return found


def assert_all_known(found: list[tuple[str, int, str, int]]) -> None:
    wrong = [one for one in found if one[0] != one[2]]
    assert not wrong, "expected, number, seen, since"
    assert {since for kind, _, _, since in found if kind != "none"} == {10}


def test_a_training_thread_that_stands_in_code_of_the_probe_makes_a_sound_record(watched: Watched) -> None:
    """It saves a checkpoint, say: the record must not show an internal number as the kind of wait."""
    lock = threading.Lock()

    def saves() -> None:
        lock.acquire()

    saves.__code__ = saves.__code__.replace(co_filename=f"{Path(outbox.__file__).parent}/checkpoint/save.py")
    with lock:
        watched.thread(saves, trains=True)
        found = watched.look(3)
    assert found[0] == "none"
    assert wire.unpack(wire.pack(list(watched.beats.slots))) is not None


def test_every_kind_of_wait_is_known_in_this_python() -> None:
    assert_all_known(children_of(sys.executable))


def test_every_kind_of_wait_is_known_in_any_python(any_python: str) -> None:
    assert_all_known(children_of(any_python))


def test_a_wait_is_stored_when_it_is_seen_twice_without_progress_and_removed_at_the_next_progress(
    watched: Watched,
) -> None:
    watched.thread(watched.stop.wait, trains=True)

    assert watched.look() == ("none", 0, -1)
    first = watched.now
    assert watched.look() == ("lock", first, 0)
    assert watched.look(3) == ("lock", first, 0)
    assert watched.look(trains=True) == ("none", 0, -1)


def test_the_record_of_a_healthy_training_does_not_change(watched: Watched) -> None:
    watched.thread(watched.stop.wait, trains=True)

    assert {watched.look(trains=True) for _ in range(50)} == {("none", 0, -1)}


def test_a_thread_that_is_called_anew_does_not_stand_still(watched: Watched) -> None:
    work: queue.Queue[int] = queue.Queue()

    def consume() -> None:
        while not watched.stop.is_set():
            work.get()

    watched.thread(consume, trains=True)
    watched.look(2)
    began = watched.look()[1]
    for _ in range(5):  # mostly: the memory of a frame can be used for the next
        work.put(1)
        time.sleep(0.02)
        watched.look()
    assert watched.look(2)[1] >= began
    watched.stop.set()
    work.put(1)


def test_a_thread_that_reads_from_a_socket_can_end_the_wait(watched: Watched) -> None:
    near, far = socket.socketpair()
    with near, far:
        watched.thread(watched.stop.wait, trains=True)
        watched.thread(lambda: near.recv(1))
        assert watched.look(3)[2] == 1
        far.send(b"x")


def test_whether_a_call_that_is_not_known_can_end_the_wait_is_not_known(watched: Watched) -> None:
    silent: queue.SimpleQueue[int] = queue.SimpleQueue()

    def consume() -> None:
        silent.get()

    watched.thread(watched.stop.wait, trains=True)
    watched.thread(consume)
    assert watched.look(3)[2] == -1
    silent.put(1)


def test_threads_that_wait_for_locks_themselves_cannot_end_it(watched: Watched) -> None:
    for number in range(3):
        watched.thread(watched.stop.wait, trains=number == 0)

    assert watched.look(3)[2] == 0


def monitor(watched: Watched) -> None:
    while not watched.stop.wait(0.3):
        pass


def test_a_thread_that_always_sleeps_while_the_training_trains_does_not_feed_it(watched: Watched) -> None:
    release = threading.Event()
    watched.thread(lambda: (release.wait(60), watched.stop.wait()), trains=True)  # first timed: it is not fed
    watched.thread(lambda: monitor(watched))
    watched.look(FEW + 4, trains=True)
    release.set()
    time.sleep(0.1)

    assert watched.look(3)[::2] == ("lock", 0)


def test_a_thread_that_sleeps_only_now_can_end_it(watched: Watched) -> None:
    release = threading.Event()
    watched.thread(lambda: (release.wait(60), watched.stop.wait()), trains=True)
    watched.thread(lambda: (release.wait(), monitor(watched)))
    watched.look(FEW + 4, trains=True)
    release.set()
    time.sleep(0.1)

    assert watched.look(3)[::2] == ("lock", 1)


def test_a_sleeping_thread_can_feed_a_training_that_often_waits_for_a_lock(watched: Watched) -> None:
    watched.thread(watched.stop.wait, trains=True)
    watched.thread(lambda: monitor(watched))
    watched.look(FEW + 4, trains=True)

    assert watched.look(3)[::2] == ("lock", 1)


def display_of(name: str) -> Callable[..., None]:
    """Return the function of a display's thread, as the library defines it: it sleeps, or draws."""
    libraries.read(name.partition(".")[0])
    code = "def run(sleep, seconds):\n    while sleep(seconds) is False: pass"
    space: dict[str, Any] = {"__name__": name}
    exec(code, space)  # noqa: S102 - a module of that name
    return cast("Callable[..., None]", space["run"])


def test_a_thread_that_only_shows_progress_ends_no_wait_though_its_habit_is_not_known(watched: Watched) -> None:
    watched.thread(watched.stop.wait, trains=True)
    watched.look(2, trains=True)
    run = display_of("tqdm._monitor")
    watched.thread(lambda: run(watched.stop.wait, 60))

    assert watched.look(3)[::2] == ("lock", 0)
    assert list(watched.waits.displays.values()) == [watched.threads[1].native_id]


def test_a_display_is_known_while_the_training_trains_and_no_more_once_it_has_ended(watched: Watched) -> None:
    watched.thread(watched.stop.wait, trains=True)
    run = display_of("rich.live")
    one = watched.thread(lambda: run(time.sleep, 1.0))
    watched.look(2, trains=True)
    assert watched.waits.displays == {one.ident: one.native_id}

    one.join(5)
    watched.look(trains=True)
    assert watched.waits.displays == {}


def test_a_display_that_stays_in_what_it_draws_can_hold_the_lock_that_is_waited_for(watched: Watched) -> None:
    draws, silent = threading.Event(), queue.SimpleQueue[int]()
    run = display_of("rich.live")
    watched.thread(watched.stop.wait, trains=True)
    watched.thread(lambda: run(draws.wait, 60) or silent.get())
    watched.look(2, trains=True)
    number = watched.threads[1].native_id
    assert list(watched.waits.displays.values()) == [number]

    draws.set()
    time.sleep(0.1)
    assert watched.look(3)[::2] == ("lock", 1)
    silent.put(1)


def test_a_display_that_is_found_drawing_once_is_no_reason_to_doubt_the_lock_but_twice_it_is(watched: Watched) -> None:
    draws, first, second = threading.Event(), queue.SimpleQueue[int](), queue.SimpleQueue[int]()
    run = display_of("rich.live")
    watched.thread(watched.stop.wait, trains=True)
    one = watched.thread(lambda: run(draws.wait, 60) or first.get() or second.get() or run(watched.stop.wait, 60))
    watched.look(2, trains=True)
    assert watched.look(2)[::2] == ("lock", 0)

    watched.goes_on(one, draws.set)
    assert watched.look()[::2] == ("lock", 0)
    watched.goes_on(one, lambda: first.put(0))
    assert watched.look()[::2] == ("lock", -1)
    watched.goes_on(one, lambda: second.put(0))
    assert watched.look()[::2] == ("lock", 0)


def test_what_a_display_draws_can_end_a_wait_by_its_own_sleep(watched: Watched) -> None:
    def draws(seconds: float) -> bool:
        return watched.stop.wait(seconds)

    watched.thread(watched.stop.wait, trains=True)
    run = display_of("rich.live")
    watched.thread(lambda: run(draws, 60))

    assert watched.look(3)[::2] == ("lock", 1)


SHOWS = """
import dis, os, sys, threading, time
from stallguard.probe import libraries, outbox, wire
from stallguard.probe.beats import Beats
from stallguard.probe.wait_evidence import WaitEvidence
name = sys.argv[1]
libraries.read(name)
sys.stdout, out = open(os.devnull, "w"), sys.stdout
if name == "tqdm":
    import tqdm
    bar = tqdm.tqdm([1], file=sys.stdout)
else:
    from rich.console import Console
    from rich.progress import Progress
    if name == "lightning":
        from lightning.pytorch.callbacks.progress.rich_progress import CustomProgress as Progress
    Progress(console=Console(file=sys.stdout, force_terminal=True)).start()
waits = threading.Thread(target=threading.Event().wait, daemon=True)
waits.start()
time.sleep(0.3)
beats = Beats(outbox.begin(outbox.private(), 1, 2, 3))
beats._thread, known = waits.ident, set()
look = WaitEvidence(beats)
for now in range(1, 9):
    others = {one: frame for one, frame in sys._current_frames().items() if one != threading.get_ident()}
    look.look(others, now)
    known.add(beats.slots[wire.SLOT["wakers"]])
    time.sleep(0.11)
print(len(others), len(look.displays), 1 in known, 0 in known, file=out, flush=True)
os._exit(0)
"""


@pytest.mark.costly
@pytest.mark.parametrize("name", ["tqdm", "rich", "lightning"])
def test_the_display_of_each_library_is_known(name: str, other_python: Callable[[str], str], tmp_path: Path) -> None:
    done = subprocess.run(
        [other_python("hf"), "-c", SHOWS, name], cwd=ROOT, capture_output=True, text=True, check=True, timeout=240,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == "2 1 False True\n", "threads, displays, whether one could end the wait, whether none could"


def test_what_a_script_holds_in_its_variables_is_not_kept(watched: Watched) -> None:
    class Tensor:
        pass

    alive: list[weakref.ref[Tensor]] = []

    def train() -> None:
        tensor = Tensor()
        alive.append(weakref.ref(tensor))
        time.sleep(0.5)
        watched.stop.wait()

    watched.thread(train, trains=True)
    watched.look(3)
    watched.stop.set()
    watched.threads[0].join(5)
    gc.collect()

    assert alive[0]() is None


def test_without_the_decoder_a_line_of_the_script_is_not_known_and_nothing_is_imported() -> None:
    script = """
import sys, threading, time, _thread
from stallguard.probe import outbox, wire
from stallguard.probe.beats import Beats
from stallguard.probe.wait_evidence import WaitEvidence
lock = threading.Lock()
lock.acquire()
def wait():
    lock.acquire()
thread = threading.Thread(target=wait, daemon=True)
thread.start()
time.sleep(0.2)
beats = Beats(outbox.begin(outbox.private(), 1, 2, 3))
beats._thread = thread.ident
waits, before = WaitEvidence(beats), set(sys.modules)
began = time.monotonic_ns() + 1_000_000
for now in (10, 20, 30):
    waits.look(sys._current_frames(), began + now)
since = beats.slots[wire.SLOT["wait_ns"]] - began
print("dis" in before, set(sys.modules) - before, beats.slots[wire.SLOT["wait"]], since)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False set() 0 10\n"


@pytest.mark.parametrize("helpers", [2, 49])
def test_a_look_costs_less_than_a_thousandth_of_a_core(
    watched: Watched, helpers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.thread(watched.stop.wait, trains=True)
    for _ in range(helpers):
        one = threading.Thread(target=watched.stop.wait, args=(60,), daemon=True)
        one.start()
        watched.threads.append(one)
    time.sleep(0.2)
    watched.look(5)
    monkeypatch.setattr(libraries, "known", libraries.every())  # a display is looked for in each record
    looks = [calls_of(lambda moves=moves: watched.look(trains=moves)) for moves in (False, True)]

    # Two looks a second.  At 28 calls a thread they took 0.3 ms of a second for 50 threads on a quiet machine.
    assert max(looks) < CALLS_EACH * (helpers + 1)
    assert 2 * CALLS_EACH * 50 * MICROSECONDS <= 1000


def polls(flag: threading.Event) -> None:
    while not flag.is_set():
        pass


def evaluates(flag: threading.Event) -> float:
    """Move between more lines than those of a loop that waits."""
    total = 0.0
    while not flag.is_set():
        for number in range(200):
            total += number
            total *= 0.5
        for number in range(200):
            total -= number
            total /= 3.0
        for number in range(200):
            total += number * 2
    return total


def calls_once(_flag: threading.Event) -> None:
    with contextlib.suppress(queue.Empty):
        queue.SimpleQueue[int]().get(timeout=3.0)


@pytest.mark.costly
@pytest.mark.parametrize(("function", "kinds"), [(polls, {"place", "call"}), (calls_once, {"call"})])
def test_a_thread_that_stays_in_a_few_lines_is_in_one_place_since_then(
    watched: Watched, function: Callable[[threading.Event], object], kinds: set[str]
) -> None:
    watched.thread(lambda: function(watched.stop), trains=True)
    began = watched.now
    seen = set()
    for _ in range(40):
        kind, since, _ = watched.look()
        seen.add(kind)
        time.sleep(0.003)
    assert kind in kinds
    assert since - began <= 3 * SECOND
    assert watched.look(trains=True)[0] == "none", "a batch ended"


@pytest.mark.costly
def test_a_thread_that_moves_between_more_lines_is_in_no_place(watched: Watched) -> None:
    watched.thread(lambda: evaluates(watched.stop), trains=True)
    longest = began = 0
    for _ in range(80):
        kind, since, _ = watched.look()
        began = since if kind in ("place", "call") else watched.now
        longest = max(longest, watched.now - began)
        time.sleep(0.003)
    assert longest < 20 * SECOND, "of 40 seconds of looks"
