"""The records of one process: which are its own, and which depend on a past that is gone."""

from __future__ import annotations

from stallguard.probe.checkpoint.saved_generation import AttemptRecords


def test_the_records_of_one_process_are_not_anothers(tmp_path):
    one, other = (AttemptRecords(str(tmp_path), place, resuming=True) for place in ("a1-1", "a1-2"))
    one.store(1).write({"format": 0}, [])
    assert one.later(0)
    assert not other.later(0)


def test_what_follows_from_another_past_is_dropped(tmp_path):
    records = AttemptRecords(str(tmp_path), "a1-1", resuming=True)
    for ordinal in (1, 2, 3):
        records.store(ordinal).write({}, [])
    assert records.forget_from(2) == 2
    assert records.store(1).names()
    assert not records.later(1)
