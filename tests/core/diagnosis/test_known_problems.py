"""The table of public reports, and which of them an incident looks like."""

from __future__ import annotations

import pkgutil

import pytest

from stallguard.core import messages
from stallguard.core.diagnosis import causes, known_problems, signatures
from stallguard.core.history import History, Match
from stallguard.core.text import WHILE
from stallguard.core.verdicts import Finding
from stallguard.report.narrative import sentence
from tests.simulation.simulation import Simulation

TABLE = known_problems.table()


def alike(cause: str, phase: str = "step", *printed: str, metal: bool = True) -> list[str]:
    return [one.problem.key for one in known_problems.alike(cause, phase, printed, metal=metal)]


def test_at_least_twenty_reports_are_known_each_once() -> None:
    assert len(TABLE) >= 20
    assert len({row.key for row in TABLE}) == len({row.address for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("row", TABLE, ids=[row.key for row in TABLE])
def test_a_row_has_its_source_and_can_be_met(row) -> None:
    assert row.address.startswith("https://")
    assert row.address.endswith(row.key.rpartition("#")[2]) or row.key.startswith("discuss.")
    assert row.what
    assert row.cure
    assert set(row.causes) <= set(causes.CAUSES)
    assert row.causes
    assert set(row.signatures) <= set(signatures.BY_ID)
    assert set(row.phases) <= set(WHILE)
    families = {signatures.BY_ID[one].family for one in row.signatures}
    assert families.isdisjoint(signatures.QUIET), "a line that a healthy training prints is no likeness"
    is_rare = row.causes in ((causes.MACHINE_FROZE,), (causes.OPENMP_CLASH,))
    assert row.signatures or row.on_metal or is_rare, "else too much looks like it"


def test_without_its_file_the_table_is_empty(monkeypatch) -> None:
    def gone(_package: str, name: str) -> bytes:
        raise FileNotFoundError(name)

    monkeypatch.setattr(pkgutil, "get_data", gone)
    assert known_problems.table.__wrapped__() == ()


def test_a_printed_line_is_a_likeness_and_the_kind_alone_a_weaker_one() -> None:
    [ignored, _] = known_problems.alike("gpu-error-sticky", "step", {"iogpu_ignored"}, metal=True)
    assert (ignored.problem.key, ignored.printed) == ("apple/tensorflow_macos#202", True)
    [hang] = known_problems.alike("device-wait", "step", (), metal=True)
    assert (hang.problem.key, hang.printed) == ("tensorflow/tensorflow#50395", False)


def test_a_report_of_another_phase_another_machine_or_another_cause_is_not_named() -> None:
    assert alike("device-wait", "validation") == ["tensorflow/tensorflow#60267"]
    assert alike("device-wait", metal=False) == []
    assert alike("host-deadlock", "step", "iogpu_ignored") == []
    assert alike("script-error") == []


def test_the_diagnosis_names_the_report_with_its_address_and_says_how_sure_it_is() -> None:
    ignored = Match("iogpu_ignored", "GPU_FAULT_STICKY", "Ignored (for causing prior/excessive GPU errors)", 0.0, 1.0)
    findings = (Finding(causes.GPU_ERROR_STICKY, 0.9), Finding(causes.DEVICE_WAIT, 0.5))

    [said] = messages.known_problems(findings, History(matched=(ignored,)), "step")

    text = sentence(said.message, said.facts)
    assert "looks like apple/tensorflow_macos#202 (the output has a line of it)" in text
    assert "https://github.com/apple/tensorflow_macos/issues/202" in text
    assert messages.known_problems(findings, History(), "step") == []
    assert messages.known_problems((), History(matched=(ignored,)), "step") == []


def test_a_crash_and_a_stall_are_announced_with_the_report_that_they_look_like() -> None:
    crashed, refused = Simulation().train(20), Simulation().train(60)
    crashed.line("malloc_free").exit(-6)
    refused.line("iogpu_ignored").train(3)

    for world, problem in ((crashed, "tensorflow/tensorflow#83371"), (refused, "apple/tensorflow_macos#202")):
        [facts] = world.facts_of("stall.known_problem")
        assert facts["problem"] == problem
