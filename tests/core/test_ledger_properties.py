"""Every second of a run is in exactly one category, whatever happens to it, and the journal shows the same seconds."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallguard.core import ledger, lifecycle, recovery
from stallguard.core.actions import Action
from stallguard.core.events import Event, Launched, ProbeConnected, SupervisorRestarted
from stallguard.core.limits import Limits
from stallguard.core.run import Run
from stallguard.core.time_spent import CATEGORIES, Spent, effective, total
from stallguard.report import journal_record
from tests import examples
from tests.simulation.simulation import LIMITS, Simulation
from tests.simulation.subjects import WholeCore
from tests.storage.lines import encoded

BEGAN = 100.0
LATER = dt.datetime(2026, 3, 7, 22, tzinfo=dt.UTC)


class Journaled(WholeCore):
    """Writes a journal as the loop does: each event, then the actions that follow from it."""

    lines: list[bytes]
    offset = 0.0  # what the wall's clock is ahead of the supervisor's

    def begin(self, now: float) -> list[Action]:
        actions = super().begin(now)
        self.lines = []
        self.write(now, *actions)
        return actions

    def take(self, event: Event) -> list[Action]:
        actions = super().take(event)
        self.write(event.at, event, *actions)
        return actions

    def write(self, at: float, *each: Event | Action) -> None:
        time = (LATER + dt.timedelta(seconds=at + self.offset)).isoformat(timespec="milliseconds")
        self.lines += [encoded(what, time, at) for what in each]


class Night(Simulation):
    """Counts the wall time on its own, and looks at the ledger after each event."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.before, self.wall_before = Spent(), 0.0
        super().__init__(Journaled(limits), now=BEGAN, tick=1.0)

    @property
    def core(self) -> Journaled:
        assert isinstance(self.subject, Journaled)
        return self.subject

    def feed(self, event: Event) -> None:
        if self.run.state in lifecycle.ENDED:
            return
        super().feed(event)
        self.check()

    def check(self) -> None:
        settled, times = self.run.ledger.spent, ledger.spent(self.run.ledger, self.run.now)
        wall = self.run.now + self.core.offset - BEGAN
        assert total(times) == pytest.approx(wall, rel=1e-3, abs=1e-6)
        assert total(times) >= self.wall_before - 1e-6
        for name in CATEGORIES:
            assert 0.0 <= getattr(self.before, name) <= getattr(settled, name) <= getattr(times, name)
        self.before, self.wall_before = settled, total(times)

    # ---- what can happen

    def nap(self, seconds: float) -> Self:
        self.core.offset += seconds
        return self.sleep(seconds)

    def halt(self, seconds: float) -> Self:
        return self.silent(seconds, state="stopped", pulses=False, tick=1.0).silent(2, state="sleeping")

    def check_model(self, seconds: float) -> Self:
        return self._phase("validation", seconds)

    def save_model(self, seconds: float) -> Self:
        return self._phase("checkpoint", seconds)

    def _phase(self, phase: str, seconds: float) -> Self:
        if self.programs:
            self.enter(phase)
            self.silent(seconds, "compile")
        return self

    def replaced(self, seconds: float) -> Self:
        """A later stallguard continues from the value that was saved."""
        self.run = msgspec.msgpack.decode(msgspec.msgpack.encode(self.run), type=Run)
        until, self.now = self.run.now, self.now + seconds
        return self.tell(SupervisorRestarted, seconds=self.now - until, until=until)

    def rebooted(self, seconds: float) -> Self:
        """The machine is started anew, which takes so long; its clock begins at 5 s."""
        if self.run.state in lifecycle.ENDED:
            return self
        until, self.alive, new = self.run.now, False, 5.0
        self.programs.clear()
        run, actions = recovery.on_a_new_clock(self.run, new)
        self.run, self.now = run, new
        self.core.offset += until + seconds - new
        self.tell(SupervisorRestarted, seconds=seconds, until=until, rebooted=True)
        self.core.write(new, *actions)
        self._answer_all(actions)
        return self


HAPPENINGS = {
    "train": Night.train, "silent": lambda night, seconds: night.silent(seconds, "deadlock"),
    "crash": lambda night, seconds: night.exit(-9).wait(seconds), "nap": Night.nap, "halt": Night.halt,
    "validation": Night.check_model, "checkpoint": Night.save_model, "replaced": Night.replaced,
    "rebooted": Night.rebooted, "restart": lambda night, seconds: night.ask("restart").train(seconds),
    "stop": lambda night, seconds: night.train(seconds).ask("stop"),
}  # fmt: skip
histories = st.lists(st.tuples(st.sampled_from(sorted(HAPPENINGS)), st.floats(1.0, 90.0)), max_size=7)


def played(history: list[tuple[str, float]]) -> Night:
    night = Night()
    for name, seconds in history:
        HAPPENINGS[name](night, seconds)
    return night


def from_the_journal(night: Night) -> Spent:
    with TemporaryDirectory() as place:
        path = Path(place) / "journal.jsonl"
        path.write_bytes(b"".join(night.core.lines))
        return journal_record.read(path).spent


@pytest.mark.costly
@settings(max_examples=examples.of(60, fast=10), deadline=None)
@given(histories)
def test_each_second_has_one_category_live_and_from_the_journal(history):
    night = played(history)
    live = ledger.spent(night.run.ledger, night.run.now)

    read = from_the_journal(night)
    assert {name: getattr(read, name) for name in CATEGORIES} == pytest.approx(
        {name: getattr(live, name) for name in CATEGORIES}, abs=1e-3
    )
    if night.events:
        again = recovery.rebuilt(night.events, LIMITS)
        assert again is not None
        assert again.ledger == night.run.ledger, "a later stallguard folds the same from the journal"


def test_each_happening_has_its_category():
    night = played(
        [("train", 60), ("checkpoint", 5), ("train", 20), ("validation", 10), ("train", 20), ("nap", 3600),
         ("train", 20), ("halt", 60), ("train", 20), ("replaced", 30), ("train", 20), ("silent", 5), ("train", 150)]
    )  # fmt: skip
    times = ledger.spent(night.run.ledger, night.run.now)

    assert times.checkpoint == pytest.approx(5, abs=1.5)
    assert times.validation == pytest.approx(10, abs=1.5)
    assert times.machine_asleep == 3600
    assert times.stopped_by_user == pytest.approx(60, abs=4)
    assert times.supervisor_absent == pytest.approx(30, abs=1.5)
    assert times.stalled == pytest.approx(4, abs=2)
    assert times.redone_batches > 60, "it trains from its beginning again"
    assert times.unknown == 0
    own = times.training + times.validation + times.checkpoint
    assert effective(times) == pytest.approx(own / total(times))


def test_after_a_boot_the_time_in_which_the_machine_was_off_is_an_absence():
    night = played([("train", 60), ("rebooted", 300), ("train", 200)])
    times = ledger.spent(night.run.ledger, night.run.now)

    assert times.supervisor_absent == 300
    assert times.redone_batches > 50, "it trains from its beginning again"


def test_the_value_does_not_grow():
    known, sizes = ledger.Ledger(since=0.0), []
    for number in range(1, 2001):
        known = ledger.after(known, number, Launched(at=number, attempt=1 + number // 500, pid=number))
        for pid in range(number, number + 5):
            hello = ProbeConnected(at=number, attempt=known.attempt, pid=pid, place=f"place-{pid}")
            known = ledger.after(known, number, hello)
        sizes.append(len(msgspec.msgpack.encode(known)))

    many = ledger.Ledger(since=0.0)
    for pid in range(10_000):
        many = ledger.after(many, 1.0, ProbeConnected(at=1.0, attempt=0, pid=pid, place=f"place-{pid}"))
    assert max(sizes) < 2000
    assert len(many.processes) == ledger.PROCESSES


def test_a_program_without_a_probe_is_unknown_and_has_no_share():
    known = ledger.after(ledger.Ledger(since=0.0), 0.5, Launched(at=0.5, attempt=1, pid=7))
    times = ledger.spent(known, 600.5)

    assert (times.unknown, effective(times)) == (600.0, None)
