"""How a machine gets a job whose holder is silent, in time that the test lets pass."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.fleet.machines.keeper import HeldElsewhere, LeaseWatch, Taken, take
from stallguard.fleet.store import StoreError, joblog, records
from stallguard.fleet.store.joblog import Tail, perform
from stallguard.fleet.store.records import LONGEST_LEASE, Claim, Damaged, Holder, HolderEnd

LASTS = 60.0


def holder(nonce, lasts=LASTS):
    return Holder(host=nonce, boot="b", pid=1, nonce=nonce, lasts=lasts)


class Time:
    """Passes only while a reader sleeps.  `meanwhile`: what happens in each sleep."""

    def __init__(self, meanwhile=lambda: None):
        self.now, self.meanwhile, self.watched = 0.0, meanwhile, []
        self.writes = lambda: None

    def sleep(self, seconds):
        self.now += seconds
        self.meanwhile()

    @property
    def watching(self):
        return LeaseWatch(lambda: self.now, self.sleep, self.watched.append, self.writes)


@pytest.fixture
def held(folder):
    """The log of a job that has a holder; and its mark."""
    tail, won = perform(joblog.claim("job", Tail(), holder("a"), ""), folder)
    assert won
    perform(joblog.renew("job", tail.claim, 1), folder)
    return tail, perform(joblog.look("job", tail), folder)[1]


def taken_by(store, nonce, time, quiet=""):
    return take(store, "job", holder(nonce), lambda: "", time.watching, quiet)


def test_a_silent_holder_is_overtaken_after_its_lease(folder, held):
    time = Time()
    assert taken_by(folder, "b", time).tail.number == 2
    assert LASTS <= time.now <= LASTS * 1.1
    assert [claim.holder.host for claim in time.watched] == ["a"]


def test_a_mark_that_another_reader_watched_run_out_is_not_watched_again(folder, held):
    time = Time()
    assert isinstance(taken_by(folder, "b", time, quiet=held[1]), Taken)
    assert time.now == 0


def test_a_mark_that_has_changed_since_is_watched_anew(folder, held):
    """The holder was only cut off: it has renewed after the mark was given away."""
    tail, mark = held
    perform(joblog.renew("job", tail.claim, 2), folder)
    time = Time()
    assert isinstance(taken_by(folder, "b", time, quiet=mark), Taken)
    assert time.now >= LASTS


def test_a_holder_that_renews_keeps_its_job_whatever_mark_is_given(folder, held):
    tail, mark = held
    beats = iter(range(2, 100))

    def renew():
        perform(joblog.renew("job", tail.claim, next(beats)), folder)

    renew()
    with pytest.raises(HeldElsewhere) as error:
        taken_by(folder, "b", Time(renew), quiet=mark)
    assert error.value.by.holder.host == "a"


def test_a_holder_for_which_the_card_of_its_machine_stands_lives_as_long_as_that_changes(folder, held):
    cards = iter(range(100))

    def renew():
        folder.replace("workers/a", b"%d" % next(cards))

    folder.replace("beats/job@1@a", b"1")
    with pytest.raises(HeldElsewhere):
        taken_by(folder, "b", Time(renew))
    folder.remove("beats/job@1@a")  # the run is dead, the worker lives
    time = Time(renew)
    assert isinstance(taken_by(folder, "b", time), Taken)
    assert LASTS <= time.now <= LASTS * 1.1


def test_of_two_with_the_same_mark_one_gets_the_job(folder, held):
    first, second = Time(), Time()
    assert taken_by(folder, "b", first, quiet=held[1]).tail.number == 2
    assert taken_by(folder, "c", second, quiet=held[1]).tail.number == 3
    assert (first.now, second.now >= LASTS) == (0, True)


def test_a_holder_says_itself_how_long_its_lease_lasts(folder):
    perform(joblog.claim("job", Tail(), holder("a", lasts=6.0), ""), folder)
    time = Time()
    taken_by(folder, "b", time)
    assert 6 <= time.now <= 7


def test_a_job_that_is_done_is_not_taken(folder, held):
    entry = HolderEnd(number=1, claim=1, run="r", code=0, why="")
    perform(joblog.append("job", held[0], 1, entry), folder)
    assert taken_by(folder, "b", Time()).code == 0


@pytest.mark.parametrize("lasts", [0.0, -1.0, 0.5, LONGEST_LEASE * 2])
def test_a_claim_with_a_lease_that_no_stallguard_writes_is_refused(folder, held, lasts):
    """It would be overtaken at once, or never."""
    entry = Claim(number=2, newest=0, at="", holder=holder("evil", lasts=lasts))
    with pytest.raises(Damaged, match="a lease of"):
        records.decode(msgspec.json.encode(entry))
    folder.create(records.slot_key("job", 2), msgspec.json.encode(entry))
    tail = perform(joblog.read_end("job"), folder)
    assert (tail.number, tail.refused) == (1, 1)


def test_no_holder_is_overtaken_while_the_store_can_be_read_and_not_written_to(folder, held):
    time = Time()

    def writes():
        raise StoreError("Read-only file system")

    time.writes = writes
    with pytest.raises(StoreError, match="Read-only"):
        taken_by(folder, "b", time)
    assert time.now < LASTS * 0.7
    assert perform(joblog.read_end("job"), folder).number == 1
