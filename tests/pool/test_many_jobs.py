"""The dispatcher with a sweep of hundreds of jobs in a bucket, which answers in 30 ms."""

from __future__ import annotations

from tests.pool.dispatching import LASTS, MAC, Fleet

ANSWERS, JOBS = 0.03, 300


class Slow:
    """A store whose answers take time of the test's clock."""

    def __init__(self, fleet):
        self.fleet, self.store = fleet, fleet.store

    def __getattr__(self, name):
        self.fleet.now += ANSWERS
        return getattr(self.store, name)


def test_a_machine_that_vanishes_is_noticed_in_time_while_hundreds_of_jobs_wait(tmp_path):
    fleet = Fleet(tmp_path / "store")
    fleet.submit("held")
    for number in range(JOBS):
        fleet.submit(f"waits-{number:03}")
    fleet.claim("mac", "held")
    fleet.dispatcher._store = Slow(fleet)
    for _ in range(300):
        fleet.now += 1
        fleet.renew("held")
        fleet.dispatcher.turn()
    fleet.renew("held")
    assert fleet.cordon("mac") is None
    silent_since = fleet.now
    fleet.engine.connected = [one for one in fleet.engine.connected if one != MAC]
    while fleet.cordon("mac") is None:
        fleet.now += 1
        fleet.dispatcher.turn()
        assert fleet.now < silent_since + LASTS + 15  # it was 110 s and more if each job was read every 5 s
