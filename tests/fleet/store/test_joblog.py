"""The log of a job: who is refused, and what is not accepted."""

from __future__ import annotations

import json

from stallguard.fleet.store import joblog, records
from stallguard.fleet.store.records import Claim, Generation

HOLDER = records.Holder(host="h", boot="b", pid=1, nonce="n")


def test_an_entry_of_an_old_number_is_not_accepted_by_a_reader_either():
    claim = Claim(number=2, holder=HOLDER)
    tail = joblog.follow(joblog.Tail(), 1, claim)
    stale = Generation(number=1, claim=1, run="r", files=())
    assert joblog.follow(tail, 2, stale).generation is None
    assert joblog.follow(tail, 2, Claim(number=2, holder=HOLDER)).refused == 1


def test_the_newest_end_of_a_log_is_read_with_few_requests(folder):
    """A job of a year has a hundred thousand entries."""
    tail, _ = joblog.perform(joblog.claim("job", joblog.Tail(), HOLDER, ""), folder)
    for number in range(50):
        file = records.StoredFile("a", 1, f"{number:064x}", f"{number}-x")
        entry = records.Generation(number=1, claim=0, run="r", files=(file,))
        tail = joblog.perform(joblog.append("job", tail, 1, entry), folder)
    asked = []

    class Counting:
        def __getattr__(self, name):
            return lambda *given: asked.append((name, given)) or getattr(folder, name)(*given)

    assert joblog.perform(joblog.read_end("job"), Counting()) == tail
    assert len(asked) <= 5, json.dumps(asked)
