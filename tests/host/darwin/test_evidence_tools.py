"""Which tools of macOS gather evidence about a stuck process."""

from __future__ import annotations

import pytest

from stallguard.collectors import BUDGET
from stallguard.host.darwin import evidence_tools, machine


def darwin_tools(since=0.0, now=0.0):
    return {tool.name: tool for tool in evidence_tools.tools(4242, since, now)}


def test_macos_tools_are_absolute_need_no_root_and_name_the_process():
    for tool in darwin_tools().values():
        assert tool.argv[0].startswith("/")
        assert "sudo" not in tool.argv
    for name in ("sample", "threads", "files", "maps", "footprint"):
        assert "4242" in darwin_tools()[name].argv


def test_what_stops_the_process_on_macos_is_asked_for_only_by_who_wants_it():
    assert {name for name, tool in darwin_tools().items() if tool.deep} == {"maps", "footprint"}


@pytest.mark.parametrize(("age", "slice_"), [(0, "1m"), (600, "10m"), (36_000, "60m")])
def test_the_slice_of_the_unified_log_covers_the_attempt_and_is_bounded(age, slice_):
    assert slice_ in darwin_tools(since=1000.0, now=1000.0 + age)["log"].argv


def test_on_macos_all_that_a_restart_waits_for_fits_into_the_budget():
    waited_for = [tool for tool in darwin_tools().values() if not tool.deep and not tool.outlasts]
    assert max(tool.seconds for tool in waited_for) < BUDGET
    assert {tool.name for tool in darwin_tools().values() if tool.outlasts} == {"log"}


def test_the_unified_log_is_asked_for_little():
    log = darwin_tools()["log"].argv
    assert "--info" not in log
    assert log[-1].startswith('(process == "kernel" AND ')
    assert "processID == 4242" in log[-1]


def test_what_one_macos_lacks_hides_nothing_that_each_has():
    """sysctl(8) of a Mac can end at the first name that is unknown; macOS 13 has no iogpu.wired_limit_mb."""
    assert darwin_tools()["memory"].argv[-1] == "iogpu.wired_limit_mb"
    assert "iogpu.wired_limit_mb" not in machine.MEMORY_NAMES
