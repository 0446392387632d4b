"""Tools and plug-ins as collectors."""

from __future__ import annotations

import time

from stallguard.collectors import Collector, collector_registry, evidence_bundle
from stallguard.host.types import Tool
from tests.collectors.stuck import LONG, context, item


def kept(folder, command, seconds, size):
    """Return what is kept of a tool's output, and why that is not all."""
    tool = Tool("tool", ("/bin/sh", "-c", command), seconds, size)
    gather = collector_registry._tool(tool).gather
    manifest = evidence_bundle.gather(context(folder), [Collector("tool", gather, LONG, size)])
    return (folder / "1/tool.txt").read_text(), item(manifest, "tool").why


def test_the_output_of_a_tool_that_floods_hangs_or_fails_is_kept(tmp_path):
    began = time.monotonic()
    flood = kept(tmp_path / "flood", "yes", LONG, 100_000)
    assert flood == ("y\n" * 50_000, "it printed too much and was killed")
    hang = kept(tmp_path / "hang", "echo so far; sleep 60 & sleep 60", 0.3, 1000)
    assert hang == ("so far\n", "it did not end in time and was killed")
    failed = kept(tmp_path / "failed", "echo no >&2; exit 3", LONG, 1000)
    assert failed == ("no\n", "it ended with exit code 3")
    assert time.monotonic() - began < 5


def test_a_plug_in_gathers_too_and_a_broken_one_is_reported(tmp_path, monkeypatch):
    (tmp_path / "lib/extra-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "lib/extra-1.0.dist-info/METADATA").write_text("Name: extra\nVersion: 1.0\n")
    (tmp_path / "lib/extra-1.0.dist-info/entry_points.txt").write_text(
        "[stallguard.collectors]\nextra = extra_collector:IT\nbroken = extra_collector:ABSENT\n"
    )
    (tmp_path / "lib/extra_collector.py").write_text(
        "from stallguard.collectors import Collector\n"
        "IT = Collector('extra', lambda context, sheet: sheet.text('extra.txt', 'hi'), 1.0, 100)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    manifest = evidence_bundle.gather(context(tmp_path))
    assert (tmp_path / "1/extra.txt").read_text() == "hi"
    assert item(manifest, "broken").state == "failed"
