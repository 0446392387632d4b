"""Which ends of a run a job of a fleet is started again after."""

from __future__ import annotations

import pytest

from stallguard.fleet.store import records
from stallguard.fleet.store.records import (
    KILLED,
    NOT_BEGUN,
    REQUESTED,
    Claim,
    Damaged,
    Generation,
    Holder,
    HolderEnd,
    StoredFile,
)


@pytest.mark.parametrize(
    ("facts", "finished", "goes_on", "could_not_begin"),
    [
        ({"code": 0, "script_code": 0}, True, False, False),
        ({"code": 0, "reason": REQUESTED}, False, True, False),  # a script that was ended, and ends with 0
        ({"code": 0, "reason": REQUESTED, "final": True}, False, False, False),
        ({"code": 75, "reason": REQUESTED}, False, True, False),
        ({"code": 5, "reason": REQUESTED}, False, True, False),  # of its own handler of SIGTERM
        ({"code": 137, "reason": KILLED}, False, True, False),
        ({"code": 125, "reason": KILLED}, False, True, False),  # how it was killed is not known
        ({"code": 2, "reason": NOT_BEGUN}, False, True, True),
        ({"code": 127}, False, True, True),
        ({"code": 124}, False, False, False),  # stallguard gave up
        ({"code": 124, "fault": "its GPU hangs"}, False, True, False),
        ({"code": 65, "script_code": 0}, False, False, False),  # the loss was not finite
        ({"code": 139}, False, False, False),
        *(
            ({"code": code, "script_code": code}, False, False, False)
            for code in (1, 2, 75, 124, 125, 126, 127, 130, 143)
        ),
        ({"code": 126, "script_code": 126, "fault": "its GPU hangs"}, False, True, False),
        # Of an older version, which wrote the code alone.
        ({"code": 75}, False, True, False),
        ({"code": 126}, False, True, True),
        ({"code": 0}, True, False, False),
    ],
)
def test_who_ended_a_run_decides_and_not_a_number(facts, finished, goes_on, could_not_begin):
    end = HolderEnd(number=1, claim=1, run="r", why="", **facts)
    assert (end.is_finished, end.goes_on, end.could_not_begin) == (finished, goes_on, could_not_begin)
    assert records.decode(records.encode(end)) == end


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a//b", "a/../b", "", ".", "a/."])
def test_an_entry_cannot_name_a_file_elsewhere(path):
    file = StoredFile(path, 1, "0" * 64, "1-x")
    entry = Generation(number=1, claim=1, run="r", files=(file,), at="")
    with pytest.raises(Damaged):
        records.decode(records.encode(entry))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"entry": "x"}', b"[" * 100000, b'{"entry": "claim"}', b"\xff"])
def test_bytes_that_are_no_entry_are_damaged(data):
    with pytest.raises(Damaged):
        records.decode(data)


@pytest.mark.parametrize("text", [b"Infinity", b"NaN", b'"60"', b"null", b"1e999"])
def test_a_lease_that_is_no_number_is_refused(text):
    entry = records.encode(Claim(number=1, holder=Holder(host="a", boot="b", pid=1, nonce="a"))).replace(b"60.0", text)
    assert text in entry
    with pytest.raises(Damaged):
        records.decode(entry)
