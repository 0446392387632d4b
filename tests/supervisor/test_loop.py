"""The deciding thread: when it counts as hanging, and what it sums up without deciding later or otherwise."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

from msgspec.structs import replace

from stallguard.core import fold
from stallguard.core.events import Event, Heartbeat, Launched, ProbeConnected, Sampled, Ticked, UserCommand
from stallguard.core.limits import Limits
from stallguard.core.readings import Memory, Process
from stallguard.core.run import MemoryWatch, Run, with_attempt
from stallguard.supervisor import loop
from stallguard.supervisor.context import LONGEST_NAP
from stallguard.supervisor.loop import HOLD, LOOK, OWN_HANG, OwnHang, SampleSummary, is_calm

LIMITS = Limits()
RATE = 200  # batches a second
TRAINS = Heartbeat(
    at=0.0, attempt=1, pid=7, trains=True, phase="step", fits=1, epoch=0, epochs=1, source="callbacks",
    longest=0.006, longest_phase="step",
)  # fmt: skip
CENSUS = {"futex": 8}


def test_a_loop_that_waits_for_an_event_does_not_count_as_hanging():
    assert LONGEST_NAP + 10.0 < OWN_HANG, "a wait can end a little late"


def test_each_hang_of_the_loop_is_written_once(tmp_path):
    time, path = [100.0], tmp_path / "stacks"
    with path.open("w") as file:
        hang = OwnHang(file, lambda: time[0])

        def after(seconds: float) -> int:
            """Return how many dumps there are after the next look."""
            time[0] += seconds
            hang.look()
            return path.read_text().count("Current thread")

        assert [after(OWN_HANG - 1.0), after(2.0), after(LOOK), after(10 * OWN_HANG)] == [0, 1, 1, 1]
        assert "in look" in path.read_text()
        hang.turn()
        assert [after(LOOK), after(OWN_HANG)] == [1, 2]


def test_the_thread_that_looks_ends_with_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "LOOK", 0.01)
    before, time = set(threading.enumerate()), [0.0]
    with (tmp_path / "stacks").open("w") as file:
        hang = OwnHang(file, lambda: time[0])
        hang.start()
        time[0] = OWN_HANG + 1.0
        while not (tmp_path / "stacks").read_text():
            assert len(threading.enumerate()) == len(before) + 1
        hang.end()
    assert set(threading.enumerate()) == before


def begin() -> Iterator[Event]:
    yield Launched(at=0.0, attempt=1, pid=7)
    yield ProbeConnected(at=0.5, attempt=1, pid=7, place="a", armed=True)


def healthy(since: float, seconds: int) -> Iterator[Event]:
    """Events as they come from the edges while batches flow."""
    for second in range(seconds):
        at, beats = since + second, round((since + second) * RATE)
        yield replace(
            TRAINS, at=at, beats=beats, beat_at=at, progress_at=at, changes=2 * beats, fit_beats=beats, batch=beats,
            sent_at=at, step_s=0.9 * at,
        )  # fmt: skip
        census = CENSUS if second % 10 == 0 or second < 10 else None
        yield Sampled(at=at + 0.1, reading=process(at, census=census))
        if second % 5 == 0:
            yield Sampled(at=at + 0.2, reading=Memory(total=100, available=40 + second))


def process(cpu: float, census: dict[str, int] | None = None) -> Process:
    return Process(
        pid=7, state="running" if int(cpu) % 2 else "sleeping", cpu=cpu, members=1, threads=8, io=0,
        minor_faults=0, major_faults=0, run_queue=0.0, census=census, remote=False, workers=0,
    )  # fmt: skip


def silent(last: Event, since: float, seconds: int) -> Iterator[Event]:
    """Pulses without a batch, and the dense readings of an idle tree."""
    assert isinstance(last, Heartbeat)
    for quarter in range(4 * seconds):
        at = since + quarter / 4
        if quarter % 4 == 0:
            yield replace(last, at=at, sent_at=at, longest=0.0)
        yield Sampled(at=at + 0.05, reading=process(last.progress_at, census=CENSUS))


def night() -> list[Event]:
    events = [*begin(), *healthy(1.0, 120)]
    last = [event for event in events if isinstance(event, Heartbeat)][-1]
    return [*events, *silent(last, last.at + 1.0, 30)]


def through(events: list[Event]) -> tuple[list[tuple[Event, Run]], SampleSummary]:
    """Return the events that the core took, with the run after each."""
    summing, taken = SampleSummary(), []
    run = fold.begin(0.0)
    for event in events:
        for one in summing.take(event, run):
            run, _ = fold.advance(run, one, LIMITS)
            taken.append((one, run))
    return taken, summing


def plain(events: list[Event]) -> list[tuple[Event, Run]]:
    taken = []
    run = fold.begin(0.0)
    for event in events:
        run, _ = fold.advance(run, event, LIMITS)
        taken.append((event, run))
    return taken


def verdict(taken: list[tuple[Event, Run]]) -> tuple[float, str]:
    return next(
        (run.now, run.detector_state.judgement.evidence)
        for _, run in taken
        if run.detector_state.judgement.step == "stalled"
    )


def test_a_stall_is_found_as_soon_as_without_it_by_the_same_evidence() -> None:
    summed, _ = through(night())

    found, usual = verdict(summed), verdict(plain(night()))
    assert found[1] == usual[1] == "deadlock"
    assert abs(found[0] - usual[0]) <= 0.3


def test_the_first_steps_are_not_summed_up_until_the_timers_of_the_runtime_are_known() -> None:
    """The detector asks for a census of each reading while it learns: it must see the steps at once for that."""
    first, *later = healthy(1.0, 7)
    without = [
        replace(event, reading=replace(event.reading, census=None))
        if isinstance(event, Sampled) and isinstance(event.reading, Process) and event.at > 2.0
        else event
        for event in later
    ]
    taken, summing = through([*begin(), first, *without])

    assert summing.held == ()
    assert taken[-1][1].detector_state.stepping


def test_readings_come_singly_while_memory_is_short() -> None:
    run = plain([*begin(), *healthy(1.0, 60)])[-1][1]

    assert is_calm(run)
    assert not is_calm(with_attempt(run, memory=MemoryWatch(is_near=True)))


def test_a_healthy_minute_is_half_of_the_events_at_most_and_no_moment_of_doubt() -> None:
    events = [*begin(), *healthy(1.0, 120)]
    taken, _ = through(events)
    late = [event for event, _ in taken if event.at > 20.0]

    assert len(late) <= len([event for event in events if event.at > 20.0]) * 0.5
    assert all(run.detector_state.judgement.step in ("off", "armed", "healthy") for _, run in taken)
    assert all(run.detector_state.judgement.gap <= 1.5 for event, run in taken if event.at > 20.0)
    assert all(run.detector_state.clock.grace == 0.0 for _, run in taken), "no time was missed"


def test_the_clock_of_the_detector_runs_on_and_the_batches_are_counted() -> None:
    events = [*begin(), *healthy(1.0, 100), UserCommand(at=101.0, verb="mute", argument="1")]
    summed, usual = through(events)[0][-1][1], plain(events)[-1][1]

    assert summed.detector_state.clock.now == usual.detector_state.clock.now
    assert summed.history.heartbeat is not None
    assert usual.history.heartbeat is not None
    assert summed.history.heartbeat.beats == usual.history.heartbeat.beats


def test_events_keep_their_order_and_none_is_late() -> None:
    events = night()
    taken, summing = through(events)
    times = [event.at for event, _ in taken]

    assert times == sorted(times)
    assert summing.held == ()
    passed = [after - before for before, after in itertools.pairwise(times)]
    assert max(passed) <= HOLD + 1.25


def test_nothing_is_held_for_longer_however_often_each_reading_is_replaced() -> None:
    healthy_events = list(healthy(1.0, 60))
    often = [
        Sampled(at=event.at + 0.05, reading=Memory(total=100, available=40))
        for event in healthy_events
        if isinstance(event, Sampled) and isinstance(event.reading, Process)
    ]
    events = [event for event in healthy_events if not isinstance(getattr(event, "reading", None), Memory)]
    taken, _ = through([*begin(), *sorted([*events, *often], key=lambda event: event.at)])
    times = [event.at for event, _ in taken]

    assert max(after - before for before, after in itertools.pairwise(times)) <= HOLD + 1.25
    assert 60.0 - times[-1] <= HOLD + 1.25


def test_the_longest_pause_of_what_was_summed_up_is_kept() -> None:
    events = [*begin(), *healthy(1.0, 60)]
    slow = max(index for index, event in enumerate(events) if isinstance(event, Heartbeat) and event.at == 43.0)
    events[slow] = replace(events[slow], longest=0.7, longest_phase="input")

    longest = [event.longest for event, _ in through(events)[0] if isinstance(event, Heartbeat)]
    assert 0.7 in longest


def test_a_reading_that_differs_in_more_than_its_numbers_is_taken_at_once_after_what_came_before() -> None:
    events = [*begin(), *healthy(1.0, 62)]
    at = events[-1].at
    taken, _ = through([*events, Sampled(at=at + 0.1, reading=replace(process(62.0), state="stopped"))])

    assert taken[-1][0].at == at + 0.1
    assert taken[-1][1].detector_state.evidence.state == "stopped"
    assert any(isinstance(event, Heartbeat) and event.at == 62.0 for event, _ in taken)


def test_who_looks_sees_the_newest_record() -> None:
    taken, summing = through([*begin(), *healthy(1.0, 64)])
    run = taken[-1][1]
    assert summing.held
    for event in summing.preview(run):
        run, _ = fold.advance(run, event, LIMITS)

    assert run.history.heartbeat is not None
    assert run.history.heartbeat.at == 64.0


def test_a_tick_lets_go_of_what_is_held_so_that_a_late_record_is_noticed() -> None:
    events = [*begin(), *healthy(1.0, 64)]
    taken, summing = through(events)
    run = taken[-1][1]
    assert summing.wake(run) <= events[-1].at + 1.25

    late, _ = through([*events, Ticked(at=65.3)])
    assert [event.at for event, _ in late][-1] == 65.3
    assert late[-1][1].detector_state.judgement.gap >= 1.0
