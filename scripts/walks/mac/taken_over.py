"""What comes back from a walk becomes part of the tests: recordings as data, failed rows as tests that are skipped.

A failed row is a promise that a real machine broke.  Until the code keeps it, its test is skipped with what was seen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mac import recordings
from mac.archive import Walked
from mac.table import FAILED, Row

FAILED_ROWS = "failed_rows.json"


def take_over(walked: Walked, data: Path, tests: Path) -> list[str]:
    """Write the recordings below `data` and the failed rows to `tests`; return what was done, in sentences.

    Raises OSError.  A walk of the same machine takes the place of an earlier one.
    """
    place = recordings.keep(data, walked.mac, walked.day, walked.tools)
    file = tests / FAILED_ROWS
    before: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    others = [one for one in before if one["machine"] != walked.mac.folder]
    failed = [row for row in walked.rows if row.verdict == FAILED]
    file.write_text(json.dumps(others + _kept(walked, failed), indent=1) + "\n")
    return [
        f"{len(walked.tools)} recordings are in {place}, with their source in {data / 'SOURCES.md'}",
        f"{len(failed)} failed rows are in {file}: each is a test that is skipped with what was seen",
    ]


def _kept(walked: Walked, failed: Sequence[Row]) -> list[dict[str, str]]:
    return [
        {"machine": walked.mac.folder, "day": walked.day, "check": row.check, "expected": row.expected,
         "seen": row.figure, "means": row.means}
        for row in failed
    ]  # fmt: skip
