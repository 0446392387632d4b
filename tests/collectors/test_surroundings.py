"""The reports that macOS writes by itself are found and read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallguard.collectors import Nothing, Sheet, surroundings
from stallguard.collectors.redact import Redactor
from stallguard.collectors.surroundings import newer_reports, parse_report
from tests import examples
from tests.collectors.stuck import context

MACOS = Path(__file__).parent.parent / "recordings/macos"


def recorded(name):
    return (MACOS / name).read_text()


def test_a_gpu_restart_is_read():
    report = parse_report(recorded("gpuEvent_firmware_lockup_macos27.ips"))
    assert (report.kind, report.process, report.system) == (
        "gpu restart", "DrewsChessMachin", "macOS 27.2 (26B5091g)",
    )  # fmt: skip
    assert report.facts == {
        "reason": "firmware-detected lockup", "code": "4", "signature": "579", "engine": "compute",
    }  # fmt: skip


def test_a_body_without_its_header_is_read_too():
    report = parse_report(recorded("gpuEvent_python314_macos26_body_excerpt.json"))
    assert (report.kind, report.process) == ("gpu restart", "python3.14")


def test_a_jetsam_report_names_whom_it_killed_and_how_large_they_were():
    header = recorded("jetsam_event_macos26_header_line.txt")
    body = json.loads(recorded("jetsam_event_macos15_m1_excerpt.json"))
    body["memoryStatus"]["pageSize"] = 16384
    body["processes"] = [
        {"name": "python3.11", "pid": 4242, "rpages": 500_000, "reason": "vm-compressor-space-shortage"},
        {"name": "Finder", "pid": 1, "rpages": 10},
    ]
    report = parse_report(f"{header.strip()}\n{json.dumps(body)}")
    assert report.kind == "jetsam"
    assert report.victims == (4242,)
    assert report.facts["killed"] == "python3.11 (pid 4242, 8.2 GB): vm-compressor-space-shortage"
    assert report.facts["largest"] == "node"


def test_a_header_alone_still_says_what_it_is():
    assert parse_report(recorded("jetsam_event_macos26_header_line.txt")).kind == "jetsam"
    assert parse_report("{}", "gpuEvent-x.ips") is None


@pytest.mark.parametrize("name", ["gpuEvent_firmware_lockup_macos27.ips", "jetsam_event_macos15_m1_excerpt.json"])
def test_a_report_cut_at_any_byte_is_survived(name):
    text = recorded(name)
    for end in range(len(text)):
        parse_report(text[:end])


KEYS = st.sampled_from(["bug_type", "analysis", "memoryStatus", "processes", "pid", "rpages", "reason", "exception"])
LEAVES = st.none() | st.integers() | st.text()


@pytest.mark.costly
@settings(max_examples=examples.of(50, fast=20))
@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=20))
def test_fields_of_another_shape_are_left_out(value):
    parse_report(json.dumps(value), "JetsamEvent-x.ips")
    parse_report(json.dumps({"bug_type": "298", "processes": [value], "memoryStatus": value, "analysis": value}))


def test_only_reports_that_concern_us_and_are_new_are_taken_newest_first(tmp_path):
    names = [
        "gpuEvent-a.ips",
        "JetsamEvent-b.ips",
        "python3.11-c.ips",
        "Finder-d.ips",
        "python.txt",
        "gpuEvent-old.ips",
    ]
    for age, name in enumerate(names):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000 - age * 10, 1000 - age * 10))
    found = newer_reports([tmp_path, tmp_path / "absent"], since=975)
    assert [path.name for path in found] == ["gpuEvent-a.ips", "JetsamEvent-b.ips", "python3.11-c.ips"]


def gathered(tmp_path, **more):
    sheet = Sheet(tmp_path / "1", 1 << 20, Redactor({}))
    facts = surroundings.device(context(tmp_path, run=tmp_path, **more), sheet)
    return facts, json.loads((tmp_path / "1" / "device.json").read_bytes())


def test_what_the_gpu_did_since_the_last_progress_is_kept(tmp_path):
    (tmp_path / "1").mkdir()
    shutil.copy(MACOS.parent / "journals" / "h200_torch_kernel_without_end.jsonl", tmp_path / "journal.jsonl")
    lines = map(json.loads, (tmp_path / "journal.jsonl").read_bytes().splitlines())
    pid = next(line["pid"] for line in lines if line["event"] == "probe.heartbeat")
    facts, kept = gathered(tmp_path, pid=pid)
    assert facts == {"device": "100% busy, 1.51 GB in use, 118 W"}
    assert kept["utilisation"] == {"low": 1.0, "usual": 1.0, "high": 1.0}
    assert "memory_utilisation" not in kept


def test_without_a_reading_of_the_gpu_nothing_is_kept_and_it_is_said(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "journal.jsonl").write_text("cut off\n{}\n")
    with pytest.raises(Nothing, match="GPU"):
        gathered(tmp_path)
