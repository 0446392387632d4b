"""JSON of text that is not UTF-8."""

from __future__ import annotations

import msgspec

from stallguard import jsontext
from stallguard.storage import run_files


def test_what_is_written_exactly_is_read_exactly() -> None:
    who = run_files.Identity(pid=1, started=1.0, boot="d\udcfc \\ud800 \U0001f600")
    assert jsontext.decode(jsontext.exact(who), run_files.Identity) == who
    assert jsontext.decode(jsontext.exact(who, indent=2), run_files.Identity) == who
    assert msgspec.json.decode(jsontext.readable(who))["boot"] == "d? \\ud800 \U0001f600"
