"""Decoders of what a store has, to which other machines write: the log of a job, what is readable of its run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzzing.targets import Target, encoded
from stallguard.cli import ls
from stallguard.fleet.jobs import archive, fleet_page, job_table, readable_files
from stallguard.fleet.store import orders, records
from stallguard.storage import run_files


def targets() -> Iterator[Target]:
    """Yield the decoders of what a store has."""
    holder = records.Holder(host="studio", boot="a-boot", pid=4321, nonce="0123")
    file = records.StoredFile("p-1/fit-0001/g3/facts.json", 120, "0" * 64, "1-00000000")
    position = records.Position(1, 3, 40)
    entries: list[records.Entry] = [
        records.Claim(number=2, newest=4, at=run_files.utc(), holder=holder),
        records.Generation(number=2, newest=4, claim=5, run="a-run", files=(file,), position=position),
        records.HolderEnd(number=2, newest=6, claim=5, run="a-run", code=0, why="finished"),
    ]

    def stays_below(_data: bytes, entry: Any) -> None:
        for one in getattr(entry, "files", ()):
            place = Path("/checkpoints") / one.path
            assert place.is_relative_to("/checkpoints")
            assert ".." not in place.parts
            assert "/" not in one.name

    yield Target(
        "log of a job", [records.encode(one) for one in entries], records.decode, (records.Damaged,), stays_below
    )
    index = readable_files.Index(
        1, "a-run", "studio", run_files.utc(),
        (readable_files.Whole("run.json", 90, "1-2"), readable_files.Whole("incidents/1/stacks.txt", 9, "3-4")),
        (readable_files.Growing("output.log", 2, 1 << 20, 1 << 18, 1 << 19),),
    )  # fmt: skip

    def is_readable(_data: bytes, found: readable_files.Index) -> None:
        for path in [one.path for one in found.files] + [one.path for one in found.growing]:
            place = Path("/mirror") / found.run / path
            assert place.is_relative_to("/mirror")
            assert ".." not in place.parts
            assert path.startswith(("run.", "outcome.", "job.", "notif", "incidents/", "output.", "journal."))

    yield Target("index of a run", encoded(index), readable_files.decode_index, (records.Damaged,), is_readable)
    status = orders.RunStatus(
        1, run_files.utc(),
        {"state": "running", "rates": {"batches": 2.5}, "silent": 1.5, "effective": 0.9, "attempt": 2,
         "progress": {"epoch": 3, "epochs": 10, "batch": 4, "batches": 100, "loss": 0.5}},
    )  # fmt: skip

    def shown(data: bytes) -> Any:
        found = readable_files.decode_status(data)
        row = job_table.JobRow(job="a", state="running", heard=found.at, status=found.status)
        fleet = job_table.Fleet([row], [], [], ["a"])
        now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        return ls.live_job_line(row), fleet_page.make("file:///s", fleet, [], {}, {}, [], 0, "", now)

    yield Target("state of a job", encoded(status), shown, (records.Damaged,))
    row = job_table.JobRow(
        job="a", state="failed", machine="studio", number=2, since=run_files.utc(), run="a-run", newest=run_files.utc(),
        position=position, code=3, why="ValueError", is_submitted=True, by="ann@mini", needs={"metal": 1.0},
        command=["train.py", "--epochs", "2"], heard=run_files.utc(), status=status.status,
    )  # fmt: skip

    def listed(data: bytes) -> Any:
        found = archive.decoded(data, archive.Day)
        rows = found.jobs if found is not None else []
        now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        page = fleet_page.make("file:///s", job_table.Fleet(rows, [], [], []), [], {}, {}, [], 0, "", now)
        return [(ls.live_job_line(one), ls.job_line(one)) for one in rows], page

    yield Target("archive of jobs", encoded(archive.Day(1, [row])), listed, ())
